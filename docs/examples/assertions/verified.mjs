// Verifies the assertions of mnemogate, as docs/backends.md describes them.
import { createRemoteJWKSet, jwtVerify } from 'jose';

const keys = createRemoteJWKSet(new URL(process.env.ASSERTION_KEYS ?? 'https://api.example.com/acme/v2/jwks.json'), { cacheMaxAge: 300_000 });
const expected = { issuer: 'https://api.example.com/acme', audience: 'profile-api', typ: 'mnemogate+jwt', algorithms: ['ES256'], clockTolerance: 5 };
const unloaded = [undefined, 'ERR_JWKS_TIMEOUT', 'ERR_JWKS_INVALID', 'ERR_JOSE_GENERIC']; // if the keys can't be loaded

const identity = /^x.(profile.*|company.code|mnemogate.assertion)$/i; // the names of identity headers and of the assertion, in any spelling

export function verified(req, res, next) {
  jwtVerify(req.headers['x-mnemogate-assertion'] ?? '', keys, expected).then(
    ({ payload }) => {
      if (payload.company !== 'acme') return refuse(403);
      // Those who come past mnemogate can forge the headers beside their own assertion. A
      // framework that reads rawHeaders still sees them, so there take the user from req.user.
      Object.keys(req.headers).filter((name) => identity.test(name)).forEach((name) => delete req.headers[name]);
      Object.assign(req.headers, { 'x-profile-mnemocode': payload.sub, 'x-company-code': payload.company });
      if (payload.act) req.headers['x-profile-actor'] = encodeURIComponent(payload.act.sub); // who acts as the user
      req.user = payload;
      next();
    },
    ({ code }) => refuse(unloaded.includes(code) ? 503 : 403),
  );
  function refuse(status) { res.statusCode = status; res.end('no valid assertion'); }
}
