// An OpenID provider for the tests. Its only argument is JSON: the port (0 for
// any), the client's metadata, and the claims of some users by login name.
// Whatever login name is typed in is let in, and is the subject. It says its
// issuer on standard output and ends with its standard input; GET /calls lists
// the requests it got.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const { port, client, users } = JSON.parse(process.argv[2]);
process.stdin.on('end', () => process.exit()).resume();

const server = createServer();
server.listen(port, '127.0.0.1', () => {
  const issuer = `http://localhost:${server.address().port}`;
  const answer = newProvider(issuer).callback();
  const calls = [];
  server.on('request', (request, response) => {
    if (request.url === '/calls') {
      response.end(JSON.stringify(calls));
      return;
    }
    calls.push(`${request.method} ${request.url.split('?')[0]}`);
    answer(request, response);
  });
  console.log(JSON.stringify({ issuer }));
});

function newProvider(issuer) {
  const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
  return new Provider(issuer, {
    clients: [client],
    jwks: { keys: [{ ...key.export({ format: 'jwk' }), alg: 'RS256', use: 'sig' }] },
    cookies: { keys: [randomBytes(32).toString('hex')] },
    claims: { openid: ['sub'], email: ['email', 'email_verified'] },
    conformIdTokenClaims: false, // the claims of the scope email are in the ID token
    pkce: { required: () => false },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...users[sub] }) }),
    loadExistingGrant: consent,
  });
}

// consent is given without a question.
async function consent({ oidc }) {
  const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
  grant.addOIDCScope('openid email');
  await grant.save();
  return grant;
}
