// Tests a login from end to end with a sandbox of mnemogate: node --test login.test.mjs
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';
import test from 'node:test';

const sandbox = process.env.SANDBOX ?? 'http://localhost:8080';

async function send(method, path, key, body) {
  const answer = await fetch(sandbox + path, { method, headers: { 'Content-Type': 'application/json', ...key }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, text);
  return text;
}

const accounts = async (method, path, body) => JSON.parse(await send(method, `/mnemogate/acme/${path}`, { Authorization: 'Bearer try-this-accounts-key' }, body));

// newAccount returns an account that logs in with a code. With one for each test, tests
// can run side by side.
function newAccount() {
  const number = String(randomInt(1e7)).padStart(7, '0');
  return accounts('POST', 'accounts', { profile_mnemocode: `user-${number}`, primary_phone: `+3706${number}` });
}

// codeFor waits for the first message to a phone or email, and returns the newest code.
async function codeFor(to) {
  const { messages } = await accounts('GET', `messages?wait=10s&to=${encodeURIComponent(to)}`);
  return messages.at(-1).code;
}

test('a user logs in with a code', async () => {
  const { profile_mnemocode, primary_phone } = await newAccount();
  const auth = async (route, token, body) => JSON.parse(await send('POST', `/acme/v2/auth/${route}`, { 'X-Api-Key': 'try-this-key', ...(token && { Authorization: `Bearer ${token}` }) }, body));
  const login = await auth('login', null, { login_id: primary_phone });
  assert.equal(login.session_state, 'checkotp');
  const done = await auth('checkotp', login.session_token, { otp: await codeFor(primary_phone) });
  assert.equal(done.session_state, 'authorized');
  const page = await send('GET', '/', { Authorization: `Bearer ${done.session_token}` });
  assert.match(page, new RegExp(`^X-Profile-Mnemocode: ${profile_mnemocode}$`, 'm'));
});
