// The login page: it shows the screen of each step, and says what went wrong. Its
// login is client.js, which any app may use as well; screens.js has the screens.
import { connect, MnemogateError } from './client.js';
import { $, el, alert, complain, forgive, say } from './ui.js';
import { t, has, time, speak, language } from './texts.js';
import { isReturnTo } from './returnto.js';
import { screens, openLink, logout, loggedOut, going } from './screens.js';

// A browser that keeps no cookies of this site has no storage for it, either.
function stored() {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}
const remembered = (name) => stored()?.getItem(`mnemogate-page ${name}`) ?? null;
const remember = (name, value) => stored()?.setItem(`mnemogate-page ${name}`, value);

// What came in the address is taken out of it before anything else: a link's token,
// or what a provider sends. Where the login leads stays, for a reload.
const address = new URL(location.href);
const link = /^#recover=(.+)$/.exec(address.hash)?.[1];
const returned = address.searchParams.has('state') && (address.searchParams.has('code') || address.searchParams.has('error'));
const wanted = (returned ? remembered('goal') : address.searchParams.get('return_to')) ?? '/';
if (returned) history.replaceState(null, '', `${address.pathname}?${new URLSearchParams({ return_to: wanted })}`);
else if (link) history.replaceState(null, '', address.pathname + address.search);

const main = $('main');
const screen = $('#screen');

const client = connect({ company: new URL('.', address).href, apiKey: key, cookie: true, language: () => language });
const hasCookie = $('meta[name="mnemogate-cookie"]') !== null;

// key is what stands in the page; if that has ended, in the page as it is now.
async function key(refused) {
  const present = $('meta[name="mnemogate-key"]').content;
  if (!refused || refused !== present) return present;
  const answer = await fetch(address.pathname, { cache: 'no-store' });
  const meta = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('meta[name="mnemogate-key"]');
  if (meta) $('meta[name="mnemogate-key"]').content = meta.content;
  return meta?.content ?? present;
}

// goal is where the login leads: an address of this origin, and nothing else. Links
// need not escape what searchParams has unescaped.
function goal() {
  const path = wanted.replace(/[^!-~]+/g, encodeURIComponent);
  return location.origin + (isReturnTo(path) ? path : '/');
}

// page is what the screens act through.
const page = {
  client,
  config: null,
  link,
  loginId: null, // as it was entered last
  accepted: new Set(), // disclaimers that stand ticked
  leaving: [],

  // leave has something done once the screen is left.
  leave(f) { this.leaving.push(f); },

  // show shows a step, or another screen of it. What was entered stays, where it is
  // the same screen or step.
  show(step, { screen: make = screens[step.state], error, note } = {}) {
    for (const f of this.leaving.splice(0)) f();
    clearInterval(countdown);
    until = 0;
    const entered = make === this.make || step === this.step ? values(screen) : {};
    Object.assign(this, { step, make });
    this.loginId = step.loginId ?? (step.state === 'start' && !error ? null : this.loginId); // who begins anew may be somebody else
    this.made = make(this, step);
    screen.replaceChildren(el('h1', { tabindex: '-1' }, this.made.heading), ...this.made.body.filter(Boolean));
    screen.removeAttribute('aria-busy');
    document.title = [this.made.heading, main.dataset.title].filter(Boolean).join(' – ');
    for (const [name, value] of Object.entries(entered)) {
      const input = screen.querySelector(`input#${name}`);
      if (input) input.value = value;
    }
    say(note ?? '');
    if (error) this.complain(error);
    else ($('input:not([hidden]), .main', screen) ?? $('h1', screen)).focus();
  },

  // submit has a form's content sent, if nothing is missing.
  submit(form, send) {
    if (Date.now() < until) return $('.alert')?.focus();
    forgive(form);
    const entered = { ...values(form), disclaimers: ticked(form, 'disclaimers'), method: ticked(form, 'method')[0] };
    this.accepted = new Set(entered.disclaimers);
    for (const input of form.querySelectorAll('input[required]')) {
      if (input.value === '') return void complain(input.name, t('error.empty'));
    }
    if (this.made.unproven?.()) return void complain('captcha', t('error.auth.captcha.missing'));
    if ($('#disclaimers input:not(:checked)', form)) return void complain('disclaimers', t('error.auth.disclaimer.invalid'));
    this.act(() => send(entered));
  },

  // act makes a step, and shows where it leads. While it is under way nothing else is.
  async act(work, note) {
    if (this.busy) return;
    this.busy = true;
    const main = $('.main', screen);
    main?.classList.add('busy');
    main?.setAttribute('aria-disabled', 'true'); // the screen that comes has its own
    const { make, made } = this;
    try {
      const step = await work();
      if (step) this.arrive(step, note, make);
    } catch (error) {
      if (!(error instanceof MnemogateError)) throw error;
      await this.fail(error, make, made);
    } finally {
      this.busy = false;
      if (this.made === made) { // nothing else came, such as a note of the browser's own
        main?.classList.remove('busy');
        main?.removeAttribute('aria-disabled');
      }
    }
  },

  arrive(step, note, from) {
    if (step.state === 'authorized' && from !== logout) return this.go();
    if (from === logout) return this.show(step, { screen: loggedOut });
    this.show(step, { note: note ?? (step.state === 'passwordset' ? t('newpassword.done') : '') });
  },

  // fail shows where it goes on after an error. A code that is spent is renewed.
  async fail(error, make, made) {
    const step = error.step ?? this.step;
    if (made.renews?.(error)) {
      try {
        return this.show(await step.renewOTP(), { error, note: t('code.resent') });
      } catch (second) {
        if (!(second instanceof MnemogateError)) throw second;
        error = second;
      }
    }
    if (step.state === 'authorized' && error.code === 'superseded') return this.go();
    this.show(error.step ?? step, { error, screen: step.state === this.step.state ? make : undefined });
  },

  // complain says what an error means, beside the field that it is about.
  complain(error) {
    const { code, reason, retryAfter, status } = error;
    const name = status === 422 || reason?.startsWith('password.') ? 'newpassword' : fields[code];
    const text = textOf(error);
    if (name && complain(name, text)) {
      const input = document.getElementById(name);
      if (name !== 'login' && input?.matches('input')) input.value = '';
      return;
    }
    if (code === 'auth.restricted' && retryAfter) return lock(text, retryAfter);
    alert(el('span', {}, text));
  },

  // visit goes to a provider, which sends the browser back here.
  async visit(step, provider) {
    remember('goal', wanted);
    remember('language', language);
    location.assign(await step.authorize(provider));
  },

  // go leaves the page, once somebody is logged in.
  go() {
    this.show({ state: 'going' }, { screen: going });
    location.replace(goal());
  },
};

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

// textOf says what an error means to the user: by its reason, its code, or as one
// that nobody has heard of.
function textOf({ code, reason, status }) {
  const key = [`reason.${reason}`, status === 422 && `error.${code}.same`, `error.${code}`].find((key) => key && has(key));
  return key ? t(key) : t('error.other', { code });
}

// A lock is counted down for the eyes; a screen reader hears when it begins and ends.
let until = 0, countdown;
function lock(text, seconds) {
  until = Date.now() + 1000 * seconds;
  const left = el('span', { 'aria-hidden': 'true' });
  alert(el('span', {}, text), ' ', el('span', { class: 'unseen' }, t('lock.wait', { time: time(seconds) })), left);
  const submit = $('form .main', screen);
  submit?.setAttribute('aria-disabled', 'true');
  const tick = () => {
    const rest = Math.ceil((until - Date.now()) / 1000);
    left.textContent = t('lock.wait', { time: time(Math.max(rest, 0)) });
    if (rest > 0) return;
    clearInterval(countdown);
    $('.alert')?.remove();
    submit?.removeAttribute('aria-disabled');
    say(t('lock.over'));
  };
  tick();
  countdown = setInterval(tick, 1000);
}

const values = (within) => Object.fromEntries([...within.querySelectorAll('input:not([type=checkbox], [type=radio], [readonly])')].map((input) => [input.name, input.value]));
const ticked = (within, name) => [...within.querySelectorAll(`input[name="${name}"]:checked`)].map((input) => input.value);

// choose changes the language, here and now.
async function choose(tag) {
  await speak(tag);
  const option = $(`#language option[value="${CSS.escape(tag)}"]`);
  Object.assign(document.documentElement, { lang: tag, dir: option?.dir || 'ltr' });
  $('#language').value = tag;
}

async function start() {
  const wanted = address.searchParams.has('lang') ? null : remembered('language');
  await choose(wanted && $(`#language option[value="${CSS.escape(wanted)}"]`) ? wanted : language);
  const chooser = $('#language');
  chooser.parentElement.hidden = chooser.options.length < 2;
  chooser.addEventListener('change', async () => {
    await choose(chooser.value);
    remember('language', chooser.value);
    if (page.step) page.show(page.step.disclaimers?.length ? await client.resume().catch(() => page.step) : page.step, { screen: page.make }); // disclaimers may be in it, too
    chooser.focus();
  });
  await begin();
}

// begin finds out where the login is. Without an answer it can be tried again.
async function begin() {
  try {
    if (!navigator.cookieEnabled || !stored()) throw new MnemogateError('cookies', 'the session could not be kept');
    page.config = await client.config();
    const leaving = main.dataset.kind === 'logout';
    if (link && !leaving) return page.show(client.start(), { screen: openLink });
    const step = returned && await client.finishOAuth(address);
    if (step) return page.arrive(step);
    const found = await client.resume({ byCookie: hasCookie });
    if (leaving) return page.show(found, { screen: found.state === 'authorized' ? logout : loggedOut });
    if (found.state !== 'authorized' || !address.searchParams.has('fresh')) return page.show(found);
    page.show(client.start(), { note: t('login.fresh') });
  } catch (error) {
    if (!(error instanceof MnemogateError)) throw error;
    if (error.step) return page.show(error.step, { error });
    screen.removeAttribute('aria-busy');
    screen.replaceChildren(el('h1', { tabindex: '-1' }, t('login.heading')), el('p', { class: 'stack' }, el('button', { type: 'button', class: 'main', onclick: begin }, t('error.again'))));
    alert(el('span', {}, textOf(error)));
  }
}

// A link from a mail that is pasted where this page is open loads nothing by itself.
addEventListener('hashchange', () => location.hash.startsWith('#recover=') && location.reload());

// What the browser kept of the page may be of somebody who has left.
addEventListener('pageshow', ({ persisted }) => persisted && location.reload());

start();
