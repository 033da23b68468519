// Verifies the assertions of mnemogate, as docs/backends.md describes them.
import { createRemoteJWKSet, jwtVerify } from 'jose';

const keys = createRemoteJWKSet(new URL('https://api.example.com/acme/v2/jwks.json'));
const expected = { issuer: 'https://api.example.com/acme', audience: 'profile-api', typ: 'mnemogate+jwt', algorithms: ['ES256'], clockTolerance: 5 };
const unloaded = [undefined, 'ERR_JWKS_TIMEOUT', 'ERR_JWKS_INVALID', 'ERR_JOSE_GENERIC']; // if the keys can't be loaded

export function verified(req, res, next) {
  jwtVerify(req.headers['x-mnemogate-assertion'] ?? '', keys, expected).then(
    ({ payload }) => { req.user = payload; next(); },
    ({ code }) => { res.statusCode = unloaded.includes(code) ? 503 : 403; res.end('no valid assertion'); },
  );
}
