// Tells who asks, from the assertion of mnemogate that each request of a user has.
import { createRemoteJWKSet, jwtVerify } from 'jose';

const issuer = `${process.env.SITE ?? 'http://localhost:8080'}/acme`;
const keys = createRemoteJWKSet(new URL(`${issuer}/v2/jwks.json`), { cacheMaxAge: 300_000 });
const expected = { issuer, audience: 'web-app', typ: 'mnemogate+jwt', algorithms: ['ES256'], clockTolerance: 5 };

// userOf returns the user's mnemocode, or null if nobody of this company is logged in. It
// throws if the assertion is not valid or can't be verified, so that the page fails.
export async function userOf(assertion) {
  if (!assertion) return null;
  const { payload } = await jwtVerify(assertion, keys, expected);
  return payload.company === 'acme' ? payload.sub : null;
}
