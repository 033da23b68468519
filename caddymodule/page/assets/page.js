// The login page. It shows the screen of each step and explains errors. The login
// itself is in client.js, which other apps can use too. The screens are in
// screens.js.
import { connect, MnemogateError, storageOfTab } from './client.js';
import { $, el, alert, anchor, busy, button, complain, entitle, failed, fieldOf, focus, footer, isFilled, marked, note, restore, say, textOf, waitFor, waitOf } from './ui.js';
import { t, language } from './texts.js';
import { configOf, keep, key, languages, remembered, seen } from './frame.js';
import { returnTo } from './returnto.js';
import { Journey, linkIn } from './journey.js';
import { canOffer, createSilently, offer } from './passkey.js';
import { appDigits, screens, changed, noFactor, deadLink, going, login, logout, loggedOut, openLink, recover, takes, unconfirmed, useBackupCode } from './screens.js';

// The token of a link and the parameters from a provider are removed from the address
// before anything else. The address to go to after the login stays, so that a reload
// finds it. The history keeps the token until it is spent, for a reload and for Back.
const leaving = $('main').dataset.kind === 'logout';
const address = new URL(location.href);
const link = linkIn(address.hash) ?? history.state?.link;
const returned = ['code', 'error', 'error_code'].some((name) => address.searchParams.has(name));
let raises = false; // whether the user may give only what is missing
const mfa = !returned && address.searchParams.has('mfa'); // the path needs two factors
const fresh = returned ? remembered('fresh') : address.searchParams.get('fresh'); // with it, a session is not enough
const asked = (returned ? remembered('goal') : address.searchParams.get('return_to')) ?? '/';
// Browsers keep the fragment of a page that has led here.
let wanted = link || returned || asked.includes('#') ? asked : asked + address.hash;
if (returned) history.replaceState(null, '', `${address.pathname}?${new URLSearchParams({ ...fresh && { fresh }, return_to: wanted })}`);
else if (link) history.replaceState(leaving ? null : { link }, '', address.pathname + address.search);

const screen = $('#screen');

const journey = new Journey((to) => page.back(to));

const client = connect({ company: new URL('.', address).href, apiKey: key, cookie: true, remember: () => page.chose('remember'), rememberDevice: () => page.chose('device'), language: () => language });
const hasCookie = $('meta[name="mnemogate-cookie"]') !== null;

// goal returns the address to go to after the login. It always has this origin.
const goal = () => location.origin + (returnTo(wanted) ?? '/');

// page is the interface that the screens use.
const page = {
  client,
  config: null,
  captcha: null, // with which the page came
  link,
  loginId: null, // as it was entered last
  accepted: new Set(), // disclaimers that are checked
  method: undefined, // of recovery, as it was chosen last
  prompt: undefined, // for the next provider
  turn: 0, // how many steps were made
  typed: false, // whether the user has entered a password in this login
  offers: false, // whether the user may be offered a passkey
  again: 0, // when another code may be requested
  noMoreCodes: false, // whether the error says that this login gets none
  unanswered: undefined, // the screen whose form got no answer
  former: undefined, // who was logged in before
  stuck: false, // whether the account has no second factor for this path
  stuckBy: {}, // the error that said so

  // other begins the login of another user, who chooses anew.
  async other() {
    this.unchoose();
    return { ...await relogin(), user: null };
  },

  leaving: [],

  // choose keeps the user's choice to stay logged in or to be remembered, also for a
  // provider's answer.
  choose(what, yes) { keep(what, yes ? 'yes' : ''); },
  chose: (what) => remembered(what) === 'yes',

  // unchoose forgets the choices, because the next user may be another one.
  unchoose() { for (const choice of ['remember', 'device']) this.choose(choice, false); },

  goal,

  // leave registers a function to call when the user leaves the screen.
  leave(f) { this.leaving.push(f); },

  // show shows a step, or another screen of the same step. Input is kept if the
  // screen or the step is the same.
  show(step, { screen: make = screenOf(step), error } = {}) {
    for (const f of this.leaving.splice(0)) f();
    clearInterval(countdown);
    until = 0;
    const entered = make === this.make || step === this.step ? values(screen) : {};
    if (make === this.make) this.keepTicks(screen);
    if (this.make === openLink && make !== openLink) history.replaceState(null, ''); // the link is spent or unwanted
    Object.assign(this, { step, make, noMoreCodes: isRenewals(error?.reason) });
    this.loginId = step.loginId ?? (step.state === 'start' && !error ? null : this.loginId); // a new login may be another user's
    this.made = make(this, step);
    screen.replaceChildren(el('h1', { id: 'heading', tabindex: '-1' }, this.made.heading), ...this.made.body.filter(Boolean));
    screen.removeAttribute('aria-busy');
    $('main').dataset.screen = this.made.name;
    entitle(this.made.heading);
    for (const [name, value] of Object.entries(entered)) restore(document.getElementById(name), value);
    say('');
    const notice = error ? null : this.made.notice ?? (make === screenOf(step) && step.notice && t(`notice.${step.notice}`));
    if (notice) note(notice);
    if (!error || !this.complain(error)) focus(screen);
    if (make !== going) journey.arrive({ make, state: step.state, loginId: step.loginId, turn: this.turn }, ends.has(make));
  },

  // turnTo shows another screen of a step, unless a request is under way: its answer does.
  turnTo(step, make) {
    if (!this.busy) this.show(step, { screen: make });
  },

  // back shows the screen of an earlier entry of the history. If that is over, it shows
  // the nearest one before it that is not. Forward leads nowhere: what was undone must
  // be done again. Nor does Back after a mailed link, which works only once.
  async back(to) {
    const { step } = this;
    const byLink = step?.state === 'recovery-setpassword' && journey.at === 1; // other recoveries have screens before it
    if (this.busy || to > journey.at || byLink) return journey.travel(journey.at - to);
    const can = ({ make, turn, loginId }) => turn === this.turn || make === recover || make === screens.checkpassword && loginId;
    const { make, turn, loginId } = await journey.settle(to, can) ?? {};
    if (!step) return; // begin still finds it out
    if (make && turn === this.turn) return this.show(step, { screen: make });
    this.act(async () => {
      const start = await step.cancel?.() ?? client.start();
      return make === screens.checkpassword ? start.login(loginId) : { ...start, loginId: step.loginId ?? this.loginId };
    }, make === recover ? recover : undefined);
  },

  // keepTicks keeps what is ticked, since a screen that is shown again is a new one.
  keepTicks(within) {
    this.accepted = new Set(ticked(within, 'disclaimers'));
    [this.method] = ticked(within, 'method');
  },

  // sent notes when the code of a step was sent, also for a reload.
  sent(step) {
    if (step.phone) {
      keep('sent', Date.now());
      keep('until', step.expiresAt);
    }
    return step;
  },

  // codeUntil returns when the code of a step expires. It is NaN if that is unknown.
  codeUntil(step) { return Math.min(step.expiresAt, parseInt(remembered('sent')) + 1000 * this.config.otp.ttl); },

  // submit sends a form if nothing is missing.
  submit(form, send) {
    if (Date.now() < until) return say(wait());
    this.keepTicks(form);
    const entered = { ...values(form), disclaimers: [...this.accepted], method: this.method };
    if (!isFilled(form)) return;
    if (this.made.unproven?.()) return void complain('captcha', t('error.auth.captcha.missing'));
    const unaccepted = $('#disclaimers input:not(:checked)', form);
    if (unaccepted) return void complain(unaccepted.id, t('error.auth.disclaimer.invalid'));
    this.act(() => send(entered), undefined, true);
  },

  // act makes a step and shows the next one, or another screen of it. Only one step
  // runs at a time. With submitted, it is that of the screen's form.
  async act(work, then, submitted = false) {
    if (this.busy) return;
    this.busy = true;
    this.submitted = submitted;
    const main = $('.main', screen);
    busy(main, true); // the next screen has its own button
    const { make, made } = this;
    made?.stop?.();
    try {
      const step = await work();
      if (step) await this.arrive(step, then, make);
    } catch (error) {
      if (!(error instanceof MnemogateError)) throw error;
      await this.fail(error, make, made);
    } finally {
      this.busy = false;
      if (this.made === made) busy(main, false); // the screen is still the same, so its button must work again
    }
  },

  async arrive(step, then, from) {
    const code = $('#code', screen);
    if (code) code.value = ''; // the next step has another one
    this.turn++;
    this.sent(step);
    this.unanswered = undefined;
    if (step.notice === 'logout.done') {
      this.unchoose();
      keep('former', '');
      keep('went', '');
      await aim();
    }
    this.typed = from === screens.checkpassword || this.typed && from !== login;
    if (from === logout) return this.show(step, { screen: loggedOut });
    if (from === unconfirmed && step.state === 'start') Object.assign(step, { notice: 'lost.login', loginId: this.loginId });
    if (step.state !== 'authorized') return this.show(step, { screen: then });
    this.former = JSON.parse(remembered('former') || 'null');
    keep('former', '');
    if (this.former && this.former.profileMnemocode !== step.profileMnemocode) {
      await aim();
      const { user } = await client.resume().catch(() => step);
      return this.show({ ...step, user }, { screen: changed });
    }
    if (this.typed && this.offers && from !== offer && !await createSilently(step)) return this.show(step, { screen: offer });
    this.go();
  },

  // fail shows the step to continue with after an error. If a code was used up, it
  // requests a new one.
  async fail(error, make, made) {
    const step = make !== unconfirmed && error.step || this.step;
    const sets = make === screens.setpassword;
    if (['network', 'service.unavailable'].includes(error.code)) {
      this.unanswered = make;
      if (sets) error.reason = 'lost.password';
    } else if (this.unanswered === make && /^auth\.token\./.test(error.code)) {
      if (sets) return this.show({ ...step, notice: 'lost.password', loginId: this.loginId });
      error.reason = 'lost.step';
    }
    const code = $('#code', screen);
    // Unless digits of a code are missing, only the step-up can be what is invalid: it may be
    // done, or one of a session before.
    const whole = !code || code.value.replace(/\P{Nd}/gu, '').length === (step.phone ? this.config.otp.length : appDigits);
    const over = make === screens.stepup && error.code === 'request.validation.failed' && (whole || this.unanswered === make);
    if (code && (over || [401, 403, 429].includes(error.status))) code.value = ''; // it does not work again
    if (over || made.renews?.(error)) {
      try {
        if (over) {
          const why = t(this.unanswered === make ? 'reason.lost.step' : 'error.superseded');
          const next = await raise('code.resent', step.factor);
          await this.arrive(next);
          return void (next.state === 'stepup' && !next.phone && alert(why));
        }
        const renewed = this.sent(await step.renewOTP());
        this.show(renewed, { screen: make, error: error.code === 'auth.otp.invalid' ? undefined : error });
        if (error.code !== 'auth.disclaimer.invalid') return;
        note(t('notice.code.resent'));
        return say(t('notice.code.resent'));
      } catch (second) {
        if (!(second instanceof MnemogateError)) throw second;
        if (over && second.step?.state === 'authorized') second.step = step;
        second.before = over ? null : textOf(error);
        error = second;
      }
    }
    // Another tab has logged in, maybe as somebody else. A page that needs a new login begins anew.
    if (step.state === 'authorized' && error.code === 'superseded') return fresh || mfa ? location.reload() : this.show(step);
    await this.renew(error, step);
    if (step.state !== this.step.state) this.turn++;
    const dead = make === openLink && ['auth.token.invalid', 'auth.token.expired'].includes(error.code);
    if (dead) return this.show(step, { screen: deadLink });
    const next = make === unconfirmed ? step : error.step ?? step;
    this.show(next, { error, screen: next.state === this.step.state ? make : next.state === 'authorized' ? unconfirmed : undefined });
  },

  // renew brings the page up to date after an error that says that it may be too old: the
  // operator may have changed the captcha, whose scripts come with the page, or the rules for
  // passwords.
  async renew({ code, status, reason }, step) {
    const rules = /^password\.(too_short|pattern)$/.test(reason);
    if (!rules && !/^auth\.captcha\./.test(code) && !(code === 'request.validation.failed' && status === 404)) return;
    const [config, { rules: newer, state } = {}] = await Promise.all([client.config(), rules && client.resume()]).catch(() => []);
    if (!config) return;
    if (config.captcha.type !== this.captcha.type || config.captcha.siteKey !== this.captcha.siteKey) {
      location.reload();
      await new Promise(() => {}); // forever
    }
    this.config = config;
    if (newer && state === step.state) step.rules = newer;
  },

  // complain shows an error. It reports whether it has put the focus on the field that
  // the error concerns.
  complain(error) {
    const { code, reason, before } = error;
    const of = fieldOf(error, fields) ?? (code === 'request.validation.failed' && error.status !== 404 ? $('.code, #login', screen)?.name : undefined); // what can't be one
    const name = of === 'disclaimers' ? $('#disclaimers input:not(:checked), #disclaimers input', screen)?.id : of;
    const ways = this.ways(error);
    const said = reason === 'lock.disabled' && this.config.recovery.length === 0 ? t('lock.support') : textOf(error);
    if (name && complain(name, said, ...ways)) {
      const input = document.getElementById(name);
      if (name !== 'login' && input?.matches('input:not([type=checkbox])')) {
        input.value = '';
        input.dispatchEvent(new Event('input'));
      }
      return true;
    }
    const text = [before, said].filter(Boolean).join(' ');
    const seconds = waitOf(error);
    const { step } = this;
    const needsStep = step.cancel && step.state !== 'stepup' && this.make !== recover; // others begin anew by themselves
    if (seconds && this.submitted && needsStep && Date.now() + 1000 * seconds >= step.expiresAt) alert([text, ' ', waitFor(seconds), ' ', t('lock.ends')], ...ways, button(t('login.back'), () => this.act(() => step.cancel())));
    else if (seconds && this.submitted && $('form', screen)) lock(text, seconds, ways);
    else alert(seconds ? [text, ' ', waitFor(seconds)] : text, ...ways); // the form may still work
    return false;
  },

  // ways returns links, buttons and advice for what the user can do after an error,
  // besides trying again.
  ways(error) {
    const { code, reason } = error;
    const { step, config } = this;
    const ways = [];
    if ((reason === 'lock.disabled' || reason === 'lock.password' && !config.hardened) && config.recovery.length > 0) ways.push(button(t('lock.recover'), () => step.recover ? this.turnTo(step, recover) : this.act(relogin, recover))); // a step-up has no recovery
    if (/^limit\.(sms|renewals)/.test(reason) && this.make !== useBackupCode && takes(step, 'backup') && !step.codeSpent) ways.push(button(t('backup.offer'), () => this.turnTo(step, useBackupCode)));
    if (isRenewals(reason) && !step.codeSpent) ways.push(button(t('login.back'), () => this.act(() => step.cancel())));
    if (/^recovery/.test(code) && config.recovery.length > 1) ways.push(t('recover.another'));
    // Of a provider's errors, those that the user has not chosen.
    const stuck = /^(auth\.user|auth\.oauth\.notfound|recovery|service\.error|lock\.codes|lock\.answers|lock\.disabled|oauth\.denied: (?!access|user)[a-z_]{1,40}$)/;
    if (stuck.test(error.message) || stuck.test(reason)) ways.push(...this.help(error));
    return ways;
  },

  // help returns the links to support, and the ref by which support finds the error, or a
  // provider's name for it.
  help({ code, message, ref }) { return (ref ??= code === 'oauth.denied' && message) ? [...this.support(), t('error.ref', { ref })] : this.support(); },

  support() { return this.config?.links.filter(({ support }) => support).map(anchor) ?? []; },

  // visit goes to a provider, which sends the browser back here.
  async visit(step, provider) {
    keep('goal', wanted);
    keep('language', language);
    keep('fresh', fresh ?? '');
    keep('prompt', this.prompt ?? '');
    const url = await step.authorize(provider.authorizeUrl ? provider : provider.providerId, { prompt: this.prompt, ...fresh && { maxAge: Math.min(60, fresh) || 0 } }).catch((e) => {
      throw e instanceof MnemogateError ? e : new MnemogateError('cookies', 'the login could not be kept', { cause: e });
    });
    location.assign(url);
  },

  // go leaves the page after a login. Its entries are left behind, so Back leads to the
  // page before the login.
  async go() {
    this.show({ state: 'going' }, { screen: going });
    keep('went', Date.now());
    await journey.home();
    location.replace(goal());
  },
};

// find finds out the current step. A user who is logged in gives only what is missing. Who
// has nothing to give for it, or can't be sent a code, logs in again, if that would help.
async function find() {
  if (!raises) return relogin();
  try {
    const step = await raise();
    if (step.state !== 'start') keep('former', ''); // it is the same user
    return step.state === 'start' ? relogin() : step;
  } catch (error) {
    if (!mfa && ['auth.restricted', 'service.unavailable'].includes(error.code)) return relogin();
    if (error.reason !== 'user.no_second_factor') throw error;
    Object.assign(page, { stuck: mfa, stuckBy: error });
    return mfa ? error.step : relogin();
  }
}

// aim makes the page lead to the root: the rest is what another user wanted to see, also
// after a reload.
async function aim() {
  wanted = '/';
  await journey.home();
  const here = new URL(location);
  for (const name of ['return_to', 'fresh', 'mfa']) here.searchParams.delete(name);
  history.replaceState(null, '', here.pathname + here.search);
}

// raise begins a step-up, or goes on with that of before a reload. If it sends a code, it says
// so with the notice.
async function raise(notice = null, factor = undefined) {
  const step = await client.stepUp({ for: mfa ? 'mfa' : 'fresh', factor, byCookie: hasCookie });
  const goesOn = remembered('until') === String(step.expiresAt);
  return step.phone && !goesOn ? page.sent({ ...step, notice }) : step;
}

// relogin is find for users who log in again, perhaps as somebody else. The page remembers
// who was logged in.
async function relogin() {
  const found = await client.resume({ byCookie: hasCookie, fresh: !leaving && !!(fresh || mfa) });
  if (found.state === 'start' && !fresh && !mfa) page.unchoose();
  if (found.state === 'start') keep('former', found.user ? JSON.stringify({ user: found.user, profileMnemocode: found.profileMnemocode }) : '');
  return found;
}

// ends are the screens without a login in progress. Back leaves the page from there.
const ends = new Set([login, openLink, deadLink, logout, loggedOut, offer, unconfirmed, changed, noFactor, screens.stepup, screens.authorized]);

const screenOf = (step) => step.notice === 'sms.exhausted' ? useBackupCode : screens[step.state];

const fields = {
  'auth.loginid.notfound': 'login',
  'auth.password.invalid': 'password',
  'auth.otp.invalid': 'code',
  'auth.backupcode.invalid': 'backup',
  'auth.controlanswer.invalid': 'answer',
  'auth.disclaimer.invalid': 'disclaimers',
  'auth.captcha.missing': 'captcha',
  'auth.captcha.invalid': 'captcha',
  'recovery.method.restricted': 'method',
  'recovery.phone.notset': 'method',
  'recovery.email.notset': 'method',
  'recovery.question.notset': 'method',
};

// No more codes are sent in this login, so waiting is slower than a new one.
const isRenewals = (reason) => /^limit\.renewals/.test(reason);

// A lock shows a countdown. Screen readers announce only its beginning and its end.
let until = 0, countdown, wait;
function lock(text, seconds, ways) {
  until = Date.now() + 1000 * seconds;
  const left = el('span', { 'aria-hidden': 'true' });
  wait = () => `${text} ${left.textContent}`;
  const first = el('span', { class: 'visually-hidden' }, waitFor(seconds));
  const box = alert([el('span', {}, text), ' ', first, left], ...ways);
  const form = $('form', screen);
  const submit = form && $('.main', form);
  submit?.setAttribute('aria-disabled', 'true');
  const release = () => {
    until = 0;
    submit?.removeAttribute('aria-disabled');
  };
  // The lock may be only that of this account or way.
  form?.addEventListener('input', ({ target }) => {
    if (!['login', 'method'].includes(target.name)) return;
    clearInterval(countdown);
    release();
    for (const part of [first, left]) part.remove();
  });
  const tick = () => {
    const rest = Math.ceil((until - Date.now()) / 1000);
    left.replaceChildren(marked(waitFor(Math.max(rest, 0))));
    if (rest > 0) return;
    clearInterval(countdown);
    release();
    const lost = box.contains(document.activeElement);
    note(t('lock.over'));
    if (lost) focus(screen);
    say(t('lock.over'));
  };
  tick();
  countdown = setInterval(tick, 1000);
}

const values = (within) => Object.fromEntries([...within.querySelectorAll('input:not([type=checkbox], [type=radio], [readonly])')].map((input) => [input.name, input.value]));
const ticked = (within, name) => [...within.querySelectorAll(`input[name="${name}"]:checked`)].map((input) => input.value);

// begin finds out the current step. Without an answer, the user can try again.
async function begin() {
  try {
    if (!isSecureContext) throw new MnemogateError('insecure', 'browsers send no cookie that is secure');
    if (!navigator.cookieEnabled || !storageOfTab()) throw new MnemogateError('cookies', 'the session could not be kept');
    page.config = await configOf(client);
    page.captcha = page.config.captcha;
    if (!fresh && !mfa) canOffer(page.config).then((can) => { page.offers = can; }); // otherwise the user wants to do something else
    if (leaving && hasCookie) client.start(); // a login that has begun in this tab is over
    if (link && !leaving) return page.show(client.start(), { screen: openLink });
    const step = returned && await client.finishOAuth(address);
    if (step) return page.arrive(step);
    raises = !leaving && Boolean(mfa || fresh) && page.config.stepUp;
    const found = await find();
    const mayEnd = hasCookie || found.state === 'authorized'; // the cookie may be another company's
    const stateless = returned && found.state !== 'authorized'; // some providers send errors so
    const refused = address.searchParams.has('return_to') && !leaving && !hasCookie && found.state === 'start' && Date.now() - remembered('went') < 15_000; // a login has just ended well
    const error = stateless ? new MnemogateError('oauth.denied', 'the answer has no state') : refused ? new MnemogateError('cookies', 'the session was not kept') : undefined;
    page.show(found, { screen: page.stuck ? noFactor : !leaving ? undefined : mayEnd ? logout : loggedOut, error });
  } catch (error) {
    if (!(error instanceof MnemogateError)) throw error;
    const over = error.code === 'oauth.state' && error.step.state === 'authorized'; // Back has led here after the login
    // The user may want another account than the provider's. Not every provider knows select_account.
    if (error.code.startsWith('auth.')) page.prompt = 'select_account';
    else if (error.code === 'oauth.denied' && remembered('prompt') === 'select_account') page.prompt = 'login';
    if (returned && error.step) return page.show(error.step, over ? {} : { error, screen: error.step.state === 'authorized' ? unconfirmed : undefined });
    const ways = page.help(error);
    if (raises && error.code === 'auth.restricted') { // trying again may not help for long
      if (waitOf(error)) ways.unshift(waitFor(waitOf(error)));
      ways.push(el('a', { href: 'logout' }, t('logout.submit')));
    }
    failed(t(leaving ? 'logout.heading' : 'login.heading'), error, begin, ...ways);
  }
}

// Pasting a mailed link while this page is open changes only the fragment, so the
// page does not reload by itself.
addEventListener('hashchange', () => linkIn(location.hash) && location.reload());

await languages(async () => {
  await client.config().then((config) => footer((page.config = config).links), () => {}); // in the language
  if (!page.step) return $('main').dataset.screen === 'failed' ? begin() : undefined;
  const step = page.step.disclaimers?.length ? await client.resume().catch(() => page.step) : page.step; // disclaimers may have texts in it too
  page.show(step, { screen: step.state === page.step.state ? page.make : undefined }); // the step may be over
});
await seen();
begin();
