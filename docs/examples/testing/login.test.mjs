// Tests a login from end to end with a sandbox of mnemogate: node --test login.test.mjs
import assert from 'node:assert/strict';
import test from 'node:test';
import { codeFor, newAccount, send } from './sandbox.mjs';

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
