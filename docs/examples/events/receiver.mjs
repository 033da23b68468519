// Receives mnemogate's events, as docs/backends.md describes. It needs the package
// standardwebhooks and these variables: PORT, and the EVENTS_SECRET of `events webhook`.
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { Webhook } from 'standardwebhooks'

const webhook = new Webhook(process.env.EVENTS_SECRET)
const known = new Set() // of the webhook-ids of three days; in your database, beside what the event changes there

createServer(async (request, response) => {
  let body
  try {
    if (!(request.headers['content-length'] < 1e6)) throw new Error('too long') // mnemogate always says how long
    body = await text(request)
    webhook.verify(body, request.headers)
  } catch {
    response.writeHead(401, { connection: 'close' }).end()
    return
  }
  const id = request.headers['webhook-id']
  if (!known.has(id)) {
    const { type, data } = JSON.parse(body)
    console.log(type, data.profile_mnemocode)
    known.add(id)
    setTimeout(() => known.delete(id), 3 * 24 * 3600e3).unref()
  }
  response.writeHead(204).end()
}).listen(process.env.PORT)
