// Does what docs/backends.md describes of the accounts API and of issued tokens, and says
// what came of it. APP is where Caddy serves your application:
//
//     ACCOUNTS_API=… ACCOUNTS_KEY=… SIGNUP_KEY=… SUPPORT_KEY=… APP=… node accounts.mjs erin
const { ACCOUNTS_API, ACCOUNTS_KEY, SIGNUP_KEY, SUPPORT_KEY, APP } = process.env
const [, , name] = process.argv
const segment = encodeURIComponent // of a path: a name or subject can have a slash
const send = (url, request) => fetch(url, { signal: AbortSignal.timeout(40_000), ...request }) // answers can take 30 s, those of an export or import longer

// Calls the accounts API. An object is sent as JSON, anything else as it is.
async function call(method, path, body, { key = ACCOUNTS_KEY, ...headers } = {}) {
  if (body?.constructor === Object) [body, headers['Content-Type']] = [JSON.stringify(body), 'application/json']
  const response = await send(`${ACCOUNTS_API}/acme/${path}`, { method, body, headers: { Authorization: `Bearer ${key}`, ...headers } })
  const text = await response.text()
  const isJSON = response.headers.get('Content-Type') === 'application/json'
  return { status: response.status, etag: response.headers.get('ETag'), body: isJSON ? JSON.parse(text) : text }
}

// Sends a request to the application with an issued token.
async function visit(token, path, method = 'GET') {
  const response = await send(APP + path, { method, headers: { Authorization: `Bearer ${token}` } })
  return { status: response.status, text: await response.text() }
}

// Asks again until the answer is not undefined: other nodes learn of a change within 100 ms.
async function until(ask) {
  for (;;) {
    const answer = await ask()
    if (answer !== undefined) return answer
    await new Promise((resume) => setTimeout(resume, 50))
  }
}

// Changes an account from what it was when it was read. If somebody else was faster, it
// reads it anew.
async function change(path, edit) {
  for (const tried = []; ; ) {
    const { status: found, etag, body } = await call('GET', path)
    if (found !== 200) return [...tried, found]
    const { status } = await call('PATCH', path, await edit(body), { 'If-Match': etag })
    tried.push(status)
    if (status !== 412) return tried
  }
}

// A key with the right create, for sign-ups, can do nothing else.
const account = `accounts/${segment(name)}`
const signUp = { key: SIGNUP_KEY }
const created = await call('POST', 'accounts', { profile_mnemocode: name, role: 'staff' }, signUp)
console.log('sign-up', created.status, (await call('GET', account, undefined, signUp)).status, (await call('DELETE', account, undefined, signUp)).status)

const tried = await change(account, async ({ role, locale }) => {
  if (!locale) await call('PATCH', account, { locale: 'lt' }) // somebody else, between reading and changing
  return { role: `${role} ${locale}` }
})
console.log('change', ...tried, (await call('GET', account)).body.role)
console.log('change nobody', ...(await change('accounts/nobody', () => ({}))))

// The user of an OAuth provider.
const subject = `a/b ü+% ${name}`
const found = async () => (await call('GET', `accounts?${new URLSearchParams({ provider_id: 1, subject })}`)).body.accounts.length
const bound = await call('PUT', `${account}/identities/1/${segment(subject)}`)
console.log('identity', bound.status, await found(), (await call('DELETE', `${account}/identities/1/${segment(subject)}`)).status, await found())

// Pages are full, however few of the accounts pass the filters.
let since
for (let i = 0; i < 7; i++) {
  const { body } = await call('POST', 'accounts', { profile_mnemocode: `${name}-${i}`, role: name, password: i === 3 ? 'a fine new secret' : null })
  if (i === 1) since = body.updated_at
}
const pages = []
for (let after; pages.length === 0 || after; ) {
  const query = new URLSearchParams({ role: name, status: 'active', password_set: false, updated_since: since, limit: 2, ...(after && { after }) })
  const { body } = await call('GET', `accounts?${query}`)
  pages.push(body.accounts.length)
  after = body.next
}
console.log('pages', ...pages)

// A token for a program that reads reports.
const { status: issued, body: token } = await call('POST', `${account}/tokens`, { name: 'nightly', paths: ['/reports/*'], methods: ['GET'], expires_in: 3600 })
const refused = await visit(token.token, '/orders')
const { reason, ref } = JSON.parse(refused.text)
console.log('token', issued, (await visit(token.token, '/reports/1')).status, (await visit(token.token, '/reports/1', 'POST')).status, refused.status, reason)

// Support finds the refusal by the ref that the program got.
const [event] = await until(async () => {
  const { events } = (await call('GET', `history?ref=${ref}`)).body
  return events.length > 0 ? events : undefined
})
console.log('ref', event.event, event.profile_mnemocode, event.reason)

// A service that is not behind mnemogate asks whether a token is valid, as a client of OAuth.
const basic = { Authorization: `Basic ${btoa(`stats:${encodeURIComponent(ACCOUNTS_KEY)}`)}` }
const byBasic = (token) => call('POST', 'introspect', new URLSearchParams({ token }), basic)
const byPost = async (token) =>
  (await send(`${ACCOUNTS_API}/acme/introspect`, { method: 'POST', body: new URLSearchParams({ token, client_id: 'stats', client_secret: ACCOUNTS_KEY }) })).json()
const claims = [(await byBasic(token.token)).body, await byPost(token.token)]
console.log('introspect', ...claims.flatMap(({ active, sub, token: id, amr }) => [active, sub, id === token.id, ...amr]))

const revoked = await call('DELETE', `${account}/tokens/${token.id}`)
console.log('revoke', revoked.status, (await byBasic(token.token)).body.active)
await until(async () => ((await visit(token.token, '/reports/1')).status === 401 ? true : undefined))

// Support acts as the user. The application learns who that is.
const support = { key: SUPPORT_KEY }
const { status: acting, body: act } = await call('POST', `${account}/tokens`, { actor: 'Anna Ö', reason: 'ticket 4711', paths: ['/*'], methods: ['GET'] }, support)
const [, actor] = /^X-Profile-Actor: (.*)$/m.exec((await visit(act.token, '/orders')).text)
const listed = (await call('GET', `${account}/tokens`, undefined, support)).body.tokens
console.log('support', acting, decodeURIComponent(actor.trim()), (await byBasic(act.token)).body.act.sub, ...listed.map(({ reason }) => reason))

// Accounts move with their passkeys. Here one leaves and comes back.
const exported = async () => (await call('GET', 'export')).body.split('\n').find((line) => line.includes(`"${name}-moves"`))
const line = await exported()
const deleted = await call('DELETE', `${account}-moves`)
const counts = JSON.parse((await call('POST', 'import', `${line}\n`, { 'Content-Type': 'application/x-ndjson' })).body)
console.log('move', deleted.status, counts.created, JSON.parse(line).passkeys.length, (await exported()) === line)
