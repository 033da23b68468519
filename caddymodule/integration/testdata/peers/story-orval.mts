// The client that orval makes of the documents, as ./accounts.ts and ./auth.ts.
import * as api from './accounts.js';
import { checkpassword, logout } from './auth.js';
import { ACCOUNTS_KEY, SIGNUP_KEY, SUPPORT_KEY, actorIn, basic, bearer, form, moving, name, subject, until, visit } from './story.mjs';

export async function neverCalled() {
  await checkpassword('acme', { password: 'correct horse battery' }, { headers: { 'X-Api-Key': 'key' } });
  await logout('acme', { headers: { 'X-Api-Key': 'key' } });
  // @ts-expect-error: it has no body before the options
  await logout('acme', {}, { headers: { 'X-Api-Key': 'key' } });
}

// done returns the answer of a request that succeeded.
function done<T extends { status: number }, S extends T['status']>(answer: T, status: S) {
  if (answer.status !== status) throw new Error(JSON.stringify(answer));
  return answer as Extract<T, { status: S }>;
}

const path = encodeURIComponent; // orval encodes no paths

const signUp = { headers: bearer(SIGNUP_KEY) };
const created = await api.createAccount('acme', { profile_mnemocode: name, role: 'staff' }, {}, signUp);
console.log('sign-up', created.status, (await api.showAccount('acme', path(name), signUp)).status, (await api.deleteAccount('acme', path(name), signUp)).status);

const tried: number[] = [];
do {
  const { data, headers } = done(await api.showAccount('acme', path(name)), 200);
  if (!data.locale) await api.changeAccount('acme', path(name), { locale: 'lt' });
  const changed = await api.changeAccount('acme', path(name), { role: `${data.role} ${data.locale}` }, {}, { headers: { 'If-Match': headers.get('ETag')! } });
  tried.push(changed.status);
} while (tried.at(-1) === 412);
console.log('change', ...tried, done(await api.showAccount('acme', path(name)), 200).data.role);
console.log('change nobody', (await api.showAccount('acme', 'nobody')).status);

const found = async () => done(await api.listAccounts('acme', { provider_id: 1, subject }), 200).data.accounts.length;
const bound = await api.addIdentity('acme', path(name), 1, path(subject));
console.log('identity', bound.status, await found(), (await api.removeIdentity('acme', path(name), 1, path(subject))).status, await found());

let updated_since: string | undefined;
for (let i = 0; i < 7; i++) {
  const { data } = done(await api.createAccount('acme', { profile_mnemocode: `${name}-${i}`, role: name, password: i === 3 ? 'a fine new secret' : null }), 201);
  if (i === 1) updated_since = data.updated_at;
}
const pages: number[] = [];
for (let after: string | undefined; pages.length === 0 || after; ) {
  const { data } = done(await api.listAccounts('acme', { role: name, status: 'active', password_set: false, updated_since, limit: 2, after }), 200);
  pages.push(data.accounts.length);
  after = data.next;
}
console.log('pages', ...pages);

const issued = done(await api.issueToken('acme', path(name), { name: 'nightly', paths: ['/reports/*'], methods: ['GET'], expires_in: 3600 }), 201);
const token = issued.data;
const refused = await visit(token.token, '/orders');
const { reason, ref } = JSON.parse(refused.text);
console.log('token', issued.status, (await visit(token.token, '/reports/1')).status, (await visit(token.token, '/reports/1', 'POST')).status, refused.status, reason);

const event = await until(async () => done(await api.findRef('acme', { ref }), 200).data.events[0]);
console.log('ref', event.event, event.profile_mnemocode, event.reason);

const byBasic = async (token: string) => done(await api.introspect('acme', { token }, { headers: { ...basic, ...form } }), 200).data;
const byPost = async (token: string) => done(await api.introspect('acme', { token, client_secret: ACCOUNTS_KEY }, { headers: { Authorization: '', ...form } }), 200).data;
const claims = [await byBasic(token.token!), await byPost(token.token!)];
console.log('introspect', ...claims.flatMap(({ active, sub, token: id, amr }) => [active, sub, id === token.id, ...amr!]));

const revoked = await api.removeToken('acme', path(name), token.id);
console.log('revoke', revoked.status, (await byBasic(token.token!)).active);
await until(async () => (await visit(token.token, '/reports/1')).status === 401);

const support = { headers: bearer(SUPPORT_KEY) };
const acting = done(await api.issueToken('acme', path(name), { actor: 'Anna Ö', reason: 'ticket 4711', paths: ['/*'], methods: ['GET'] }, support), 201);
const actor = actorIn((await visit(acting.data.token, '/orders')).text);
const { tokens } = done(await api.listTokens('acme', path(name), support), 200).data;
console.log('support', acting.status, actor, (await byBasic(acting.data.token!)).act!.sub, ...tokens.map(({ reason }) => reason));

// To orval, lines are a stream, but ./request.ts returns them as a text.
const text = (answer: unknown) => (answer as { data: string }).data;
const exported = async () => moving(text(await api.exportAccounts('acme')));
const line = await exported();
const deleted = await api.deleteAccount('acme', path(`${name}-moves`));
const counts = JSON.parse(text(await api.importAccounts('acme', `${line}\n`)));
console.log('move', deleted.status, counts.created, JSON.parse(line).passkeys.length, (await exported()) === line);
