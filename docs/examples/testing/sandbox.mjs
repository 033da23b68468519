// What tests of an app need of a sandbox of mnemogate.
import assert from 'node:assert/strict';
import { randomInt } from 'node:crypto';

export const url = process.env.SANDBOX ?? 'http://localhost:8080';

export async function send(method, path, key, body) {
  const answer = await fetch(url + path, { method, headers: { 'Content-Type': 'application/json', ...key }, body: body && JSON.stringify(body) });
  const text = await answer.text();
  assert.ok(answer.ok, text);
  return text;
}

const accounts = async (method, path, body) => JSON.parse(await send(method, `/mnemogate/acme/${path}`, { Authorization: 'Bearer try-this-accounts-key' }, body));

// newAccount returns an account that logs in with a code. With one for each test, tests
// can run side by side.
export function newAccount() {
  const number = String(randomInt(1e7)).padStart(7, '0');
  return accounts('POST', 'accounts', { profile_mnemocode: `user-${number}`, primary_phone: `+3706${number}` });
}

// codeFor waits for the first message to a phone or email, and returns the newest code.
export async function codeFor(to) {
  const { messages } = await accounts('GET', `messages?wait=10s&to=${encodeURIComponent(to)}`);
  return messages.at(-1).code;
}
