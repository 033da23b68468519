// Signs up two users, one by phone and one by email, as docs/backends.md describes. The
// parts after "log in" belong to the app, and are here so that you can try it:
//
//     ACCOUNTS_API=… ACCOUNTS_KEY=… AUTH_API=… API_KEY=… node signup.mjs
import { randomUUID } from 'node:crypto'
import { createInterface } from 'node:readline'

const { ACCOUNTS_API, ACCOUNTS_KEY, AUTH_API, API_KEY, SIGN_UP_ID } = process.env
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

// Sends an object and returns the answer. If none comes, it sends the same again: with the
// same key, nothing is done twice within a minute.
async function post(url, idempotencyKey, headers, body = {}, tries = 2) {
  let response, text
  try {
    response = await fetch(url, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json', 'Idempotency-Key': idempotencyKey, ...headers },
      body: JSON.stringify(body),
      signal: AbortSignal.timeout(40_000), // answers can take 30 s
    })
    text = await response.text()
  } catch (error) {
    if (tries === 1) throw error
    await new Promise((resume) => setTimeout(resume, 1000))
    return post(url, idempotencyKey, headers, body, tries - 1)
  }
  const answer = JSON.parse(text)
  if (!response.ok) throw new Error(`${url}: ${response.status} ${JSON.stringify(answer)}`)
  return answer
}

async function ask(what) {
  console.log(what)
  return (await lines.next()).value
}

const company = `${ACCOUNTS_API}/acme`
const backend = { Authorization: `Bearer ${ACCOUNTS_KEY}` }

// Sends a code to a phone or email, and exchanges the code for a proof that the user has
// read it there.
async function proofOf(id, contact) {
  const { contact_token } = await post(`${company}/contacts`, id, backend, contact)
  const code = await ask('contact code')
  // Its key has the code, because the answer to a wrong one is kept. A key has no spaces.
  const { proof } = await post(`${company}/contacts/confirm`, `${id}-${encodeURIComponent(code)}`, backend, { contact_token, code })
  return proof
}

// Creates an account with a phone or an email, which is the backend's part. The address is
// the user's, because mnemogate limits the messages for each. A backend that crashed calls
// it again with the same id, which it had stored before. It takes a new one if the code or
// the proof has expired, or if the user wants another code.
async function signUp(id, mnemocode, { phone, email, address }) {
  const accounts = `${company}/accounts`
  if (phone) {
    const phone_proof = await proofOf(id, { phone, address })
    await post(accounts, id, backend, { profile_mnemocode: mnemocode, primary_phone: phone, phone_proof, must_set_password: true })
    return
  }
  const email_proof = await proofOf(id, { email, address })
  await post(accounts, id, backend, { profile_mnemocode: mnemocode, primary_email: email, email_proof })
  await post(`${accounts}/${encodeURIComponent(mnemocode)}/welcome`, id, backend)
}

// Calls a route of the auth API with the newest token.
function step(route, token, body) {
  const authorization = token ? { Authorization: `Bearer ${token}` } : {}
  return post(`${AUTH_API}/acme/v2/auth/${route}`, randomUUID(), { 'X-Api-Key': API_KEY, ...authorization }, body)
}

// Returns the codes of the disclaimers that the app shows and the user accepts.
const accepted = (login) => login.disclaimers_required.map(({ code }) => code)

const new_password = 'a fine new secret'

const id = SIGN_UP_ID ?? randomUUID() // the test of this program kills it, and starts it again with the same id
await signUp(`${id}-erin`, 'erin-0005', { phone: '+37060000005', address: '192.0.2.5' })
await signUp(`${id}-frank`, 'frank-0006', { email: 'frank@example.com', address: '192.0.2.6' })

const login = await step('login', null, { login_id: '+37060000005' }) // log in
const checked = await step('checkotp', login.session_token, { otp: await ask('code'), accept_disclaimers: accepted(login) })
const set = await step('setpassword', checked.session_token, { new_password })
console.log(set.session_state, set.profile_mnemocode)

const link = await step('recovery/checklink', null, { token: await ask('link') }) // log in
await step('setpassword', link.session_token, { new_password })
const back = await step('login', null, { login_id: 'frank@example.com' })
const there = await step('checkpassword', back.session_token, { password: new_password, accept_disclaimers: accepted(back) })
console.log(there.session_state, there.profile_mnemocode)
process.exit()
