// A client with the types that openapi-typescript makes of the document, as ./schema.ts.
import createClient from 'openapi-fetch';
import type { paths, webhooks } from './schema.js';
import { ACCOUNTS_API, ACCOUNTS_KEY, SIGNUP_KEY, SUPPORT_KEY, actorIn, basic, bearer, form, lines, moving, name, subject, until, visit } from './story.mjs';

const api = createClient<paths>({ baseUrl: ACCOUNTS_API, headers: bearer(ACCOUNTS_KEY) });
const company = 'acme';
const account = { company, mnemocode: name };
const one = { params: { path: account } };
const signUp = { headers: bearer(SIGNUP_KEY) };
const support = { headers: bearer(SUPPORT_KEY) };

const created = await api.POST('/{company}/accounts', { params: { path: { company } }, body: { profile_mnemocode: name, role: 'staff' }, ...signUp });
const [shown, gone] = [await api.GET('/{company}/accounts/{mnemocode}', { ...one, ...signUp }), await api.DELETE('/{company}/accounts/{mnemocode}', { ...one, ...signUp })];
console.log('sign-up', created.response.status, shown.response.status, gone.response.status);

const tried: number[] = [];
do {
  const { data, response } = await api.GET('/{company}/accounts/{mnemocode}', one);
  if (!data!.locale) await api.PATCH('/{company}/accounts/{mnemocode}', { ...one, body: { locale: 'lt' } });
  const changed = await api.PATCH('/{company}/accounts/{mnemocode}', {
    params: { path: account, header: { 'If-Match': response.headers.get('ETag')! } },
    body: { role: `${data!.role} ${data!.locale}` },
  });
  tried.push(changed.response.status);
} while (tried.at(-1) === 412);
console.log('change', ...tried, (await api.GET('/{company}/accounts/{mnemocode}', one)).data!.role);
console.log('change nobody', (await api.GET('/{company}/accounts/{mnemocode}', { params: { path: { company, mnemocode: 'nobody' } } })).response.status);

const identity = { params: { path: { ...account, provider_id: 1, subject } } };
const found = async () => (await api.GET('/{company}/accounts', { params: { path: { company }, query: { provider_id: 1, subject } } })).data!.accounts.length;
const bound = await api.PUT('/{company}/accounts/{mnemocode}/identities/{provider_id}/{subject}', identity);
const before = await found();
const unbound = await api.DELETE('/{company}/accounts/{mnemocode}/identities/{provider_id}/{subject}', identity);
console.log('identity', bound.response.status, before, unbound.response.status, await found());

let updated_since: string | undefined;
for (let i = 0; i < 7; i++) {
  const body = { profile_mnemocode: `${name}-${i}`, role: name, password: i === 3 ? 'a fine new secret' : null };
  const { data } = await api.POST('/{company}/accounts', { params: { path: { company } }, body });
  if (i === 1) updated_since = data!.updated_at;
}
const pages: number[] = [];
for (let after: string | undefined; pages.length === 0 || after; ) {
  const query = { role: name, status: 'active' as const, password_set: false, updated_since, limit: 2, after };
  const { data } = await api.GET('/{company}/accounts', { params: { path: { company }, query } });
  pages.push(data!.accounts.length);
  after = data!.next;
}
console.log('pages', ...pages);

const issued = await api.POST('/{company}/accounts/{mnemocode}/tokens', { ...one, body: { name: 'nightly', paths: ['/reports/*'], methods: ['GET'], expires_in: 3600 } });
const token = issued.data!;
const refused = await visit(token.token, '/orders');
const { reason, ref } = JSON.parse(refused.text);
console.log('token', issued.response.status, (await visit(token.token, '/reports/1')).status, (await visit(token.token, '/reports/1', 'POST')).status, refused.status, reason);

const event = await until(async () => (await api.GET('/{company}/history', { params: { path: { company }, query: { ref } } })).data!.events[0]);
console.log('ref', event.event, event.profile_mnemocode, event.reason);

const at = { params: { path: { company } } };
const byBasic = async (token: string) => (await api.POST('/{company}/introspect', { ...at, body: { token }, headers: { ...basic, ...form } })).data!;
const byPost = async (token: string) =>
  (await api.POST('/{company}/introspect', { ...at, body: { token, client_secret: ACCOUNTS_KEY }, headers: { Authorization: null, ...form } })).data!;
const claims = [await byBasic(token.token!), await byPost(token.token!)];
console.log('introspect', ...claims.flatMap(({ active, sub, token: id, amr }) => [active, sub, id === token.id, ...amr!]));

const revoked = await api.DELETE('/{company}/accounts/{mnemocode}/tokens/{token}', { params: { path: { ...account, token: token.id } } });
console.log('revoke', revoked.response.status, (await byBasic(token.token!)).active);
await until(async () => (await visit(token.token, '/reports/1')).status === 401);

const acting = await api.POST('/{company}/accounts/{mnemocode}/tokens', {
  ...one, ...support, body: { actor: 'Anna Ö', reason: 'ticket 4711', paths: ['/*'], methods: ['GET'] },
});
const actor = actorIn((await visit(acting.data!.token, '/orders')).text);
const { tokens } = (await api.GET('/{company}/accounts/{mnemocode}/tokens', { ...one, ...support })).data!;
console.log('support', acting.response.status, actor, (await byBasic(acting.data!.token!)).act!.sub, ...tokens.map(({ reason }) => reason));

const exported = async () => moving((await api.GET('/{company}/export', { ...at, parseAs: 'text' })).data!);
const line = await exported();
const deleted = await api.DELETE('/{company}/accounts/{mnemocode}', { params: { path: { company, mnemocode: `${name}-moves` } } });
const imported = await api.POST('/{company}/import', { ...at, body: `${line}\n`, bodySerializer: (body) => body, headers: lines, parseAs: 'text' });
console.log('move', deleted.response.status, JSON.parse(imported.data!).created, JSON.parse(line).passkeys.length, (await exported()) === line);

// What a receiver gets has types, too.
type Told<T extends keyof webhooks> = NonNullable<webhooks[T]['post']['requestBody']>['content']['application/json'];
export const changes = ({ data }: Told<'account.changed'>) => [data.company_code, data.profile_mnemocode, data.previous_mnemocode, ...data.fields];
// @ts-expect-error: this event has no fields
export const none = ({ data }: Told<'account.deleted'>) => data.fields;
