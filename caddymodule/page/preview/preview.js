// It answers the requests of a page in the preview and does what the user would do.
import { scenes } from './scenes.js';

const [, , name] = location.pathname.split('/');
const scene = scenes[name];
const base = new URL('.', location.href).href.replace(/\/$/, '');

// All frames share the storage of the browser, so each scene has its own.
for (const storage of ['sessionStorage', 'localStorage']) {
  const kept = new Map();
  Object.defineProperty(globalThis, storage, { value: {
    getItem: (key) => kept.get(key) ?? null, setItem: (key, value) => kept.set(key, value), removeItem: (key) => kept.delete(key),
  } });
}
if (scene.session && !scene.cookie) sessionStorage.setItem(`mnemogate ${base}`, JSON.stringify({ token: 'preview', loginId: scene.loginId }));
sessionStorage.setItem('mnemogate-page sent', Date.now());
sessionStorage.setItem(`mnemogate ${base} oauth`, JSON.stringify({ state: 's', providerId: 1, redirectUri: base }));

Object.defineProperty(globalThis, 'isSecureContext', { value: true }); // a preview may be looked at from another machine

addEventListener('beforeunload', (event) => event.stopImmediatePropagation()); // nothing is lost with a preview

// Frames must not take the focus from each other or scroll the page around them, and they
// share one history.
if (self !== top) {
  Element.prototype.scrollIntoView = () => {};
  HTMLElement.prototype.focus = () => {};
  Object.defineProperty(globalThis, 'history', { value: { state: null, pushState() {}, replaceState() {}, go() {} } });
}

// The browser asks the scene for a passkey.
let asked;
globalThis.PublicKeyCredential = { parseRequestOptionsFromJSON: (options) => options, parseCreationOptionsFromJSON: (options) => options, isConditionalMediationAvailable: async () => true, isUserVerifyingPlatformAuthenticatorAvailable: async () => true };
Object.defineProperty(navigator, 'credentials', { value: {
  get: () => new Promise((resolve, reject) => { asked = { resolve, reject }; }),
  create: async () => { throw new DOMException('', 'NotAllowedError'); }, // the user cancels
} });

const usual = {
  'auth/login': { session_state: 'checkpassword', session_token: 'preview' },
  'auth/checkpassword': { session_state: 'checkotp', session_token: 'preview', user_phone: '+37*******34', second_factors: ['sms', 'backup'] },
  'auth/checkotp': { session_state: 'setpassword', session_token: 'preview', password_regex: null },
  'auth/renewotp': { user_phone: '+37*******34' },
  'auth/recovery/recover': { session_state: 'recovery-checkotp', session_token: 'preview', user_phone: '+37*******34' },
  'auth/recovery/checkotp': { session_state: 'recovery-setpassword', session_token: 'preview', password_regex: null },
  'passkey/options': { challenge_token: 'preview', public_key: {} },
  'me/passkeys/options': { challenge_token: 'preview', public_key: {} },
  'captcha': { challenge: 'preview', bits: 8 },
};

const file = document.querySelector('script[src*="/v2/page/"]').src; // the other files are next to it

const real = globalThis.fetch;
globalThis.fetch = async (input, init = {}) => {
  const address = String(input);
  const route = address.startsWith(`${base}/v2/`) && address.slice(base.length + 4);
  if (!route || route.startsWith('page/')) return real(input, init);
  if (route === 'client.json') return json(await configOf(init));
  if (route === 'session' && init.method === 'GET') return json((init.headers.Authorization || scene.cookie) && next(scene.session) || { status: 401, error_code: 'auth.header.missing' });
  const answer = next(scene.answers?.[route] ?? usual[route] ?? { status: 'success' });
  if (answer === 'network') throw new TypeError('offline');
  return json(answer.session_state ? { expires_in: 600, ...answer } : answer);
};

// next returns the answer to a request. Several are a list, of which the last one stays.
const next = (answer) => Array.isArray(answer) ? answer.length > 1 ? answer.shift() : answer[0] : answer;

async function configOf(init) {
  return {
    name: document.querySelector('main').dataset.title || 'Example', otp: { length: 6, ttl: 300 },
    password: { min_length: 8, regex: null, description: '', regex_description: name === 'newpassword-pattern' ? 'At least one digit.' : undefined },
    captcha: { type: 'pow', bits: 8 }, recovery: ['PHONE', 'MAIL', 'QUESTION'], disclaimers: [], session: { idle: 3600, lifetime: 86400 },
    oauth: [{ provider_id: 1, name: 'Example', authorize_url: 'https://id.example.com/', client_id: 'preview', scope: 'openid', pkce: true, icon: new URL('icon.svg', file).href }],
    ...await (await real('/config', { headers: init.headers })).json(), ...scene.config,
  };
}

const json = ({ retry, ...body }) => {
  const status = typeof body.status === 'number' ? body.status : 200;
  return new Response(JSON.stringify({ ...body, status: status < 400 ? 'success' : 'error' }), { status, headers: retry ? { 'Retry-After': retry } : {} });
};

// settled waits until the page is idle.
async function settled() {
  for (let idle = 0; idle < 3;) {
    await new Promise((resume) => setTimeout(resume, 10));
    idle = document.querySelector('#screen:not([aria-busy])') && !document.querySelector('.main.busy') ? idle + 1 : 0;
  }
}

const doing = {
  enter(where, text) {
    const input = document.getElementById(where);
    input.value = text;
    input.dispatchEvent(new Event('input'));
  },
  async passkey(answer) {
    while (!asked) await new Promise((resume) => setTimeout(resume, 10));
    if (answer === 'given') return asked.resolve({ toJSON: () => ({}) });
    await new Promise((resume) => setTimeout(resume, 1000)); // nobody cancels a dialog faster
    asked.reject(new DOMException('', 'NotAllowedError'));
  },
  open() { document.querySelector('details').open = true; },
  provider() { document.querySelector('#screen .stack .other').click(); },
  submit() { document.querySelector('#screen .main').click(); },
  async choose(key) {
    const { t } = await import(new URL('texts.js', file));
    [...document.querySelectorAll('#screen button')].find((button) => button.textContent === t(key)).click();
  },
};

await settled();
for (const [what, ...where] of scene.act ?? []) {
  await doing[what](...where);
  await settled();
}
document.documentElement.dataset.preview = 'done';
