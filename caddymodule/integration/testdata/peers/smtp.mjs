// A mail server for the tests. Its only argument is JSON: certificate and key
// in PEM, and the name and password to log in with. It says its ports on
// standard output (smtp speaks STARTTLS, smtps TLS at once) and ends with its
// standard input. GET / on the port http answers the mails as postal-mime reads
// them. A recipient reject@ is refused, one late@ only after the mail was read.
import { createServer } from 'node:http';
import { buffer } from 'node:stream/consumers';
import PostalMime from 'postal-mime';
import { SMTPServer } from 'smtp-server';

const { cert, key, username, password } = JSON.parse(process.argv[2]);
process.stdin.on('end', () => process.exit()).resume();

const mails = [];

function newServer(secure) {
  const server = new SMTPServer({ secure, cert, key, disableReverseLookup: true, onAuth, onRcptTo, onData });
  server.on('error', (error) => console.error(error.message)); // of a client, too
  return server;
}

function onAuth(auth, _, done) {
  const known = auth.username === username && auth.password === password;
  done(known ? null : refusal(535, 'Who are you?'), { user: username });
}

function onRcptTo({ address }, _, done) {
  done(address.startsWith('reject@') ? refusal(550, 'No such user') : null);
}

async function onData(stream, session, done) {
  const { mailFrom, rcptTo } = session.envelope;
  mails.push({
    ...(await PostalMime.parse(await buffer(stream))),
    method: session.transmissionType, // RFC 3848: ESMTPSA is with TLS and a login
    sender: mailFrom.address,
    recipients: rcptTo.map((to) => to.address),
  });
  done(rcptTo.some((to) => to.address.startsWith('late@')) ? refusal(451, 'Not now') : null);
}

function refusal(responseCode, message) {
  return Object.assign(new Error(message), { responseCode });
}

function listen(server) {
  return new Promise((resolve) => {
    const listener = server.listen(0, '127.0.0.1', () => resolve(listener.address().port));
  });
}

console.log(JSON.stringify({
  smtp: await listen(newServer(false)),
  smtps: await listen(newServer(true)),
  http: await listen(createServer((_, response) => response.end(JSON.stringify(mails)))),
}));
