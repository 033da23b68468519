// A service that is not behind mnemogate and asks what a token is worth, with a
// client library for OAuth. Its only argument is JSON: the address of the accounts
// API, the company, a key, and tokens. It prints the answers.
import * as oauth from 'oauth4webapi';

const { api, company, key, tokens } = JSON.parse(process.argv[2]);
const server = { issuer: api, introspection_endpoint: `${api}/${company}/introspect` };
const client = { client_id: 'service' };
const withKey = (_server, _client, _body, headers) => headers.set('Authorization', `Bearer ${key}`);
const ways = [withKey, oauth.ClientSecretBasic(key), oauth.ClientSecretPost(key)];

const answers = [];
for (const [i, token] of tokens.entries()) {
  const response = await oauth.introspectionRequest(server, client, ways[i % ways.length], token, {
    [oauth.allowInsecureRequests]: true, // on this machine
    additionalParameters: { token_type_hint: 'access_token' },
  });
  answers.push(await oauth.processIntrospectionResponse(server, client, response));
}
console.log(JSON.stringify(answers));
