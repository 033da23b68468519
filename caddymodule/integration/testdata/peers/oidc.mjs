// An OpenID provider for the tests. Its only argument is JSON: the port (0 for
// any), the client's metadata, the claims of some users by login name, and in
// what it is like another provider.
// Whatever login name is typed in is let in, and is the subject. It says its
// issuer on standard output and ends with its standard input; GET /calls lists
// the requests it got.
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import { createServer } from 'node:http';
import Provider from 'oidc-provider';

const { port, client, users, like } = JSON.parse(process.argv[2]);
const { path = '', alias = path, routes, claims = {}, document = {}, nonce = true, form = false, basic = true, userinfo = false } = like ?? {};
process.stdin.on('end', () => process.exit()).resume();

const server = createServer();
server.listen(port, '127.0.0.1', () => {
  const issuer = `http://localhost:${server.address().port}`;
  const answer = newProvider(issuer + path).callback();
  const calls = [];
  server.on('request', (request, response) => {
    if (request.url === '/calls') {
      response.end(JSON.stringify(calls));
      return;
    }
    calls.push(`${request.method} ${request.url.split('?')[0]}`);
    if (!nonce) request.url = request.url.replace(/&nonce=[^&]*/, '');
    request.url = request.url.replace(/([?&]scope=)(?=&|$)/, '$1openid'); // without one, this provider logs nobody in
    if (request.url.startsWith(alias)) request.url = path + request.url.slice(alias.length);
    request.originalUrl = request.url;
    if (request.url.startsWith(path)) request.url = request.url.slice(path.length);
    answer(request, response);
  });
  console.log(JSON.stringify({ issuer }));
});

function newProvider(issuer) {
  const key = generateKeyPairSync('rsa', { modulusLength: 2048 }).privateKey;
  const provider = new Provider(issuer, {
    clients: [client],
    jwks: { keys: [{ ...key.export({ format: 'jwk' }), alg: 'RS256', use: 'sig' }] },
    cookies: { keys: [randomBytes(32).toString('hex')] },
    claims: { openid: ['sub', ...Object.keys(claims)], email: ['email', 'email_verified'] },
    conformIdTokenClaims: userinfo, // otherwise the claims of the scope email are in the ID token
    pkce: { required: () => false },
    findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub, ...claims, ...users[sub] }) }),
    loadExistingGrant: consent,
    ...routes && { routes },
  });
  provider.use(async (ctx, next) => {
    const { response_mode: mode, scope = '' } = ctx.query;
    if (form && /email|name/.test(scope) && mode !== 'form_post') ctx.throw(400, 'response_mode must be form_post');
    if (!basic && ctx.get('Authorization').startsWith('Basic ')) ctx.throw(401);
    if (ctx.path === '/user') { // GitHub's userinfo
      const token = await provider.AccessToken.find(ctx.get('Authorization').replace('Bearer ', ''));
      ctx.body = { login: token.accountId, ...users[token.accountId] };
      return;
    }
    await next();
    if (ctx.path === '/.well-known/openid-configuration') {
      for (const [name, value] of Object.entries(document)) ctx.body[name] = value ?? undefined;
    }
  });
  return provider;
}

// consent is given without a question.
async function consent({ oidc }) {
  const grant = new oidc.provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
  grant.addOIDCScope('openid email');
  await grant.save();
  return grant;
}
