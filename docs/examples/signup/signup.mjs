// Signs up two users, one by phone and one by email, as docs/backends.md describes. The
// parts after "log in" belong to the app, and are here so that you can try it:
//
//     ACCOUNTS_API=… ACCOUNTS_KEY=… AUTH_API=… API_KEY=… node signup.mjs
import { createInterface } from 'node:readline'

const { ACCOUNTS_API, ACCOUNTS_KEY, AUTH_API, API_KEY } = process.env
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

async function post(url, headers, body = {}) {
  const response = await fetch(url, {
    method: 'POST',
    headers: { 'Content-Type': 'application/json', ...headers },
    body: JSON.stringify(body),
  })
  const answer = await response.json()
  if (!response.ok) throw new Error(`${url}: ${response.status} ${JSON.stringify(answer)}`)
  return answer
}

async function ask(what) {
  console.log(what)
  return (await lines.next()).value
}

// Creates an account with a phone or an email, which is the backend's part.
async function signUp(mnemocode, { phone, email }) {
  const accounts = `${ACCOUNTS_API}/acme/accounts`
  const key = { Authorization: `Bearer ${ACCOUNTS_KEY}` }
  if (phone) {
    await post(accounts, key, { profile_mnemocode: mnemocode, primary_phone: phone, must_set_password: true })
    return
  }
  await post(accounts, key, { profile_mnemocode: mnemocode, primary_email: email })
  await post(`${accounts}/${mnemocode}/welcome`, key)
}

// Calls a route of the auth API with the newest token.
function step(route, token, body) {
  const authorization = token ? { Authorization: `Bearer ${token}` } : {}
  return post(`${AUTH_API}/acme/v2/auth/${route}`, { 'X-Api-Key': API_KEY, ...authorization }, body)
}

// Returns the codes of the disclaimers that the app shows and the user accepts.
const accepted = (login) => login.disclaimers_required.map(({ code }) => code)

const new_password = 'a fine new secret'

await signUp('erin-0005', { phone: '+37060000005' })
const login = await step('login', null, { login_id: '+37060000005' }) // log in
const checked = await step('checkotp', login.session_token, { otp: await ask('code'), accept_disclaimers: accepted(login) })
const set = await step('setpassword', checked.session_token, { new_password })
console.log(set.session_state, set.profile_mnemocode)

await signUp('frank-0006', { email: 'frank@example.com' })
const link = await step('recovery/checklink', null, { token: await ask('link') }) // log in
await step('setpassword', link.session_token, { new_password })
const back = await step('login', null, { login_id: 'frank@example.com' })
const there = await step('checkpassword', back.session_token, { password: new_password, accept_disclaimers: accepted(back) })
console.log(there.session_state, there.profile_mnemocode)
process.exit()
