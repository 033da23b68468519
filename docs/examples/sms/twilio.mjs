// Sends mnemogate's SMS through Twilio, as docs/webhooks.md describes. It needs the package
// standardwebhooks and these variables: PORT, the SMS_SECRET of `sms webhook`, and Twilio's
// ACCOUNT_SID, AUTH_TOKEN and FROM (a number of yours).
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { Webhook } from 'standardwebhooks'

const { PORT, SMS_SECRET, ACCOUNT_SID, AUTH_TOKEN, FROM, TWILIO = 'https://api.twilio.com' } = process.env
const webhook = new Webhook(SMS_SECRET)
const taken = new Set() // ids of the last 15 minutes, because mnemogate may repeat a notice

// What no other gateway should change: the phone is invalid, in a country that you have not
// enabled at Twilio, refuses SMS from here, or gets none.
const final = [21211, 21408, 21610, 21614, 21635]

// send returns the status for mnemogate and, if Twilio is too busy, when to try again.
async function send({ to, text, expires_at }) {
  const message = new URLSearchParams({ To: to, From: FROM, Body: text })
  // By default, Twilio delivers it up to 10 hours later, perhaps after newer codes.
  if (expires_at) message.set('ValidityPeriod', Math.max(1, Math.ceil((Date.parse(expires_at) - Date.now()) / 1000)))
  const response = await fetch(`${TWILIO}/2010-04-01/Accounts/${ACCOUNT_SID}/Messages.json`, {
    method: 'POST',
    headers: { authorization: 'Basic ' + Buffer.from(`${ACCOUNT_SID}:${AUTH_TOKEN}`).toString('base64') },
    body: message,
    signal: AbortSignal.timeout(4000), // mnemogate waits 5 s
  })
  if (response.ok) return { status: 204 }
  const { code } = await response.json().catch(() => ({}))
  console.error(`Twilio answered ${response.status}, error ${code}`) // its message has the phone
  if (response.status === 429) return { status: 429, wait: response.headers.get('retry-after') }
  return { status: final.includes(code) ? 422 : 502 }
}

createServer(async (request, response) => {
  let body
  try {
    if (!(request.headers['content-length'] < 1e6)) throw new Error('too long') // mnemogate always says how long
    body = await text(request)
    webhook.verify(body, request.headers)
  } catch {
    return response.writeHead(401, { connection: 'close' }).end()
  }
  const id = request.headers['webhook-id']
  const { status, wait } = taken.has(id) ? { status: 204 } : await send(JSON.parse(body)).catch(() => ({ status: 502 }))
  if (status === 204) setTimeout(() => taken.delete(id), 9e5, taken.add(id)).unref()
  response.writeHead(status, wait ? { 'retry-after': wait } : {}).end()
}).listen(PORT)
