// The screens. screens[step.state] creates the screen of a step. It acts through
// page (see page.js).
import { el, anchor, button, field, form as formOf, choices, link, marked, submit, verbatim } from './ui.js';
import { t } from './texts.js';
import { captcha } from './captcha.js';
import { autofill } from './passkey.js';

// form returns a form whose fields the user must fill in before it is sent.
const form = (page, send, ...content) => formOf((of) => page.submit(of, send), ...content);

// username tells password managers whose login it is.
const username = ({ loginId }) => loginId && el('input', { type: 'text', name: 'username', autocomplete: 'username', value: loginId, readonly: true, hidden: true, tabindex: '-1' });

// who shows whose login it is.
const who = (page, step) => el('p', { class: 'who' },
  step.loginId && el('b', { dir: 'auto' }, step.loginId),
  username(step),
  button(t('login.other'), () => page.act(() => step.cancel())));

const links = (...content) => el('p', { class: 'links' }, content);

// consent asks for disclaimers. A checkbox is checked only if the user has checked
// it before.
function consent(page, disclaimers) {
  if (disclaimers.length === 0) return null;
  return choices('disclaimers', t('disclaimers.legend'), 'checkbox', disclaimers.map((d) => ({
    value: d.code,
    label: el('span', { dir: 'auto' }, t('disclaimers.accept', { title: d.title || d.code })),
    more: el('p', {}, el('span', { dir: 'auto' }, d.description), ' ', link(d.link, t('disclaimers.read', { title: d.title || d.code }))),
    checked: page.accepted.has(d.code),
  })));
}

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

export function login(page, step) {
  const providers = page.config.oauth.filter(({ authorizeUrl }) => authorizeUrl);
  return {
    stop: autofill(page, step),
    heading: t('login.heading'),
    body: [
      form(page, ({ login }) => step.login(login.trim()),
        field({ name: 'login', label: t('login.id'), autocomplete: page.config.passkeys ? 'username webauthn' : 'username', ...verbatim, maxlength: '254', value: page.loginId ?? '' }),
        page.config.remember && choice(page, 'remember', t('login.remember')),
        page.config.devices && choice(page, 'device', t('login.device')),
        submit(t('login.submit'))),
      (page.config.recovery.length > 0 || page.config.signup) && links(
        page.config.recovery.length > 0 && button(t('recover.offer'), () => page.show(step, { screen: recover })),
        page.config.signup && anchor(page.config.signup)),
      providers.length > 0 && el('p', { class: 'or' }, t('login.or')),
      providers.length > 0 && el('div', { class: 'stack' }, providers.map((provider) =>
        button([provider.icon && el('img', { src: provider.icon, alt: '' }), t('login.with', { name: provider.name || new URL(provider.authorizeUrl).hostname })], () => page.act(() => page.visit(step, provider)), 'other'))),
    ],
  };
}

function checkPassword(page, step) {
  const { element, response, missing } = proof(page, step.captchaRequired);
  return {
    heading: t('password.heading'),
    unproven: missing,
    body: [
      form(page, ({ password, disclaimers }) => step.checkPassword(password, { captcha: response(), acceptDisclaimers: disclaimers }),
        who(page, step),
        field({ name: 'password', label: t('password.label'), type: 'password', autocomplete: 'current-password', reveal: true }),
        element,
        consent(page, step.disclaimers),
        submit(t('password.submit'))),
      page.config.recovery.length > 0 && links(button(t('recover.offer'), () => page.show(step, { screen: recover }))),
    ],
  };
}

const codeField = () => field({ name: 'code', label: t('code.label'), autocomplete: 'one-time-code', inputmode: 'numeric', class: 'code', maxlength: '16', dir: 'ltr' });

function checkOTP(page, step) {
  return {
    heading: t('code.heading'),
    body: [
      el('p', { class: 'lead' }, step.phone ? sentTo('code.sent', 'phone', step.phone) : t('code.app')),
      form(page, ({ code, disclaimers }) => step.checkOTP(code, { acceptDisclaimers: disclaimers }),
        codeField(), consent(page, step.disclaimers), submit(t('code.submit'))),
      links(
        takes(step, 'sms') && button(t(step.phone ? 'code.resend' : 'code.sms'), () => page.act(() => step.renewOTP(), checkOTP)),
        takes(step, 'backup') && button(t('backup.offer'), () => page.show(step, { screen: useBackupCode })),
        button(t('login.other'), () => page.act(() => step.cancel()))),
    ],
    // A code by SMS allows one attempt. After that the page requests another one.
    renews: ({ step: left }) => left.codeSpent,
  };
}

export function useBackupCode(page, step) {
  return {
    heading: t('backup.heading'),
    body: [
      el('p', { class: 'lead' }, t('backup.text')),
      form(page, ({ backup, disclaimers }) => step.useBackupCode(backup, { acceptDisclaimers: disclaimers }),
        field({ name: 'backup', label: t('backup.label'), autocomplete: 'off', ...verbatim, class: 'code', maxlength: '64', dir: 'ltr' }),
        consent(page, step.disclaimers), submit(t('code.submit'))),
      links(
        step.notice === 'sms.exhausted'
          ? takes(step, 'sms') && button(t('code.resend'), () => page.act(() => step.renewOTP(), checkOTP))
          : button(t('backup.back'), () => page.show(step, { screen: checkOTP })),
        button(t('login.other'), () => page.act(() => step.cancel()))),
    ],
  };
}

function recoveryCheckOTP(page, step) {
  return {
    heading: t('code.heading'),
    body: [
      el('p', { class: 'lead' }, step.phone ? sentTo('code.sent', 'phone', step.phone) : t('code.sentsomewhere')),
      form(page, ({ code }) => step.checkOTP(code), codeField(), submit(t('code.submit'))),
      links(
        button(t('code.resend'), () => page.act(() => step.renewOTP())),
        button(t('recover.stop'), () => page.act(() => step.cancel()))),
    ],
    renews: ({ step: left }) => left.codeSpent,
  };
}

// sentTo returns a text with a value that is always written from left to right.
function sentTo(key, name, value) {
  const text = t(key, { [name]: '\0' });
  const [before, after = ''] = text.split('\0');
  const sentence = marked(text);
  const parts = [before, el('bdi', { dir: 'ltr' }, value), after];
  if (sentence === text) return parts;
  sentence.replaceChildren(...parts);
  return sentence;
}

function setPassword(page, step) {
  return {
    heading: t(isWelcome(page) ? 'welcome.password' : 'newpassword.heading'),
    body: [
      form(page, ({ newpassword, disclaimers }) => step.setPassword(newpassword, { acceptDisclaimers: disclaimers }),
        username(step),
        newPassword(page, step),
        consent(page, step.disclaimers),
        submit(t('newpassword.submit'))),
      links(button(t('login.other'), () => page.act(() => step.cancel()))),
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
  const list = el('ul', { class: 'rules', id: 'rules', 'aria-label': t('rule.all') }, lines);
  return field({
    name: 'newpassword', label: t('newpassword.label'), type: 'password', autocomplete: 'new-password', reveal: true, hint: list,
    oninput: ({ target }) => kept.forEach(([, holds], i) => lines[i].classList.toggle('kept', Boolean(target.value && holds?.(target.value)))),
  });
}

function acceptDisclaimers(page, step) {
  return {
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
    heading: t('recover.heading'),
    unproven: missing,
    body: [
      el('p', { class: 'lead' }, t('recover.text')),
      form(page, ({ login, method }) => {
        const options = { method: method ?? first, captcha: response() };
        page.loginId = login.trim();
        return step.state === 'checkpassword' ? step.recover({ ...options, loginId: page.loginId }) : step.recover(page.loginId, options);
      },
      field({ name: 'login', label: t('login.id'), autocomplete: 'username', ...verbatim, maxlength: '254', value: step.loginId ?? page.loginId ?? '' }),
      methods.length > 1 && choices('method', t('recover.how'), 'radio', methods.map((method) => ({ value: method, label: t(`recover.${method}`), checked: method === first }))),
      element,
      submit(t('code.submit'))),
      links(button(t('recover.stop'), () => page.show(step))),
    ],
  };
}

function checkQuestion(page, step) {
  return {
    heading: t('question.heading'),
    body: [
      form(page, ({ answer }) => step.checkAnswer(answer),
        field({ name: 'answer', label: el('span', { dir: 'auto' }, step.question), autocomplete: 'off', ...verbatim, maxlength: '256' }),
        submit(t('code.submit'))),
      links(button(t('recover.stop'), () => page.act(() => step.cancel()))),
    ],
  };
}

// With hardened, the address is masked unless it was the login id.
const isShown = (email) => email && email !== '***@***';

function linkMailed(page, step) {
  return {
    heading: t('mail.heading'),
    body: [
      el('p', { class: 'lead' }, isShown(step.email) ? sentTo('mail.text', 'email', step.email) : t('mail.textsomewhere')),
      el('p', { class: 'hint' }, t('mail.hint')),
      links(
        button(t('mail.again'), () => page.show(step, { screen: recover })),
        button(t('login.back'), () => page.show(step, { screen: login }))),
    ],
  };
}

// isWelcome reports whether the link that was opened is for a new user.
const isWelcome = (page) => page.link?.startsWith('mgw_');

// openLink waits for a click, because mail scanners open links too.
export function openLink(page, step) {
  const kind = isWelcome(page) ? 'welcome' : 'link';
  return {
    heading: t(isWelcome(page) ? 'welcome.heading' : 'recover.heading'),
    body: [
      el('p', { class: 'lead' }, t(`${kind}.text`)),
      form(page, () => step.checkLink(page.link), submit(t(isWelcome(page) ? 'welcome.submit' : 'code.submit'))),
      links(button(t('login.back'), () => page.show(step, { screen: login }))),
    ],
  };
}

// deadLink offers a new link after one that no longer works.
export function deadLink(page, step) {
  const renewable = page.config.recovery.includes('MAIL');
  return {
    heading: t('deadlink.heading'),
    body: [
      el('p', { class: 'lead' }, t('deadlink.text')),
      el('p', { class: 'stack' },
        renewable && button(t('deadlink.again'), () => page.show(step, { screen: recover }), 'main'),
        button(t('login.back'), () => page.show(step, { screen: login }), renewable ? 'other' : 'main')),
      page.support().length > 0 && links(...page.support()),
    ],
  };
}

function already(page, step) {
  return {
    heading: t('already.heading'),
    body: [el('div', { class: 'stack' },
      button(t('already.continue'), () => page.go(), 'main'),
      button(t('logout.submit'), () => page.act(() => step.logout()), 'other'))],
  };
}

export function logout(page, step) {
  return {
    heading: t('logout.heading'),
    body: [
      el('p', { class: 'lead' }, t('logout.text')),
      form(page, step.logout ?? page.client.logout, submit(t('logout.submit'))),
    ],
  };
}

export function loggedOut(page) {
  return {
    heading: t('notice.logout.done'),
    notice: '',
    body: [el('a', { class: 'main', href: new URL('login', location.href).pathname }, t('password.submit'))],
  };
}

// going offers a link, because the browser stays here if the goal is a download.
export const going = (page) => ({ heading: t('going.heading'), body: [links(el('a', { href: page.goal() }, t('already.continue')))] });

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
  authorized: already,
};
