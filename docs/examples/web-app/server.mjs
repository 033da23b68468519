// A server-rendered app in plain Node. A framework has loaders and templates instead of
// pages, and calls userOf in the same way (docs/web-apps.md).
import { createServer } from 'node:http';
import { userOf } from './user.mjs';

const escaped = (text) => text.replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

const unloaded = [undefined, 'ERR_JWKS_TIMEOUT', 'ERR_JWKS_INVALID', 'ERR_JOSE_GENERIC']; // if the keys can't be loaded

const pages = {
  '/': (user) => user && `<h1>Hello <b id="user">${escaped(user)}</b></h1><a href="/acme/logout">Log out</a>`,
  '/about': (user) => `<h1>About</h1>${user ? `You are <b id="user">${escaped(user)}</b>.` : '<a href="/">Log in</a>'}`, // public
};

const server = createServer(async (request, response) => {
  response.setHeader('Cache-Control', 'private');
  response.setHeader('Content-Type', 'text/html; charset=utf-8');
  try {
    const page = pages[request.url.split('?')[0]];
    const body = page?.(await userOf(request.headers['x-mnemogate-assertion']));
    response.statusCode = body ? 200 : page ? 403 : 404; // 403 for who has come past mnemogate
    response.end(`<!doctype html><html lang="en"><title>Acme</title><link rel="icon" href="data:,">${body || response.statusCode}`);
  } catch ({ code }) {
    response.writeHead(unloaded.includes(code) ? 503 : 403).end('no valid assertion');
  }
});
server.listen(process.env.PORT ?? 3000, 'localhost', () => console.log(JSON.stringify({ port: server.address().port })));
