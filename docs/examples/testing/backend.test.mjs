// Tests a backend that verifies assertions, here ../assertions/verified.mjs. It needs no
// mnemogate: the test signs with its own key, assertion.pem, as mnemogate does with key.
import assert from 'node:assert/strict';
import { createPrivateKey, createPublicKey } from 'node:crypto';
import { once } from 'node:events';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import test, { after } from 'node:test';
import { exportJWK, SignJWT } from 'jose';

const key = createPrivateKey(readFileSync('assertion.pem'));
const jwk = { ...(await exportJWK(createPublicKey(key))), kid: 'test', alg: 'ES256', use: 'sig' };

async function serve(handler) {
  const server = createServer(handler).listen(0, '127.0.0.1');
  after(() => server.close());
  await once(server, 'listening');
  return `http://127.0.0.1:${server.address().port}/`;
}

process.env.ASSERTION_KEYS = await serve((_, res) => res.end(JSON.stringify({ keys: [jwk] })));
const { verified } = await import('../assertions/verified.mjs');
const backend = await serve((req, res) => verified(req, res, () => res.end(`Hello ${req.headers['x-profile-mnemocode']}`)));

const sign = (claims = {}, { typ = 'mnemogate+jwt', expires = '60s' } = {}) =>
  new SignJWT({ sub: 'alice-0001', company: 'acme', sid: '1', iss: 'https://api.example.com/acme', aud: 'profile-api', ...claims })
    .setProtectedHeader({ alg: 'ES256', typ, kid: 'test' }).setIssuedAt().setExpirationTime(expires).sign(key);

const get = (assertion, headers) => fetch(backend, { headers: { 'X-Mnemogate-Assertion': assertion, Connection: 'close', ...headers } });

test('a user is let in', async () => {
  assert.equal(await (await get(await sign())).text(), 'Hello alice-0001');
});

test('what is for others is refused', async () => {
  for (const claims of [{ aud: 'other-api' }, { company: 'umbra' }, { iss: 'https://api.example.com/umbra' }])
    assert.equal((await get(await sign(claims))).status, 403);
});

test('what is no valid assertion is refused', async () => {
  for (const assertion of ['', await sign({}, { typ: 'JWT' }), await sign({}, { expires: '-60s' })])
    assert.equal((await get(assertion, { 'X-Profile-Mnemocode': 'alice-0001' })).status, 403);
});

test('a header beside an assertion is ignored', async () => {
  assert.equal(await (await get(await sign(), { 'X-Profile-Mnemocode': 'bob-0002' })).text(), 'Hello alice-0001');
});
