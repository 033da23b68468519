// Tells who asks, from the assertion of mnemogate that each request of a user has.
import { createRemoteJWKSet, jwtVerify } from 'jose';

const issuer = `${process.env.SITE ?? 'http://localhost:8080'}/acme`;
const keys = createRemoteJWKSet(new URL(`${issuer}/v2/jwks.json`), { cacheMaxAge: 300_000 });
const expected = { issuer, audience: 'web-app', typ: 'mnemogate+jwt', algorithms: ['ES256'], clockTolerance: 5 };

// userOf returns the user's mnemocode, or null if nobody is logged in. It throws if the
// assertion is not valid, so that the page fails.
export async function userOf(assertion) {
  if (!assertion) return null;
  const { payload } = await jwtVerify(assertion, keys, expected);
  if (payload.company !== 'acme') throw new Error('a user of another company');
  return payload.sub;
}
