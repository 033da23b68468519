// The security page: users look after their own login. The requests are those of
// client.js (Me in client.d.ts).
import { connect, MnemogateError } from './client.js';
import { $, el, busy, button, choices, complain, entitle, failed, field, fieldOf, footer, form as formOf, isFilled, labelled, marked, restore, say, submit, textOf, verbatim, waitFor, waitOf } from './ui.js';
import { t, time, language } from './texts.js';
import { returnTo } from './returnto.js';
import { appDigits, codeField, isMasked, isolated, newPassword, offersDevice, pausing, username } from './screens.js';
import { configOf, key, languages, seen } from './frame.js';
import { device, ago, moment } from './device.js';
import { creates, isNone, settle } from './passkey.js';

const screen = $('#screen');
const client = connect({ company: new URL('.', location).href, apiKey: key, cookie: true, language: () => language });

let me, user, config, factors, sessions, passkeys, devices, tokens;
let freshUntil = 0; // until then, changes need no new login
let opened = null; // the dialog that is open, as 'password'
let acting = false;

// Going to the login page and back

// toLogin goes to the login page. After the login it leads back to the dialog.
function toLogin(dialog, needed) {
  const back = location.pathname + location.search + (dialog ? `#${dialog}` : '');
  location.assign(`login?${needed ? `${needed}=1&` : ''}${new URLSearchParams({ return_to: back })}`);
}

// Someone who has just logged in for a change should have the time to make it. For some, an app
// has to be installed, or a message has to come.
let soon = Infinity;
const enough = (dialog) => Math.min(soon, /^(app|email|phone)$/.test(dialog) ? 180_000 : 30_000);

// needed returns what the login page must raise the session to before a change.
const needed = (dialog) => factors.mfaMissing ? 'mfa' : Date.now() + enough(dialog) > freshUntil && 'fresh';

// Actions

let pressed; // the last button, which does not always get the focus
addEventListener('click', ({ target }) => { pressed = target.closest('button'); }, true);

// act runs a request. An error is shown in the section of the dialog. Unless the request
// only asks, it may have changed something if no answer came.
async function act(section, dialog, work, asks = false) {
  if (acting) return;
  acting = true;
  const main = $(`#${section} .main`) ?? pressed;
  busy(main, true);
  try {
    if (await other) return location.reload();
    await work();
  } catch (error) {
    if (!(error instanceof MnemogateError)) throw error;
    fail(section, dialog, error, asks);
  } finally {
    acting = false;
    busy(main, false);
  }
}

// Somebody else may have logged in in another tab. A change that is made here would be that
// user's, so it waits until it is clear that the user is the same. If not, the page loads
// anew.
let other;

// look reports whether the user is another one.
async function look() {
  if (!user || document.hidden) return false;
  const now = await client.resume({ byCookie: true }).catch(() => null);
  if (!now || now.profileMnemocode === user) return false;
  if (!codes && !issued) location.reload(); // otherwise the browser asks, and the user may stay
  return true;
}
for (const returns of ['focus', 'visibilitychange']) addEventListener(returns, () => { other = look(); });

const fields = {
  'auth.password.invalid': 'current',
  'auth.otp.invalid': 'code',
  'request.validation.failed': 'code', // what can't be a code
};

// By dialog: a field whose text may be invalid (400), what to say then, and what if there can
// be no more or no other (409).
const refusals = {
  email: { input: 'newemail', invalid: 'security.email.invalid', conflict: 'security.contact.taken' },
  phone: { input: 'newphone', invalid: 'security.phone.invalid', conflict: 'security.contact.taken' },
  passkeys: { conflict: 'security.passkeys.full' },
  tokens: { input: 'paths', invalid: 'security.tokens.invalid', conflict: 'security.tokens.full' },
};

function fail(section, dialog, error, asks) {
  const { code, reason } = error;
  if (!asks && dialog && dialog === opened && ['network', 'service.unavailable'].includes(code)) return tell(section, t(dialog === 'password' ? 'notice.lost.password' : 'security.unsure'), true);
  if (reason === 'too_old') return toLogin(dialog, 'fresh');
  if (reason === 'mfa') return toLogin(dialog, 'mfa');
  if (/^auth\.(token|header|session)\./.test(code)) return toLogin(dialog);
  const { input, invalid, conflict } = refusals[dialog] ?? {};
  const typing = input && !sent && code === 'request.validation.failed' && error.status === 400;
  const own = typing ? t(invalid)
    : error.status === 409 ? t(conflict ?? 'error.superseded')
    : sent && dialog === 'phone' && code === 'auth.otp.invalid' ? t('security.contact.wrong') // one by mail can be tried again
    : reason === 'lock.disabled' ? config.recovery.length > 0 ? t('security.password.disabled', { choice: t('recover.offer') }) : t('lock.support') // a change needs it
    : textOf(error);
  const seconds = waitOf(error);
  const text = seconds ? `${own} ${waitFor(seconds)}` : own;
  const name = typing ? input : fieldOf(error, fields);
  if (!name || !complain(name, text)) tell(section, text, true);
  else if (code === 'auth.otp.invalid') $('#code').value = ''; // it does not work again
}

// tell shows what happened in a section, and announces it.
function tell(section, text, bad = false) {
  const told = $(`#${section} .done`);
  told.classList.toggle('bad', bad);
  told.replaceChildren(marked(text));
  if (text) told.scrollIntoView({ block: 'nearest' }); // the button may be at the end of a long section
}

// open shows a dialog in its section. If the session is not enough for the change, the
// user raises it first. A dialog that is open in another section closes.
function open(section, dialog) {
  if (needed(dialog)) return toLogin(dialog, needed(dialog));
  opened = dialog;
  sent = null;
  for (const told of document.querySelectorAll('.done')) told.textContent = '';
  for (const { id } of screen.querySelectorAll('section')) show(id);
  ($(`#${section} input:not([hidden])`) ?? $(`#${section} .main`))?.focus();
}

function close(section, text = '') {
  if (opened?.split('-')[0] === section) opened = sent = null;
  show(section);
  tell(section, text);
  $(`#${section} h2`).focus();
}

addEventListener('keydown', (event) => event.key === 'Escape' && !event.isComposing && opened && !acting && close(opened.split('-')[0]));

async function load() {
  [factors, sessions, passkeys, devices, tokens] = await Promise.all([
    me.factors(), me.sessions(), config.passkeys ? me.passkeys() : [], config.devices ? me.devices() : [], config.issuedTokens ? me.tokens() : [],
  ]);
  freshUntil = Date.now() + 1000 * factors.freshFor;
}

// refresh loads what there is after a change, which is made even if that fails.
const refresh = () => load().catch((error) => {
  if (!(error instanceof MnemogateError)) throw error;
});

// change makes a change, loads what there is now, and closes the dialog. What is not
// there any more needs no change, but a proxy's 404 does not say that.
const change = (section, dialog, work, text) => act(section, dialog, async () => {
  const done = await work().then(() => text, (error) => {
    if (error.status !== 404 || error.code === 'network') throw error;
  });
  await refresh();
  close(section, done);
  showOthers(section);
});

// Elements

const actions = (...content) => el('div', { class: 'actions' }, content);
// While a request is under way, its dialog stays: the answer has its place there.
const cancel = (section) => button(t('security.cancel'), () => acting || close(section), 'quiet');

// opens returns a button that opens a dialog. It is red for what destroys. of is the id of
// the element of a list that it is for.
const opens = (section, dialog, text, { destroys = false, of } = {}) => el('button', {
  id: `opens-${dialog}`, type: 'button', class: destroys ? 'quiet danger' : 'quiet', 'aria-describedby': of, onclick: () => acting || open(section, dialog),
}, text);

// row shows something, with what can be done about it beside it.
const row = (content, ...buttons) => el('div', { class: 'row' }, el('div', {}, content), buttons.some(Boolean) && actions(...buttons));

const form = (section, send, text, ...content) => el('div', { class: 'ask' }, formOf(
  (of) => isFilled(of) && send(Object.fromEntries(new FormData(of))), ...content, actions(submit(text), cancel(section))));

// confirmation asks before something that cannot be undone.
const confirmation = (section, text, yes, send, destroys = true) => el('div', { class: 'ask' },
  el('p', { id: `${section}-ask` }, text),
  actions(el('button', { type: 'button', class: destroys ? 'main danger' : 'main', 'aria-describedby': `${section}-ask`, onclick: send }, yes), cancel(section)));

// Sections: what each shows. The dialog that is open has its place there.

const sections = {
  password: () => [
    row(
      el('p', {}, t(factors.passwordSet ? 'security.password.text' : 'security.password.none')),
      opened !== 'password' && opens('password', 'password', t(factors.passwordSet ? 'security.password.change' : 'security.password.set'))),
    opened === 'password' && form('password', ({ current, newpassword }) => change('password', 'password', () => me.changePassword(newpassword, { current }), t('security.password.done')),
      t('newpassword.submit'),
      username({ loginId: !isMasked(factors.user) && factors.user }),
      factors.passwordSet && field({ name: 'current', label: t('security.password.current'), type: 'password', autocomplete: 'current-password', enterkeyhint: 'next', reveal: true }),
      newPassword({ config }, { rules: { regex: factors.passwordRegex, description: factors.passwordRegexDescription } })),
  ],

  email: () => contactSection('email'),

  phone: () => contactSection('phone'),

  passkeys() {
    const { user, passwordSet, totp, secondFactor, userPhone, providerIds } = factors;
    const others = user && passwordSet && (totp || !secondFactor) || userPhone || config.oauth.some(({ providerId }) => providerIds.includes(providerId));
    const last = passkeys.length === 1 && !others; // the server refuses to remove it
    return [
      row(el('p', {}, t('security.passkeys.text')), creates && opened !== 'passkeys' && opens('passkeys', 'passkeys', t('security.passkeys.add'))),
      opened === 'passkeys' && confirmation('passkeys', t('security.passkeys.create.text'), t('offer.create'), create, false),
      passkeys.length > 0 && el('ul', { class: 'items', role: 'list' }, passkeys.map(({ id, name, lastUsed, createdAt }, i) => {
        const renames = opened === `passkeys-rename-${id}`, removes = opened === `passkeys-remove-${id}`;
        return el('li', { class: 'item' },
          row(
            [
              el('b', { id: `passkeys-${i}`, dir: 'auto' }, name),
              el('p', {}, lastUsed ? t('security.passkeys.used', { time: ago(lastUsed) }) : t('security.passkeys.since', { time: moment(createdAt) })),
            ],
            !renames && !removes && opens('passkeys', `passkeys-rename-${id}`, t('security.passkeys.rename'), { of: `passkeys-${i}` }),
            !renames && !removes && !last && opens('passkeys', `passkeys-remove-${id}`, t('security.remove'), { destroys: true, of: `passkeys-${i}` })),
          renames && form('passkeys', ({ name }) => change('passkeys', opened, () => me.renamePasskey(id, name), t('security.passkeys.renamed')), t('security.passkeys.rename.submit'),
            field({ name: 'name', label: t('security.passkeys.name'), autocomplete: 'off', dir: 'auto', maxlength: '64', value: name })),
          removes && confirmation('passkeys', t('security.passkeys.remove.text', { name }), t('security.remove'), () =>
            change('passkeys', opened, () => me.removePasskey(id), t('security.passkeys.removed'))));
      })),
    ];
  },

  twostep() {
    const { secondFactor: on, totp, userPhone: phone } = factors;
    const way = totp ? 'app' : phone ? 'sms' : 'none';
    const required = factors.secondFactorPolicy === 'required';
    const can = !required && (on || way !== 'none');
    return [
      row(
        [
          el('p', {}, !on ? t('security.twostep.off') : way === 'sms' ? isolated('security.twostep.on.sms', 'phone', phone) : t(`security.twostep.on.${way}`)),
          !on && way === 'none' && el('p', {}, t('security.twostep.off.none')),
          required && el('p', {}, t('security.twostep.required')),
        ],
        can && opened !== 'twostep' && opens('twostep', 'twostep', t(on ? 'security.twostep.turnoff' : 'security.twostep.turnon'), { destroys: on })),
      opened === 'twostep' && confirmation('twostep', t(on ? 'security.twostep.off.ask' : 'security.twostep.on.ask'), t(on ? 'security.twostep.turnoff' : 'security.twostep.turnon'), () =>
        change('twostep', 'twostep', () => me.setSecondFactor(!on), t(on ? 'security.twostep.off.done' : 'security.twostep.on.done')), on),
    ];
  },

  app() {
    const { secondFactor: on, totp, userPhone: phone } = factors;
    const asks = opened === 'app' || opened === 'app-remove';
    const needed = on && !phone; // the server refuses to remove it
    return [
      row(
        el('p', {}, t(!isAsked() ? 'security.app.extra' : !totp ? 'security.app.off' : on ? 'security.app.on' : 'security.app.idle')),
        !asks && button(t(totp ? 'security.app.replace' : 'security.app.setup'), enrol, 'quiet'),
        !asks && totp && !needed && opens('app', 'app-remove', t('security.remove'), { destroys: true })),
      opened === 'app' && enrolmentForm(),
      opened === 'app-remove' && confirmation('app', on && isAsked() ? isolated('security.app.remove.sms', 'phone', phone) : t('security.app.remove.text'), t('security.remove'), () =>
        change('app', 'app-remove', () => me.removeTOTP(), t('security.app.removed'))),
    ];
  },

  codes: () => codes ? [
    el('p', {}, t('security.codes.once')),
    el('ul', { class: 'codes secret', translate: 'no', role: 'list', dir: 'ltr' }, codes.map((code) => el('li', {}, code))),
    actions(
      button(t('security.codes.kept'), () => { codes = null; close('codes'); }, 'main'),
      el('a', { class: 'other', href: `data:text/plain;charset=utf-8,${encodeURIComponent(listed())}`, download: `${t('security.codes')} ${config.name}.txt` }, t('security.download')),
      button(t('security.print'), () => print(), 'other'),
      copies('codes', listed)),
  ] : [
    row(el('p', {}, t('security.codes.text')), opened !== 'codes' && opens('codes', 'codes', t('security.codes.create'))),
    opened === 'codes' && confirmation('codes', t(factors.backupCodesLeft > 0 ? 'security.codes.replace' : 'security.codes.once'), t('security.codes.create'), createCodes, factors.backupCodesLeft > 0),
  ],

  devices: () => [
    row(
      el('p', {}, devices.length > 0 ? t('security.devices.text') : factors.passwordSet || offersDevice(config) ? t('security.devices.none', { choice: t('login.device') }) : t('security.none')),
      devices.length > 1 && opened !== 'devices-all' && opens('devices', 'devices-all', t('security.devices.all'), { destroys: true })),
    opened === 'devices-all' && confirmation('devices', t('security.devices.all.text'), t('security.devices.all'), () =>
      change('devices', opened, () => me.forgetDevices(), t('security.devices.forgotten.all'))),
    devices.length > 0 && el('ul', { class: 'items', role: 'list' }, devices.map((known, i) => {
      const dialog = `devices-${known.deviceId}`;
      return el('li', { class: 'item' },
        row(
          [
            el('b', { id: `devices-${i}`, dir: 'auto' }, nameOf(known)),
            known.current && el('span', { class: 'badge' }, t('security.sessions.current')),
            el('p', {}, t('security.devices.since', { time: moment(known.createdAt) }), ' · ', el('bdi', { dir: 'ltr' }, known.address)),
            el('p', {}, t('security.devices.until', { time: moment(known.expiresAt) })),
            known.skipSecondFactor && el('p', {}, t('security.devices.skip')),
          ],
          opened !== dialog && opens('devices', dialog, t('security.devices.forget'), { destroys: true, of: `devices-${i}` })),
        opened === dialog && confirmation('devices', t('security.devices.forget.text', { name: nameOf(known) }), t('security.devices.forget'), () =>
          change('devices', dialog, () => me.forgetDevice(known.deviceId), t('security.devices.forgotten'))));
    })),
  ],

  tokens: () => issued ? [
    el('p', {}, t('security.tokens.once')),
    el('p', { class: 'secret token', translate: 'no', dir: 'ltr' }, issued),
    actions(button(t('security.tokens.kept'), () => { issued = null; close('tokens'); }, 'main'), copies('tokens', () => issued)),
  ] : [
    row(el('p', {}, t('security.tokens.text')), opened !== 'tokens' && opens('tokens', 'tokens', t('security.tokens.create'))),
    opened === 'tokens' && form('tokens', issue, t('security.tokens.submit'),
      field({ name: 'name', label: t('security.tokens.name'), autocomplete: 'off', dir: 'auto', maxlength: '128' }),
      field({ name: 'paths', label: t('security.tokens.paths'), hint: el('div', { class: 'hint' }, t('security.tokens.paths.hint')), ...verbatim, autocomplete: 'off', dir: 'ltr', value: '/*' }),
      choices('methods', t('security.tokens.may'), [
        { value: 'GET', label: t('security.tokens.may.read'), checked: true },
        { value: 'GET POST PUT PATCH DELETE', label: t('security.tokens.may.change') },
      ]),
      el('div', { class: 'field' }, el('label', { for: 'life' }, t('security.tokens.life')), el('div', { class: 'entry' }, el('select', { id: 'life', name: 'life' }, lives().map((life) =>
        el('option', { value: String(life), selected: life === month }, time(life)(language))))))),
    tokens.length > 0 && el('ul', { class: 'items', role: 'list' }, tokens.map((token, i) => {
      const dialog = `tokens-remove-${token.id}`;
      return el('li', { class: 'item' },
        row(
          [
            el('b', { id: `tokens-${i}`, dir: 'auto' }, token.acting ? t('security.tokens.acting') : token.name),
            el('p', {}, el('bdi', { class: 'scope', dir: 'ltr' }, [...token.methods, ...token.paths].join(' '))),
            el('p', {}, token.lastUsed ? t('security.tokens.used', { time: ago(token.lastUsed) }) : t('security.tokens.since', { time: moment(token.createdAt) })),
            el('p', {}, t('security.tokens.until', { time: moment(token.expiresAt) })),
          ],
          opened !== dialog && opens('tokens', dialog, t('security.remove'), { destroys: true, of: `tokens-${i}` })),
        opened === dialog && confirmation('tokens', token.acting ? t('security.tokens.remove.acting') : t('security.tokens.remove.text', { name: token.name }), t('security.remove'), () =>
          change('tokens', dialog, () => me.removeToken(token.id), t('security.tokens.removed'))));
    })),
  ],

  sessions: () => [
    row(
      el('p', {}, t(factors.passwordSet ? 'security.sessions.text' : 'security.sessions.text.none')),
      sessions.length > 1 && button(t('security.sessions.all'), () => change('sessions', null, () => me.endOtherSessions(), t('security.sessions.ended.all')), 'quiet')),
    el('ul', { class: 'items', role: 'list' }, [...sessions].sort((a, b) => b.current - a.current || b.lastUsed.localeCompare(a.lastUsed)).map(listedSession)),
  ],
};

// states say at a glance what a section is about.
const states = {
  twostep: () => t(factors.secondFactor ? 'security.on' : 'security.off'),
  app: () => t(factors.totp ? 'security.on' : 'security.off'),
  codes: () => factors.backupCodesLeft ? t('security.left', { n: factors.backupCodesLeft }) : t('security.none'),
};

// isAsked reports whether logins of the user can ask for a second factor.
const isAsked = () => factors.secondFactorPolicy !== 'off' && factors.passwordSet;

// Whether a path that needs two factors has led here, where the user has only one. An app
// that was there has the same effect, so its section stays once it was shown.
let lacks = new URLSearchParams(location.search).has('mfa');

// visible lists the sections to show. An app is only a second factor, of logins or of paths
// that need two. A backup code replaces any code, also that of a login without a password.
function visible() {
  const second = isAsked(), app = second || (lacks ||= factors.totp);
  const replaces = second ? factors.secondFactor : factors.totp || !factors.passwordSet && factors.userPhone;
  for (const kind in contacts) contacts[kind].shown ||= factors[kind] || factors.provable.includes(kind);
  return ['password', ...Object.keys(contacts).filter((kind) => contacts[kind].shown), ...config.passkeys ? ['passkeys'] : [], ...second ? ['twostep'] : [], ...app ? ['app'] : [], ...codes || replaces ? ['codes'] : [], 'sessions', ...config.devices ? ['devices'] : [], ...config.issuedTokens ? ['tokens'] : []];
}

const nameOf = ({ userAgent }) => device(userAgent) ?? t('security.sessions.unknown');

function listedSession(session) {
  const id = `session-${session.sessionId}`;
  return el('li', { class: 'item' }, row(
    [
      el('b', { id, dir: 'auto' }, nameOf(session)),
      session.current && el('span', { class: 'badge' }, t('security.sessions.current')),
      el('p', {}, session.current ? t('security.sessions.now') : t('security.sessions.used', { time: ago(session.lastUsed) }), ' · ', el('bdi', { dir: 'ltr' }, session.address)),
      el('p', {}, t('security.sessions.since', { time: moment(session.createdAt) })),
    ],
    session.current
      ? el('a', { class: 'quiet', href: 'logout' }, t('logout.submit'))
      : el('button', {
        type: 'button', class: 'quiet', 'aria-describedby': id,
        onclick: () => change('sessions', null, () => me.endSession(session.sessionId), t('security.sessions.ended')),
      }, t('security.sessions.end'))));
}

// Email and phone

// Sections of contacts stay once they were shown. The attributes are those of the field.
const contacts = {
  email: { attributes: { ...verbatim, inputmode: 'email', autocomplete: 'email', dir: 'auto' } },
  phone: { attributes: { type: 'tel', autocomplete: 'tel', dir: 'ltr' } },
};

let sent = null; // what came with the code that the open dialog asks for

function contactSection(kind) {
  const present = factors[kind];
  const asks = opened === kind || opened === `${kind}-remove`;
  const unproven = present && !present.verifiedAt;
  const { attributes } = contacts[kind];
  return [
    row(
      [
        el('p', {}, present ? el('b', { id: `${kind}-value`, dir: attributes.dir }, present.value) : t(`security.${kind}.none`)),
        present && el('p', {}, unproven ? t('security.contact.unproven') : t('security.contact.since', { time: moment(present.verifiedAt) })),
      ],
      !asks && factors.provable.includes(kind) && opens(kind, kind, t(unproven ? 'security.contact.confirm' : `security.${kind}.${present ? 'change' : 'add'}`), { of: present && `${kind}-value` }),
      !asks && present?.removable && opens(kind, `${kind}-remove`, t('security.remove'), { destroys: true, of: `${kind}-value` })),
    opened === kind && (sent ? codeForm(kind) : form(kind, (values) => sendCode(kind, values[`new${kind}`]), t('security.contact.send'),
      el('p', { id: `${kind}-ask` }, t('security.contact.later')),
      field({ name: `new${kind}`, label: t(`security.${kind}.label`), maxlength: '254', above: `${kind}-ask`, ...attributes, value: kind === 'email' && unproven ? present.value : '' }))),
    opened === `${kind}-remove` && confirmation(kind, t(`security.${kind}.remove.text`), t('security.remove'), () =>
      change(kind, opened, () => me[kind].remove(), t(`security.${kind}.removed`))),
  ];
}

const sendCode = (kind, value, told = '') => act(kind, kind, async () => {
  const answer = await me[kind].send(value);
  sent = { value, token: answer.contactToken, to: answer.userPhone ?? answer.userEmail };
  tell(kind, told);
  show(kind);
  $('#code').focus();
}, true);

const sending = { again: 0, get busy() { return acting; } };

// isPresent reports whether the code was sent to what the account has. Two phones can look
// alike, because they are masked. One that is proven is there to be changed.
const isPresent = (kind) => sent.to === factors[kind]?.value && !(kind === 'phone' && factors.phone.verifiedAt);

const codeForm = (kind) => form(kind, ({ code }) => change(kind, kind, () => me[kind].confirm(sent.token, code), t(isPresent(kind) ? 'security.contact.confirmed' : `security.${kind}.changed`)),
  t('code.submit'),
  el('div', { id: `${kind}-ask` }, isolated(kind === 'phone' ? 'code.sent' : 'security.email.sent', kind, sent.to)),
  codeField({ length: kind === 'phone' ? config.otp.length : 8, above: `${kind}-ask` }),
  el('p', {}, pausing(sending, t('code.resend'), () => sendCode(kind, sent.value, t('notice.code.resent')))));

// Passkeys

// create lets the browser create a passkey. Users may cancel its dialog.
const create = () => act('passkeys', 'passkeys', async () => {
  try {
    await me.addPasskey();
  } catch (error) {
    if (!isNone(error) && !(error instanceof DOMException)) throw error;
    return tell('passkeys', t(error.name === 'InvalidStateError' ? 'security.passkeys.exists' : 'offer.cancelled'), true);
  }
  settle();
  await refresh();
  close('passkeys', t('security.passkeys.done'));
});

// The authenticator app

let enrolment = null; // the secret and its picture

function enrol() {
  if (needed('app')) return toLogin('app', needed('app'));
  return act('app', 'app', async () => {
    enrolment = await me.newTOTP();
    open('app', 'app');
  });
}

function enrolmentForm() {
  const picture = document.importNode(new DOMParser().parseFromString(enrolment.qr, 'image/svg+xml').documentElement, true);
  for (const [name, value] of Object.entries({ class: 'qr', role: 'img', ...labelled(t('security.app.qr')) })) if (value) picture.setAttribute(name, value);
  return form('app', ({ code }) => confirm(code),
    t('security.app.confirm'),
    el('div', { id: 'app-ask' },
      el('p', {}, t('security.app.scan')),
      picture,
      el('p', {}, t('security.app.type')),
      el('p', { class: 'secret', translate: 'no', dir: 'ltr' }, enrolment.secret.replace(/.{4}\B/g, '$& '))),
    codeField({ length: appDigits, label: t('security.app.code'), above: 'app-ask' }));
}

// confirm makes the app take effect. Backup codes may come with it, which the user must
// keep now.
const confirm = (code) => act('app', 'app', async () => {
  const { backupCodes } = await me.confirmTOTP(code);
  await refresh();
  codes = backupCodes ?? null;
  close('app', t('security.app.done'));
  showOthers('app');
  if (!codes) return;
  tell('codes', t('security.codes.app'));
  say(t('security.codes.app')); // its element may be too new to be announced
  $('#codes h2').focus();
});

// Backup codes

let codes = null; // those to show, this once

// Whoever leaves the page while it shows codes or a token may not have saved them.
addEventListener('beforeunload', (event) => (codes || issued) && event.preventDefault());

const createCodes = () => act('codes', 'codes', async () => {
  codes = await me.newBackupCodes();
  await refresh();
  close('codes', t('security.codes.done'));
});

// listed returns the codes as a text that says what they are for.
const listed = () => [`${t('security.codes')}: ${config.name}`, factors.user, '', ...codes, ''].filter((line) => line !== undefined).join('\n');

// copies returns a button that copies a text of a section.
const copies = (section, textOf) => navigator.clipboard && button(t('security.copy'), async () => {
  const done = await navigator.clipboard.writeText(textOf()).then(() => true, () => false);
  tell(section, t(done ? 'security.copied' : 'security.copied.not'), !done);
}, 'other');

// Issued tokens

let issued = null; // the one to show, this once

const day = 86_400, month = 30 * day;

// lives returns for how many seconds a token may be valid. The last is as long as can be.
const lives = () => [...[day, 7 * day, month, 90 * day].filter((life) => life < config.issuedTokens.lifetime), config.issuedTokens.lifetime];

const issue = ({ name, paths, methods, life }) => act('tokens', 'tokens', async () => {
  ({ token: issued } = await me.issueToken({ name, paths: paths.trim().split(/\s+/), methods: methods.split(' '), expiresIn: Number(life) }));
  await refresh();
  close('tokens', t('security.tokens.done'));
});

// The page

const headings = { password: 'password.label', email: 'security.email', phone: 'security.phone', passkeys: 'security.passkeys', twostep: 'security.twostep', app: 'security.app', codes: 'security.codes', sessions: 'security.sessions', devices: 'security.devices', tokens: 'security.tokens' };

function show(name) {
  $(`#${name} .body`).replaceChildren(...sections[name]().filter(Boolean));
  $(`#${name} .state`).replaceChildren(marked(states[name]?.() ?? ''));
}

// showOthers shows what a change in one section changes in the others. A dialog that is open
// there stays as it is.
function showOthers(changed) {
  const wanted = visible();
  if (wanted.join() !== [...screen.querySelectorAll('section')].map(({ id }) => id).join()) return showAll(changed, $(`#${changed} .done`).textContent);
  for (const name of wanted) if (name !== changed && name !== opened?.split('-')[0]) show(name);
}

function showAll(focus, text) {
  const back = returnTo(new URLSearchParams(location.search).get('return_to') ?? '');
  entitle(t('security.heading'));
  $('main').dataset.screen = 'security';
  screen.replaceChildren(
    el('h1', { tabindex: '-1' }, t('security.heading')),
    factors.user ? el('p', { class: 'who' }, el('b', { dir: 'auto' }, factors.user)) : '',
    back ? el('a', { href: back }, t('security.back')) : '',
    ...visible().map((name) => el('section', { id: name, 'aria-labelledby': `${name}-heading` },
      el('div', { class: 'top' }, el('h2', { id: `${name}-heading`, tabindex: '-1' }, t(headings[name])), el('span', { class: 'state' })),
      el('p', { class: 'done', role: 'status' }),
      el('div', { class: 'body' }))));
  screen.removeAttribute('aria-busy');
  visible().forEach(show);
  if (text) {
    tell(focus, text);
    say(text); // its element is too new to be announced
  }
  $(focus ? `#${focus} h2` : 'h1', screen).focus();
}

// begin shows the page and, after a login that a change has asked for, its dialog.
async function begin() {
  try {
    client.start(); // a login that has begun in this tab is over
    const step = await client.resume({ byCookie: true });
    if (step.state !== 'authorized') return toLogin();
    ({ me, profileMnemocode: user } = step);
    config = await configOf(client);
    await load();
  } catch (error) {
    if (!(error instanceof MnemogateError)) throw error;
    if (/^auth\.token\./.test(error.code)) return toLogin();
    return failed(t('security.heading'), error, begin);
  }
  footer(config.links);
  showAll();
  const wanted = location.hash.slice(1);
  history.replaceState(null, '', location.pathname + location.search);
  const section = wanted.split('-')[0];
  if (wanted) soon = 500 * factors.freshFor; // self_service may be shorter
  if (!visible().includes(section) || needed(wanted)) return;
  if (wanted === 'app') return enrol();
  document.getElementById(`opens-${wanted}`)?.click(); // there is none for what the user can't do
}

await languages(async () => {
  config = await client.config().catch(() => config);
  if (config) footer(config.links);
  if (!factors) return $('main').dataset.screen === 'failed' ? begin() : undefined;
  const typed = [...screen.querySelectorAll('input[id], select')].map(({ id, value }) => [id, value]);
  const may = $('#methods :checked')?.value;
  showAll();
  if (may) $(`#methods [value='${may}']`).checked = true;
  for (const [id, value] of typed) restore(document.getElementById(id), value);
});
await seen();
begin();
