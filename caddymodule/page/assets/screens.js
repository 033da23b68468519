// The screens. screens[step.state] creates the screen of a step. It acts through
// page (see page.js).
import { $, el, anchor, button, field, form as formOf, choices, link, marked, submit, verbatim } from './ui.js';
import { t, time, language } from './texts.js';
import { captcha } from './captcha.js';
import { autofill, passkey, usePasskey } from './passkey.js';

// form returns a form whose fields the user must fill in before it is sent.
const form = (page, send, ...content) => formOf((of) => page.submit(of, send), ...content);

// username tells password managers whose login it is.
export const username = ({ loginId }) => loginId && el('input', { type: 'text', name: 'username', autocomplete: 'username', value: loginId, readonly: true, hidden: true, tabindex: '-1' });

// who shows whose login it is, and lets the user begin another one.
const who = (page, step) => el('p', { class: 'who' },
  named(step.loginId), username(step), button(t('login.other'), () => page.act(() => step.cancel())));

// named shows what a user is called.
const named = (user) => user && el('b', { dir: 'auto' }, user);

// isMasked reports whether a user is called by a masked phone, which is no login id.
export const isMasked = (user) => /^\+\d\d\*+\d\d$/.test(user);

const links = (...content) => el('p', { class: 'links' }, content);

// consent asks for disclaimers. A checkbox is checked only if the user has checked
// it before.
const consent = (page, disclaimers) => disclaimers.length > 0 && el('fieldset', { id: 'disclaimers' },
  el('legend', {}, t('disclaimers.legend')),
  disclaimers.map((d, i) => {
    const id = `disclaimers-${i}`, title = d.title || d.code;
    const read = link(d.link, isolated('disclaimers.read', 'title', title, 'auto'));
    return el('div', { class: 'disclaimer' },
      el('b', { id: `${id}-title`, dir: 'auto' }, title),
      d.description && el('p', { id: `${id}-text`, dir: 'auto' }, d.description),
      read && el('p', {}, read),
      el('label', { class: 'agree' },
        el('input', { id, name: 'disclaimers', type: 'checkbox', value: d.code, checked: page.accepted.has(d.code), 'aria-labelledby': `${id}-agree ${id}-title`, 'aria-describedby': `${d.description ? `${id}-text ` : ''}${id}-error` }),
        el('span', { id: `${id}-agree` }, t('disclaimers.accept'))),
      el('p', { id: `${id}-error`, class: 'error', hidden: true }));
  }));

// proof returns a captcha if one is required.
function proof(page, due) {
  const made = due && page.config.captcha.type !== 'off' ? captcha(page.config.captcha, page.client) : null;
  page.leave(() => made?.stop?.());
  const response = () => made?.response();
  return { element: made?.element ?? null, response, missing: () => made !== null && response() === undefined };
}

// takes reports whether the user can enter this second factor. If the server does not
// say, it may be so.
export const takes = (step, factor) => step.state === 'checkotp' && (step.secondFactors?.includes(factor) ?? true);

// choice is a checkbox whose state the page keeps.
const choice = (page, name, text) => el('label', { class: 'check' },
  el('input', { id: name, type: 'checkbox', checked: page.chose(name), onchange: ({ target }) => page.choose(name, target.checked) }), el('span', {}, text));

// remembering lets the user have the device remembered.
const remembering = (page, name) => page.config.devices && choice(page, 'device', t(name));

// offersDevice reports whether the first screen lets the user have the device remembered.
// Logins with a passkey or at a provider have no other screen for it.
export const offersDevice = ({ devices, passkeys, oauth }) => devices && (passkeys || oauth.length > 0);

// forgot leads to the recovery.
const forgot = (page, step) => page.config.recovery.length > 0 && button(t('recover.offer'), () => page.turnTo(step, recover));

// login asks for a login id. It knows that of a user who is logged in and must log in again.
export function login(page, step) {
  // An OpenID provider that did not answer while the page was made may answer later.
  const providers = page.config.oauth.filter(({ authorizeUrl, name, scope }) => authorizeUrl || name && scope.split(' ').includes('openid'));
  const masked = isMasked(step.user);
  const ways = [
    passkey(page, () => step),
    ...providers.map((provider) =>
      button([provider.icon && el('img', { src: provider.icon, alt: '' }), el('span', {}, isolated('login.with', 'name', provider.name || new URL(provider.authorizeUrl).hostname, 'auto'))], () => page.act(() => page.visit(step, provider)), 'other')),
  ].filter(Boolean);
  return {
    stop: autofill(page, step),
    name: 'login',
    heading: t('login.heading'),
    body: [
      masked && el('p', { class: 'lead' }, isolated('login.as', 'user', step.user)),
      form(page, ({ login }) => step.login(login.trim()),
        loginField({ autocomplete: page.config.passkeys ? 'username webauthn' : 'username', enterkeyhint: 'next', value: page.loginId ?? (masked ? '' : step.user ?? '') }),
        page.config.remember && choice(page, 'remember', t('login.remember')),
        offersDevice(page.config) && remembering(page, 'login.device'), // for logins without a password
        submit(t('login.submit'))),
      page.config.recovery.length > 0 && links(forgot(page, step)),
      ...otherwise(ways),
      page.config.signup && el('p', { class: 'signup' }, anchor(page.config.signup)),
    ],
  };
}

const loginField = (attributes) => field({ name: 'login', label: t('login.id'), ...verbatim, dir: 'auto', maxlength: '254', ...attributes });

// otherwise shows other ways to log in, below a form.
const otherwise = (ways) => ways.length > 0 ? [el('p', { class: 'or' }, t('login.or')), el('div', { class: 'stack' }, ways)] : [];

const passwordField = (attributes) => field({ name: 'password', label: t('password.label'), type: 'password', autocomplete: 'current-password', reveal: true, ...attributes });

function checkPassword(page, step) {
  const { element, response, missing } = proof(page, step.captchaRequired);
  return {
    name: 'password',
    heading: t('password.heading'),
    unproven: missing,
    body: [
      form(page, ({ password, disclaimers }) => step.checkPassword(password, { captcha: response(), acceptDisclaimers: disclaimers }),
        who(page, step),
        passwordField({ beside: forgot(page, step) }),
        remembering(page, 'login.device'),
        element,
        consent(page, step.disclaimers),
        submit(t('password.submit'))),
      ...otherwise([passkey(page, () => step.cancel())].filter(Boolean)),
    ],
  };
}

// codeField is for a code with this number of digits. It takes them out of a message that
// is pasted, and sends a whole code by itself, unless something else is missing. With auto,
// nothing else can be, and it says so.
export function codeField({ length, hint, auto = true, ...attributes }) {
  const digits = `\\p{Nd}(?:[\\p{Zs}\\p{Pd}\\p{Cf}]?\\p{Nd}){${length - 1}}`; // in groups, as people write them
  const whole = new RegExp(`^\\s*${digits}\\s*$`, 'u');
  const within = new RegExp(`(?:^|\\P{Nd})(${digits})(?!\\p{Nd})`, 'u'); // Safari 16.0 has no lookbehind
  const made = field({
    name: 'code', label: t('code.label'), autocomplete: 'one-time-code', inputmode: 'numeric', class: 'code digits', maxlength: '16', dir: 'ltr', ...attributes,
    hint: el('p', { class: 'hint' }, hint, ' ', auto && t('code.auto')),
    onpaste(event) {
      const found = within.exec(event.clipboardData.getData('text'))?.[1];
      if (!found) return;
      event.preventDefault();
      event.target.value = found;
      event.target.dispatchEvent(new Event('input'));
    },
    oninput({ target }) {
      if (whole.test(target.value) && !target.form.querySelector('#disclaimers input:not(:checked)')) target.form.requestSubmit();
    },
  });
  $('input', made).style.setProperty('--digits', length);
  return made;
}

// validity says how long a code is valid. It describes the field with the focus, so screen
// readers would announce each change: they get only its beginning and its end.
function validity(page, step) {
  const until = page.codeUntil(step);
  if (!step.phone || Number.isNaN(until)) return null;
  const said = el('span', { class: 'visually-hidden' }), seen = el('span', { 'aria-hidden': 'true' });
  every(seen, () => {
    const left = (until - Date.now()) / 1000;
    const text = left > 0 ? t('code.valid', { time: time(left, 'long', Math.round) }) : t('code.over');
    if (seen.textContent === text) return;
    seen.replaceChildren(marked(text));
    if (left <= 0 || !said.firstChild) said.replaceChildren(marked(text));
  });
  return [said, seen];
}

// every calls tick now and each second, as long as the element is on the screen.
function every(element, tick) {
  tick();
  const ticking = setInterval(() => element.isConnected ? tick() : clearInterval(ticking), 1000);
}

// appDigits is how many digits a code of an app has, for which SMS have their own setting.
export const appDigits = 6;

// pause keeps users who press again and again from using up their codes.
const pause = 30_000;

// resend returns a button that requests a code.
const resend = (page, text, step, { then, kind } = {}) => pausing(page, text, () => page.act(() => step.renewOTP(), then), kind);

// pausing returns a button that counts down after it was pressed. The page has the time
// when it may be pressed again. Screen readers, which would announce each second, do not see
// the countdown.
export function pausing(page, text, request, kind) {
  const rest = el('span', { 'aria-hidden': 'true' });
  const made = button([text, rest], () => {
    if (page.busy || Date.now() < page.again) return;
    page.again = Date.now() + pause;
    request();
  }, kind);
  let last = 0;
  every(made, () => {
    const left = Math.max(0, Math.ceil((page.again - Date.now()) / 1000));
    if (left === last) return;
    last = left;
    rest.textContent = left > 0 ? ` (${time(left, 'narrow')(language)})` : '';
    if (left > 0) made.setAttribute('aria-disabled', 'true');
    else made.removeAttribute('aria-disabled');
  });
  return made;
}

// spent replaces the form if a code was used up and no other one was sent.
function spent(page, step, then, ...more) {
  const over = page.noMoreCodes;
  return {
    name: 'code',
    heading: t('code.spent'),
    body: [
      over ? button(t('login.back'), () => page.act(() => step.cancel()), 'main') : resend(page, t('code.resend'), step, { then, kind: 'main' }),
      links(...more, !over && button(t('login.back'), () => page.act(() => step.cancel()))),
    ],
  };
}

const useBackup = (page, step) => takes(step, 'backup') && button(t('backup.offer'), () => page.turnTo(step, useBackupCode));

// lost says what to do without the phone.
const lost = (page, backup) => (backup || page.support().length > 0) && el('details', {},
  el('summary', {}, t('code.lost')),
  backup && el('p', {}, t('code.lost.backup')),
  page.support().length > 0 && el('p', {}, t('code.lost.support'), ' ', ...page.support()));

function checkOTP(page, step) {
  if (step.codeSpent) return spent(page, step, checkOTP, useBackup(page, step));
  return {
    name: 'code',
    heading: t('code.heading'),
    body: [
      el('p', { class: 'lead' }, step.phone ? isolated('code.sent', 'phone', step.phone) : t('code.app')),
      form(page, ({ code, disclaimers }) => step.checkOTP(code, { acceptDisclaimers: disclaimers }),
        who(page, step),
        page.config.skipSecondFactor && remembering(page, 'code.device'), // before the code, which is sent by itself
        codeField({ length: step.phone ? page.config.otp.length : appDigits, hint: validity(page, step), auto: step.disclaimers.length === 0 }),
        consent(page, step.disclaimers),
        submit(t('code.submit'))),
      links(
        takes(step, 'sms') && resend(page, t(step.phone ? 'code.resend' : 'code.sms'), step, { then: checkOTP }),
        useBackup(page, step)),
      lost(page, takes(step, 'backup')),
    ],
    // A code by SMS allows one attempt. After that the page requests another one.
    renews: ({ step: left }) => left.codeSpent,
  };
}

const backupField = () => field({ name: 'backup', label: t('backup.label'), autocomplete: 'off', ...verbatim, class: 'code', maxlength: '64', dir: 'ltr' });

export function useBackupCode(page, step) {
  return {
    name: 'backup',
    heading: t('backup.heading'),
    body: [
      el('p', { class: 'lead' }, t('backup.text')),
      form(page, ({ backup, disclaimers }) => step.useBackupCode(backup, { acceptDisclaimers: disclaimers }),
        who(page, step),
        backupField(),
        consent(page, step.disclaimers), submit(t('code.submit'))),
      links(
        step.notice === 'sms.exhausted'
          ? takes(step, 'sms') && resend(page, t('code.resend'), step, { then: checkOTP })
          : button(t('backup.back'), () => page.turnTo(step, checkOTP))),
      lost(page),
    ],
  };
}

function recoveryCheckOTP(page, step) {
  if (step.codeSpent) return spent(page, step);
  return {
    name: 'code',
    heading: t('code.heading'),
    body: [
      el('p', { class: 'lead' }, step.phone ? isolated('code.sent', 'phone', step.phone) : t('code.sentsomewhere')),
      form(page, ({ code }) => step.checkOTP(code), who(page, step), codeField({ length: page.config.otp.length, hint: validity(page, step) }), submit(t('code.submit'))),
      links(
        resend(page, t('code.resend'), step),
        button(t('recover.stop'), () => page.act(() => step.cancel()))),
      lost(page),
    ],
    renews: ({ step: left }) => left.codeSpent,
  };
}

// isolated returns a text with a value that is written in a direction of its own, as a bidi
// isolate.
export function isolated(key, name, value, dir = 'ltr') {
  const text = t(key, { [name]: '\0' });
  const [before, after = ''] = text.split('\0');
  const sentence = marked(text);
  const parts = [before, el('bdi', { dir }, value), after];
  if (sentence === text) return parts;
  sentence.replaceChildren(...parts);
  return sentence;
}

function setPassword(page, step) {
  return {
    name: 'newpassword',
    heading: t(isWelcome(page) ? 'welcome.password' : 'newpassword.heading'),
    body: [
      form(page, ({ newpassword, disclaimers }) => step.setPassword(newpassword, { acceptDisclaimers: disclaimers }),
        who(page, step),
        newPassword(page, step),
        consent(page, step.disclaimers),
        submit(t('newpassword.submit'))),
    ],
  };
}

const longest = 128;

// newPassword shows the rules before the user types, and marks those that the
// password meets. The server decides, and checks more: common passwords and the
// account's names.
export function newPassword(page, { rules }) {
  const { minLength } = page.config.password;
  const least = Number(/\d+/.exec(rules.description ?? '')?.[0] ?? minLength); // some accounts need more than the company's minimum
  let pattern = null;
  try {
    pattern = rules.regex && new RegExp(rules.regex);
  } catch {} // JavaScript does not support all of RE2
  const kept = [
    [t('rule.length', { min: least, max: longest }), (p) => Math.min([...p].length, [...p.normalize('NFKC')].length) >= least && [...p].length <= longest],
    [t('rule.common')],
    [t('rule.personal')],
    rules.regex && [el('span', { dir: 'auto' }, page.config.password.regexDescription || t('rule.pattern', { pattern: rules.regex })), pattern && ((p) => pattern.test(p.normalize('NFKC')))],
  ].filter(Boolean);
  const lines = kept.map(([text]) => el('li', {}, text));
  // A label of the list would replace it in what screen readers say of the field.
  const list = [el('span', { class: 'visually-hidden' }, t('rule.all')), el('ul', { class: 'rules', role: 'list' }, lines)];
  return field({
    name: 'newpassword', label: t('newpassword.label'), type: 'password', autocomplete: 'new-password', reveal: true, hint: list,
    oninput: ({ target }) => kept.forEach(([, holds], i) => lines[i].classList.toggle('kept', Boolean(target.value && holds?.(target.value)))),
  });
}

function acceptDisclaimers(page, step) {
  return {
    name: 'disclaimers',
    heading: t('disclaimers.heading'),
    body: [
      form(page, ({ disclaimers }) => step.acceptDisclaimers(disclaimers), consent(page, step.disclaimers), submit(t('disclaimers.submit'))),
      links(button(t('disclaimers.refuse'), () => page.act(() => step.cancel()))),
    ],
  };
}

export function recover(page, step) {
  const { element, response, missing } = proof(page, true);
  const methods = page.config.recovery;
  const first = page.method ?? (page.link && methods.includes('MAIL') ? 'MAIL' : methods[0]);
  return {
    name: 'recover',
    heading: t('recover.heading'),
    unproven: missing,
    body: [
      el('p', { class: 'lead' }, t('recover.text')),
      form(page, ({ login, method }) => {
        const options = { method: method ?? first, captcha: response() };
        page.loginId = login.trim();
        return step.state === 'checkpassword' ? step.recover({ ...options, loginId: page.loginId }) : step.recover(page.loginId, options);
      },
      loginField({ autocomplete: 'username', value: step.loginId ?? page.loginId ?? '' }),
      methods.length > 1 && choices('method', t('recover.how'), methods.map((method) => ({ value: method, label: t(`recover.${method}`), checked: method === first }))),
      element,
      submit(t('code.submit'))),
      links(button(t('recover.stop'), () => page.turnTo(step, step.state === 'linkmailed' ? login : undefined))),
    ],
  };
}

function checkQuestion(page, step) {
  return {
    name: 'question',
    heading: t('question.heading'),
    body: [
      form(page, ({ answer }) => step.checkAnswer(answer),
        field({ name: 'answer', label: el('span', { dir: 'auto' }, step.question), autocomplete: 'off', ...verbatim, dir: 'auto', maxlength: '256' }),
        submit(t('code.submit'))),
      links(button(t('recover.stop'), () => page.act(() => step.cancel()))),
    ],
  };
}

// With hardened, the address is masked unless it was the login id.
const isShown = (email) => email && email !== '***@***';

function linkMailed(page, step) {
  return {
    name: 'mailed',
    heading: t('mail.heading'),
    body: [
      el('p', { class: 'lead' }, isShown(step.email) ? isolated('mail.text', 'email', step.email) : t('mail.textsomewhere')),
      el('p', { class: 'hint' }, t('mail.hint')),
      links(
        button(t('mail.again'), () => page.turnTo(step, recover)),
        button(t('login.back'), () => page.turnTo(step, login))),
    ],
  };
}

// isWelcome reports whether the link that was opened is for a new user.
const isWelcome = (page) => page.link?.startsWith('mgw_');

// openLink waits for a click, because mail scanners open links too.
export function openLink(page, step) {
  const kind = isWelcome(page) ? 'welcome' : 'link';
  return {
    name: kind,
    heading: t(isWelcome(page) ? 'welcome.heading' : 'recover.heading'),
    body: [
      el('p', { class: 'lead' }, t(`${kind}.text`)),
      form(page, () => step.checkLink(page.link), submit(t(isWelcome(page) ? 'welcome.submit' : 'code.submit'))),
      links(button(t('login.back'), () => page.turnTo(step, login))),
    ],
  };
}

// deadLink offers a new link after one that no longer works.
export function deadLink(page, step) {
  const renewable = page.config.recovery.includes('MAIL');
  return {
    name: 'deadlink',
    heading: t('deadlink.heading'),
    body: [
      el('p', { class: 'lead' }, t(page.unanswered === openLink ? 'deadlink.lost' : 'deadlink.text')),
      el('p', { class: 'stack' },
        renewable && button(t('deadlink.again'), () => page.turnTo(step, recover), 'main'),
        button(t('login.back'), () => page.turnTo(step, login), renewable ? 'other' : 'main')),
      page.support().length > 0 && links(...page.support()),
    ],
  };
}

function already(page, step) {
  return {
    name: 'already',
    heading: t('already.heading'),
    body: [
      whose(step),
      el('div', { class: 'stack' },
        button(t('already.continue'), () => page.go(), 'main'),
        button(t('logout.submit'), () => page.act(() => step.logout()), 'other')),
    ],
  };
}

// stepUp asks a user who is logged in for one more factor. The form is that of the factor;
// the others are below it.
function stepUp(page, step) {
  const { factor, factors, phone } = step;
  const owner = el('p', { class: 'who' }, named(step.user ?? step.loginId), username({ loginId: !isMasked(step.user) && step.user }), button(t('login.other'), () => page.act(() => page.other())));
  const asks = {
    passkey: () => [owner, button(t('stepup.passkey'), () => page.act(() => usePasskey(step)), 'main')],
    otp: () => code(t('code.app'), appDigits),
    sms: () => step.codeSpent ? [owner, resend(page, t('code.resend'), step, { kind: 'main' })] : code(isolated('code.sent', 'phone', phone), page.config.otp.length),
    backup: () => [
      el('p', { class: 'lead' }, t('backup.text')),
      form(page, ({ backup }) => step.useBackupCode(backup), owner, backupField(), submit(t('code.submit'))),
    ],
    pwd: () => [form(page, ({ password }) => step.checkPassword(password), owner, passwordField(), submit(t('code.submit')))],
  };
  const code = (lead, length) => [
    el('p', { class: 'lead' }, lead),
    form(page, ({ code }) => step.checkOTP(code), owner, codeField({ length, hint: validity(page, step) }), submit(t('code.submit'))),
  ];
  return {
    name: 'stepup',
    heading: t('stepup.heading'),
    body: [
      el('p', { class: 'lead' }, t(`stepup.${step.for}`)),
      ...asks[factor](),
      links(
        factor === 'sms' && !step.codeSpent && resend(page, t('code.resend'), step),
        ...factors.filter((other) => other !== factor).map((other) => button(t(`stepup.use.${other}`), () => page.act(() => step.choose(other))))),
    ],
    renews: ({ step: left }) => left?.codeSpent, // as for a login
  };
}

// noFactor tells users of a path that needs two factors how to get the second one.
export function noFactor(page, step) {
  const back = new URLSearchParams({ mfa: 1, return_to: location.pathname + location.search });
  return {
    name: 'nofactor',
    heading: t('stepup.none.heading'),
    body: [
      whose(step),
      el('p', { class: 'lead' }, t(page.config.selfService ? 'stepup.none.text' : 'stepup.none.support')),
      page.config.selfService && el('a', { class: 'main', href: `security?${back}` }, t('stepup.none.setup')),
      links(...page.help(page.stuckBy), button(t('login.other'), () => page.act(() => page.other()))),
    ],
  };
}

// whose shows who is logged in.
const whose = ({ user }) => user && el('p', { class: 'who' }, named(user));

// unconfirmed asks the server what became of a login whose answer was lost. Without it, no
// cookie may have come.
export const unconfirmed = (page) => ({
  name: 'unconfirmed',
  heading: t('unconfirmed.heading'),
  body: [
    el('p', { class: 'lead' }, t('unconfirmed.text')),
    el('p', { class: 'stack' }, button(t('error.again'), () => page.act(() => page.client.resume()), 'main')),
  ],
});

// changed tells users that they are not who was logged in before.
export const changed = (page, step) => ({
  name: 'changed',
  heading: t('changed.heading'),
  body: [
    whose(step),
    el('p', { class: 'lead' }, isolated('changed.text', 'user', page.former.user)),
    button(t('already.continue'), () => page.go(), 'main'),
  ],
});

export function logout(page, step) {
  return {
    name: 'logout',
    heading: t('logout.heading'),
    body: [
      whose(step),
      el('p', { class: 'lead' }, t('logout.text')),
      form(page, step.logout ?? page.client.logout, submit(t('logout.submit'))),
    ],
  };
}

export function loggedOut(page) {
  return {
    name: 'loggedout',
    heading: t('notice.logout.done'),
    notice: '',
    body: [el('a', { class: 'main', href: new URL('login', location.href).pathname }, t('password.submit'))],
  };
}

// going offers a link, because the browser stays here if the goal is a download.
export const going = (page) => ({ name: 'going', heading: t('going.heading'), body: [links(el('a', { href: page.goal() }, t('already.continue')))] });

export const screens = {
  start: login,
  passwordset: login,
  linkmailed: linkMailed,
  checkpassword: checkPassword,
  checkotp: checkOTP,
  setpassword: setPassword,
  acceptdisclaimers: acceptDisclaimers,
  'recovery-checkotp': recoveryCheckOTP,
  'recovery-checkquestion': checkQuestion,
  'recovery-setpassword': setPassword,
  stepup: stepUp,
  authorized: already,
};
