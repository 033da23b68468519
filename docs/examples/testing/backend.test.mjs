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
const { verified } = await import('./verified.mjs');
const backend = await serve((req, res) => verified(req, res, () => res.end(`Hello ${req.user.sub}`)));

const sign = (claims = {}) =>
  new SignJWT({ sub: 'alice-0001', company: 'acme', sid: '1', iss: 'https://api.example.com/acme', aud: 'profile-api', ...claims })
    .setProtectedHeader({ alg: 'ES256', typ: 'mnemogate+jwt', kid: 'test' }).setIssuedAt().setExpirationTime('60s').sign(key);

const get = async (assertion) => fetch(backend, { headers: { 'X-Mnemogate-Assertion': assertion, Connection: 'close' } });

test('a user is let in', async () => {
  assert.equal(await (await get(await sign())).text(), 'Hello alice-0001');
});

test('what is for others is refused', async () => {
  for (const claims of [{ aud: 'other-api' }, { company: 'umbra' }, { iss: 'https://api.example.com/umbra' }])
    assert.equal((await get(await sign(claims))).status, 403);
});
