// What client.js promises, tried with the module and its types, here as ./client.js
// and ./client.d.ts, and with what docs/clients.md shows of it, as ./shown.mjs. The
// only argument is JSON: the addresses of the nodes, the API key, the password of the
// users, and where the codes, links and logins at the provider are that the outside
// world would see. Requests take turns between the nodes. It says on standard output
// which test is done.
import assert from 'node:assert/strict';
import { connect, MnemogateError } from './client.js';
import type { Authorized, CheckOTP, CheckPassword, Client, Options, SetPassword, Start, Step } from './client.js';
import { logIn } from './shown.mjs';

const { nodes, key, password, outside, issuer } = JSON.parse(process.argv[2]!);

// The browser: cookies of the site, and the header that says where a page is from.

let jar: string | undefined;
let requests: string[] = [];
let broken: ((request: Request) => 'before' | 'behind' | undefined) | undefined; // where the network breaks
let turns = 0;
const real = globalThis.fetch;
globalThis.fetch = async (input, init) => {
  const asked = new Request(input, init);
  const to = asked.url.replace(nodes[0], nodes[turns++ % nodes.length]);
  const headers = new Headers(asked.headers);
  headers.set('Sec-Fetch-Site', 'same-origin');
  if (asked.credentials === 'include' && jar) headers.set('Cookie', jar);
  requests.push(`${asked.method} ${new URL(asked.url).pathname}`);
  const where = broken?.(asked);
  if (where === 'before') throw new TypeError('broken');
  const body = asked.method === 'POST' ? await asked.text() : undefined;
  const answer = await real(to, { method: asked.method, headers, body, signal: asked.signal, redirect: 'error' });
  const set = answer.headers.getSetCookie()[0];
  if (where === 'behind') throw new TypeError('broken');
  if (set && asked.credentials === 'include') jar = set.includes('Max-Age=0') ? undefined : set.split(';')[0];
  return answer;
};

// Tab is a sessionStorage.
class Tab {
  kept = new Map<string, string>();
  getItem(name: string) { return this.kept.get(name) ?? null; }
  setItem(name: string, value: string) { this.kept.set(name, value); }
  removeItem(name: string) { this.kept.delete(name); }
}

const client = (options: Partial<Options> = {}, company = 'acme') => connect({ company: `${nodes[0]}/${company}`, apiKey: key, ...options });
const ask = async (what: string) => (await real(`${outside}/${what}`)).text();
const code = (kind = 'otp.login') => ask(`last?type=${kind}`);

function is<S extends Step['state']>(step: Step | undefined, state: S): Extract<Step, { state: S }> {
  assert.equal(step?.state, state);
  return step as Extract<Step, { state: S }>;
}

async function begin(options: Partial<Options> = {}, company?: string): Promise<Start> {
  return is(await client(options, company).resume(), 'start');
}

// fails awaits an error, and returns it.
async function fails(what: Promise<unknown>, code: MnemogateError['code']): Promise<MnemogateError> {
  try {
    await what;
  } catch (error) {
    assert(error instanceof MnemogateError, String(error));
    assert.equal(error.code, code);
    return error;
  }
  assert.fail(`no ${code}`);
}

const tests: Record<string, () => Promise<void>> = {
  async 'a password'() {
    const start = await begin();
    // @ts-expect-error: nobody is logged in yet
    assert.equal(start.logout, undefined);
    const step = await start.login('alice@example.com');
    // @ts-expect-error: it may be checkotp
    void step.checkPassword;
    const asked = is(step, 'checkpassword');
    // @ts-expect-error: a password, no code
    assert.equal(asked.checkOTP, undefined);
    assert.equal(asked.loginId, 'alice@example.com');
    assert(asked.expiresAt > Date.now() && asked.expiresAt < Date.now() + 601e3);
    const wrong = await fails(asked.checkPassword('not that one'), 'auth.password.invalid');
    // @ts-expect-error: there is no such code
    assert(wrong.code !== 'auth.password.wrong');
    assert.deepEqual([wrong.status, wrong.captchaRequired, wrong.reason, wrong.retryAfter], [401, false, null, null]);
    const missing = await fails(is(wrong.step, 'checkpassword').checkPassword(password), 'auth.disclaimer.invalid');
    const again = is(missing.step, 'checkpassword');
    assert.deepEqual(again.disclaimers.map(({ code }) => code), ['terms', 'privacy']);
    assert.deepEqual(again.disclaimers, missing.disclaimersRequired);
    const alice = is(await again.checkPassword(password, { acceptDisclaimers: ['terms', 'privacy'] }), 'authorized');
    assert.equal(alice.profileMnemocode, 'alice');
    assert.match(alice.headers().Authorization!, /^Bearer mgs_/);
    const answer = await alice.fetch('/profile', { method: 'POST', body: 'hello' });
    assert.match(await answer.text(), /X-Profile-Mnemocode: alice[^]*hello/);
    await assert.rejects(alice.fetch('https://elsewhere.example.com/'), TypeError);
    assert.equal(is(await alice.logout(), 'start').notice, 'logout.done');
    const told = Date.now() + 1000; // the other node, usually within a millisecond
    while ((await alice.fetch(`${nodes[0]}/profile`)).status !== 401) assert(Date.now() < told);
    is(await alice.logout(), 'start'); // it has ended already
  },

  async 'the options of a login page'() {
    const { links, signup, remember } = await client().config();
    assert.deepEqual([links.map(({ text, url }) => text + url), signup?.url, remember], [[], undefined, false]); // there is none
  },

  async 'a password at once'() {
    const start = await begin();
    const wrong = await fails(start.loginWithPassword('alice@example.com', 'wrong'), 'auth.credentials.invalid');
    is(await is(wrong.step, 'start').loginWithPassword('alice@example.com', password), 'authorized');
  },

  async 'a code'() {
    const asked = is(await (await begin()).login('+37060000002'), 'checkotp');
    assert.match(asked.phone!, /02$/);
    assert.equal(asked.codeSpent, false);
    const missing = await fails(asked.checkOTP(await code()), 'auth.disclaimer.invalid');
    const spent = is(missing.step, 'checkotp');
    assert(spent.codeSpent && spent.disclaimers.length === 2);
    const renewed = await spent.renewOTP();
    assert.equal(renewed.notice, 'code.resent');
    assert(!renewed.codeSpent && renewed.disclaimers.length === 2 && renewed.phone === asked.phone);
    const wrong = is((await fails(renewed.checkOTP('000000'), 'auth.otp.invalid')).step, 'checkotp');
    assert(wrong.codeSpent);
    const last = await wrong.renewOTP();
    // @ts-expect-error: there is no such notice
    assert(last.notice !== 'code.lost');
    assert.equal(last.notice, 'code.wrong.resent');
    is(await last.checkOTP(await code(), { acceptDisclaimers: ['terms', 'privacy'] }), 'authorized');
  },

  async 'a known device'() {
    const accepted = { acceptDisclaimers: ['terms', 'privacy'] };
    const logIn = async (options: Partial<Options>) => is(await (await begin(options)).login('kim'), 'checkpassword').checkPassword(password, accepted);
    const { deviceToken } = is(await is(await logIn({ rememberDevice: () => true }), 'checkotp').checkOTP(await code(), accepted), 'authorized');
    assert.match(deviceToken!, /^mgd_/);
    const known = is(await logIn({ deviceToken: deviceToken! }), 'authorized');
    assert.equal(known.deviceToken, null); // nobody has asked for another one
    is(await known.logout(), 'start');
    is(await logIn({ deviceToken: () => deviceToken! }), 'authorized');
    is(await logIn({}), 'checkotp');
  },

  async 'a second factor, a backup code and a new password'() {
    const accepted = { acceptDisclaimers: ['terms', 'privacy'] };
    const asked = is(await (await begin()).login('erin@example.com'), 'checkpassword');
    const second = is(await asked.checkPassword(password, accepted), 'checkotp');
    assert.equal(second.loginId, 'erin@example.com');
    const wrong = is((await fails(second.useBackupCode('AAAAA-AAAAA'), 'auth.backupcode.invalid')).step, 'checkotp');
    assert(!wrong.codeSpent);
    const setting = is(await wrong.useBackupCode(await ask('backup?account=erin')), 'setpassword');
    assert.match(setting.rules.description!, /15|8/);
    const weak = await fails(setting.setPassword('short'), 'request.validation.failed');
    assert.deepEqual([weak.status, weak.reason], [422, 'password.too_short']);
    const same = await fails(is(weak.step, 'setpassword').setPassword(password), 'auth.password.invalid');
    is(await is(same.step, 'setpassword').setPassword('another horse battery'), 'authorized');
  },

  async 'recovery by a code'() {
    const start = await begin();
    await fails(start.recover('frank', { method: 'PHONE' }), 'recovery.phone.notset');
    const asked = is(await start.recover('carol@example.com'), 'recovery-checkotp');
    const wrong = is((await fails(asked.checkOTP('000000'), 'auth.otp.invalid')).step, 'recovery-checkotp');
    assert(wrong.codeSpent);
    const renewed = await wrong.renewOTP();
    assert(renewed.phone === asked.phone && !renewed.codeSpent);
    const setting = await renewed.checkOTP(await code('otp.recovery'));
    const done = await setting.setPassword('a new one for carol');
    assert.equal(is(done, 'passwordset').notice, 'password.set');
    is(await done.login('carol@example.com'), 'checkpassword');
  },

  async 'recovery by a question, out of a login'() {
    const asked = is(await (await begin()).login('alice@example.com'), 'checkpassword');
    const question = is(await asked.recover({ method: 'QUESTION' }), 'recovery-checkquestion');
    assert.equal(question.question, 'Name of your first cat?');
    assert.equal(question.loginId, 'alice@example.com');
    const wrong = is((await fails(question.checkAnswer('Tom'), 'auth.controlanswer.invalid')).step, 'recovery-checkquestion');
    const setting = await wrong.checkAnswer('Whiskers');
    is(await setting.cancel(), 'start');
    assert.notEqual((await fails(setting.setPassword('too late for this'), 'superseded')).step?.state, 'recovery-setpassword');
  },

  async 'recovery by mail'() {
    const tab = new Tab();
    const mailed = is(await (await begin({ storage: tab })).recover('dave@example.com', { method: 'MAIL' }), 'linkmailed');
    assert.match(mailed.email!, /@/);
    assert.equal(tab.kept.size, 0);
    await fails(mailed.checkLink('mgl_nothing'), 'auth.token.invalid');
    const setting = await (await begin()).checkLink(await ask('link'));
    is(await setting.setPassword('a new one for dave'), 'passwordset');
  },

  async 'a provider, and disclaimers'() {
    Object.assign(globalThis, { sessionStorage: new Tab() });
    const at = client();
    const start = is(await at.resume(), 'start');
    const redirectUri = 'https://app.example.com/peerCallback';
    const provider = { providerId: 1, name: 'Provider', authorizeUrl: `${issuer}/auth`, clientId: 'mnemogate', scope: 'openid email', pkce: true, issuer, issRequired: true };
    const leave = () => start.authorize(provider, { redirectUri });
    const asked = new URL(await start.authorize({ ...provider, prompt: 'consent' }, { redirectUri })).searchParams;
    assert.deepEqual([asked.get('code_challenge_method'), asked.get('response_type'), asked.get('prompt')], ['S256', 'code', 'consent']);
    const another = new URL(await start.authorize({ ...provider, prompt: 'consent' }, { redirectUri, prompt: 'login' }));
    assert.equal(another.searchParams.get('prompt'), 'login');
    assert.equal((await fails(start.authorize({ ...provider, authorizeUrl: null }, { redirectUri }), 'service.unavailable')).step, undefined);
    assert.equal(await at.finishOAuth(redirectUri), null);
    assert.equal(await at.finishOAuth(`${redirectUri}?code=x`), null);

    const back = await ask(`provider?at=${encodeURIComponent(await leave())}`);
    const foreign = `${redirectUri}?code=${new URL(back).searchParams.get('code')}&state=another`;
    is((await fails(at.finishOAuth(foreign), 'oauth.state')).step, 'start');
    for (const iss of ['https://evil.example', `${issuer}/`, '', null]) { // the answer of another provider
      const mixed = new URL(await ask(`provider?at=${encodeURIComponent(await leave())}`));
      assert.equal(mixed.searchParams.get('iss'), issuer);
      if (iss === null) mixed.searchParams.delete('iss');
      else mixed.searchParams.set('iss', iss);
      is((await fails(at.finishOAuth(mixed), 'oauth.state')).step, 'start');
      await fails(at.finishOAuth(mixed), 'oauth.state'); // even if it is tried again
    }
    const fresh = await ask(`provider?at=${encodeURIComponent(await leave())}`);
    const accepting = is((await at.finishOAuth(new URL(fresh)))!, 'acceptdisclaimers');
    await fails(at.finishOAuth(fresh), 'oauth.state'); // a code is sent once
    const missing = await fails(accepting.acceptDisclaimers(['terms']), 'auth.disclaimer.invalid');
    const sam = await is(missing.step, 'acceptdisclaimers').acceptDisclaimers(['terms', 'privacy']);
    assert.equal(sam.profileMnemocode, 'sam');

    const refused = async (answer: string, code: 'oauth.denied' | 'oauth.state') => {
      const state = new URL(await leave()).searchParams.get('state');
      return (await fails(at.finishOAuth(`${redirectUri}?${answer}&state=${state}`), code)).message;
    };
    assert.match(await refused(`error=access_denied&iss=${issuer}`, 'oauth.denied'), /access_denied$/);
    assert.match(await refused('error=access_denied', 'oauth.denied'), /access_denied$/); // some providers name themselves beside a code only
    await refused('error=access_denied&iss=https://evil.example', 'oauth.state');
    assert.match(await refused('error_code=4201&error_message=User+canceled', 'oauth.denied'), /4201$/);
    delete (globalThis as { sessionStorage?: unknown }).sessionStorage;
  },

  async 'a reload goes on with each step'() {
    const storage = new Tab();
    const reload = async <S extends Step['state']>(state: S) => is(await client({ storage }).resume(), state);
    await (await reload('start')).login('frank');
    const asked = await reload('checkpassword');
    assert.deepEqual([asked.loginId, asked.disclaimers.length], ['frank', 2]);
    await asked.checkPassword(password, { acceptDisclaimers: ['terms', 'privacy'] });
    const frank = await reload('authorized');
    assert.deepEqual([frank.profileMnemocode, frank.loginId], ['frank', 'frank']);
    await frank.logout();
    assert.equal(storage.kept.size, 0);

    await (await reload('start')).login('+37060000002');
    await fails((await reload('checkotp')).checkOTP('000000'), 'auth.otp.invalid');
    const bob = await (await reload('checkotp')).renewOTP();
    await bob.cancel();
    await (await reload('start')).recover('alice@example.com', { method: 'QUESTION' });
    assert.equal((await reload('recovery-checkquestion')).question, 'Name of your first cat?');
    await (await reload('recovery-checkquestion')).checkAnswer('Whiskers');
    assert.match((await reload('recovery-setpassword')).rules.description!, /./);
    await (await reload('recovery-setpassword')).cancel();
    await (await reload('start')).recover('alice@example.com', { method: 'PHONE' });
    assert.match((await reload('recovery-checkotp')).phone!, /01$/);
    await (await reload('recovery-checkotp')).cancel();
    await reload('start');
  },

  async 'a cookie'() {
    const storage = new Tab();
    const at = client({ cookie: true, storage });
    const asked = is(await is(await at.resume(), 'start').login('frank'), 'checkpassword');
    assert.equal(jar, undefined);
    const frank = is(await asked.checkPassword(password), 'authorized');
    assert.match(String(jar), /^__Host-mnemogate=mgs_/);
    assert.equal(storage.kept.size, 0);
    assert.deepEqual(frank.headers(), {});
    assert(!JSON.stringify(frank).includes('mgs_'));
    assert.match(await (await frank.fetch(`${nodes[0]}/profile`)).text(), /X-Profile-Mnemocode: frank/);
    assert.equal(is(await client({ cookie: true, storage }).resume(), 'authorized').profileMnemocode, 'frank');
    is(await frank.logout(), 'start');
    assert.equal(jar, undefined);
    is(await client({ cookie: true, storage }).resume(), 'start');
    is(await frank.logout(), 'start');
  },

  async 'a cookie whose exchange breaks off'() {
    for (const where of ['before', 'behind'] as const) {
      const storage = new Tab();
      const asked = is(await (await begin({ cookie: true, storage })).login('frank'), 'checkpassword');
      broken = (request) => request.method === 'POST' && request.url.endsWith('/session') ? where : undefined;
      const error = await fails(asked.checkPassword(password), 'network');
      broken = undefined;
      const reached = is(error.step, 'authorized'); // an app must show that, not the step before
      // A lost answer with the cookie comes again.
      is((await fails(asked.checkPassword(password), 'superseded')).step, 'authorized');
      assert.equal(storage.kept.size, 0);
      is(await client({ cookie: true, storage }).resume(), 'authorized');
      is(await reached.logout(), 'start');
      is(await client({ cookie: true, storage }).resume(), 'start');
      jar = undefined;
    }
  },

  async 'a lost answer'() {
    let losses = 1;
    broken = () => losses-- > 0 ? 'behind' : undefined;
    const there = is(await (await begin()).login('frank'), 'checkpassword');
    losses = 1;
    requests = [];
    is(await there.checkPassword(password), 'authorized'); // the server took the token once
    assert.deepEqual(requests, Array(2).fill('POST /acme/v2/auth/checkpassword'));
    losses = 1;
    requests = [];
    await fails(client().config(), 'network'); // not a step
    assert.equal(requests.length, 1);
    broken = undefined;
  },

  async 'two lost answers'() {
    const start = await begin();
    requests = [];
    broken = () => 'behind';
    const lost = await fails(start.login('frank'), 'network');
    assert.deepEqual([requests.length, lost.status], [2, 0]);
    broken = undefined;
    const asked = is(await is(lost.step, 'start').login('frank'), 'checkpassword');
    broken = (request) => request.url.endsWith('checkpassword') ? 'behind' : undefined;
    requests = [];
    const unheard = await fails(asked.checkPassword(password), 'network');
    assert.deepEqual(requests, Array(2).fill('POST /acme/v2/auth/checkpassword'));
    broken = undefined;
    const clicks = await Promise.allSettled([0, 1, 2].map(() => is(unheard.step, 'checkpassword').checkPassword('wrong')));
    const codes = clicks.map((click) => (click as PromiseRejectedResult).reason.code);
    assert.deepEqual(codes.filter((code) => code === 'busy').length, 2);
    assert.equal(requests.length, 3);
  },

  async 'a step made again after two lost answers'() {
    let asked = is(await (await begin()).login('frank'), 'checkpassword');
    for (const tried of ['wrong', 'wrong', password]) {
      broken = () => 'behind';
      requests = [];
      asked = is((await fails(asked.checkPassword(tried), 'network')).step, 'checkpassword');
      assert.equal(requests.length, 2);
      broken = undefined;
      if (tried === password) is(await asked.checkPassword(tried), 'authorized'); // the server took the token before
      else asked = is((await fails(asked.checkPassword(tried), 'auth.password.invalid')).step, 'checkpassword');
    }
  },

  async 'two clients with one token'() {
    // As two tabs have it whose storage is one; and as a tab and its duplicate.
    for (const storages of [[new Tab()], [new Tab(), new Tab()]]) {
      const [first, second = first] = storages as [Tab, Tab?];
      await (await begin({ storage: first })).login('frank');
      if (second !== first) first.kept.forEach((value, name) => second!.setItem(name, value));
      const steps = [is(await client({ storage: first }).resume(), 'checkpassword'), is(await client({ storage: second! }).resume(), 'checkpassword')];
      const won = is(await steps[0]!.checkPassword(password), 'authorized');
      const lost = await fails(steps[1]!.checkPassword(password), second === first ? 'superseded' : 'auth.token.invalid');
      if (second === first) assert.equal(is(lost.step, 'authorized').headers().Authorization, won.headers().Authorization);
      else is(lost.step, 'start');
      assert.equal((await won.fetch(`${nodes[0]}/`)).status, 200);
      is(await client({ storage: first }).resume(), 'authorized');
    }
    // Both at once: one is logged in, and stays so.
    for (let i = 0; i < 5; i++) {
      const storage = new Tab();
      await (await begin({ storage })).login('frank');
      const steps = [];
      for (let tab = 0; tab < 2; tab++) steps.push(is(await client({ storage }).resume(), 'checkpassword'));
      const raced = await Promise.allSettled(steps.map((step) => step.checkPassword(password)));
      const won = raced.filter(({ status }) => status === 'fulfilled');
      assert.equal(won.length, 1, JSON.stringify(raced));
      const { reason } = raced.find(({ status }) => status === 'rejected') as PromiseRejectedResult;
      assert(['superseded', 'auth.token.invalid'].includes(reason.code), reason.code);
      is(await client({ storage }).resume(), 'authorized');
    }
    // In the cookie, the loser finds out that the browser is logged in.
    const [storage, copy] = [new Tab(), new Tab()];
    await (await begin({ cookie: true, storage })).login('frank');
    storage.kept.forEach((value, name) => copy.setItem(name, value));
    const [one, other] = [is(await client({ cookie: true, storage }).resume(), 'checkpassword'), is(await client({ cookie: true, storage: copy }).resume(), 'checkpassword')];
    is(await one.checkPassword(password), 'authorized');
    const late = is((await fails(other.checkPassword(password), 'superseded')).step, 'authorized');
    assert.equal(late.profileMnemocode, 'frank');
    await late.logout();
  },

  async 'work for a captcha'() {
    const start = await begin({}, 'workers');
    const wrong = await fails(start.loginWithPassword('wendy', 'wrong'), 'auth.credentials.invalid');
    assert(wrong.captchaRequired && is(wrong.step, 'start').captchaRequired);
    requests = [];
    const wendy = is(await is(wrong.step, 'start').loginWithPassword('wendy', password), 'authorized');
    assert.deepEqual(requests, ['GET /workers/v2/captcha', 'POST /workers/v2/auth/checkcredentials']);
    await wendy.logout();
    is(await start.recover('wendy', { method: 'QUESTION' }), 'recovery-checkquestion');

    const at = client({}, 'workers');
    const response = await at.solveCaptcha();
    assert.match(response, /^[\w-]{44}\.\d+$/);
    const other = is(await at.resume(), 'start');
    is(await other.recover('wendy', { method: 'QUESTION', captcha: Promise.resolve(response) }), 'recovery-checkquestion');
    const used = await fails((await begin({}, 'workers')).recover('wendy', { method: 'QUESTION', captcha: response }), 'auth.captcha.invalid');
    assert(used.captchaRequired && !is(used.step, 'start').captchaRequired);
    await assert.rejects(at.solveCaptcha({ signal: AbortSignal.abort() }), { name: 'AbortError' });
  },

  async 'an app as the manual shows it'() {
    const entered = ['carol@example.com', 'wrong', 'a new one for carol', '000000', 'yes', 'the code', '+37060000019', 'the code'];
    const asked: string[] = [], told: string[] = [];
    const ask = async (what: string) => {
      asked.push(what);
      const text = entered.shift();
      assert(text, what);
      return text === 'the code' ? code() : text;
    };
    const carol = await logIn(client(), ask, (error) => told.push(error.code));
    assert.equal(carol.profileMnemocode, 'carol');
    assert.deepEqual(asked, ['login id', 'password', 'password', 'code', 'send a new code?', 'code']);
    const nora = await logIn(client(), ask, (error) => told.push(error.code)); // without a password, and with disclaimers
    assert.equal(nora.profileMnemocode, 'nora');
    assert.deepEqual(told, ['auth.password.invalid', 'auth.otp.invalid']);
  },

  async 'an API key that has run out'() {
    const asked: (string | undefined)[] = [];
    const at = client({ apiKey: (refused) => { asked.push(refused); return refused === undefined ? 'old' : key; } });
    is(await is(await at.resume(), 'start').login('frank'), 'checkpassword');
    assert.deepEqual(asked, [undefined, 'old']);
    await fails((await begin({ apiKey: () => 'old' })).login('frank'), 'auth.apikey.invalid');
    is((await fails(client({ apiKey: () => { throw new TypeError('offline'); }, cookie: true }).resume(), 'network')).step, 'start');
  },

  async 'an end that comes from elsewhere'() {
    const storage = new Tab();
    is(await (await begin({ storage })).loginWithPassword('frank', password), 'authorized');
    await ask('end?account=frank');
    is(await client({ storage }).resume(), 'start');
    assert.equal(storage.kept.size, 0);
    const asked = is(await (await begin({ storage })).recover('alice@example.com', { method: 'QUESTION' }), 'recovery-checkquestion');
    await ask('end?account=alice');
    is((await fails(asked.checkAnswer('Whiskers'), 'auth.token.invalid')).step, 'start');
    is((await fails((await begin()).login('nobody'), 'auth.loginid.notfound')).step, 'start');
  },
};

// What can't be written.
function types(step: Step, at: Client, otp: CheckOTP, pass: CheckPassword, set: SetPassword, all: Authorized) {
  switch (step.state) {
    case 'start': case 'linkmailed': case 'passwordset': return step.login('x');
    case 'checkpassword': return step.checkPassword('x');
    case 'checkotp': return step.checkOTP('x');
    case 'setpassword': case 'recovery-setpassword': return step.setPassword('x');
    case 'acceptdisclaimers': return step.acceptDisclaimers([]);
    case 'recovery-checkotp': return step.checkOTP('x');
    case 'recovery-checkquestion': return step.checkAnswer('x');
    case 'stepup': return step.choose('sms');
    case 'authorized': return step.logout();
    default: return step satisfies never;
  }
  // @ts-expect-error: a string
  void otp.checkOTP(123456);
  // @ts-expect-error: a list
  void pass.checkPassword('x', { acceptDisclaimers: 'terms' });
  // @ts-expect-error: there is no such option
  void set.setPassword('x', { captcha: 'x' });
  // @ts-expect-error: no such method
  void otp.recover();
  // @ts-expect-error: a storage has methods, also where the DOM has no types
  void ({ getItem: 1, setItem: 1, removeItem: 1 } satisfies Options['storage']);
  // @ts-expect-error: a method of recovery
  void pass.recover({ method: 'PIGEON' });
  // @ts-expect-error: it is read only by asking
  all.token;
  // @ts-expect-error: where is it?
  connect({ apiKey: 'x' });
  // @ts-expect-error: it takes time
  const now: Step = at.resume();
  void now;
}
void types;

for (const [name, test] of Object.entries(tests)) {
  jar = undefined;
  await test();
  console.log(name);
}
