// Elements of the page. All text is inserted as text, never as markup.
import { t, has, isLent, time } from './texts.js';

export const $ = (selector, within = document) => within.querySelector(selector);

// el creates an element. Attributes are strings, true or false. Attributes that
// begin with "on" are event listeners.
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  set(element, attributes);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false).map(marked));
  return element;
}

// marked marks a text that is in English on a page in another language, which may
// have another direction.
export const marked = (child) => isLent(child) ? el('span', { lang: 'en', dir: 'ltr' }, new Text(child)) : child;

function set(element, attributes) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value') element.value = value;
    else if (value === true) element.setAttribute(name, '');
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
}

// A key that is held must not answer the question that it has opened.
addEventListener('keydown', (event) => event.repeat && event.key === 'Enter' && event.preventDefault());

export const button = (text, onclick, kind = 'link') => el('button', { type: 'button', class: kind, onclick }, text);
export const submit = (text) => el('button', { type: 'submit', class: 'main' }, text);

// form returns a form that calls send with itself.
export const form = (send, ...content) => el('form', {
  method: 'post', novalidate: true,
  onsubmit(event) {
    event.preventDefault();
    send(event.target);
  },
}, content);

// busy marks a main button while what it began is under way.
export function busy(main, on) {
  main?.classList.toggle('busy', on);
  if (on) main?.setAttribute('aria-disabled', 'true');
  else main?.removeAttribute('aria-disabled');
}

// verbatim is for fields whose text is not words. Browsers send those to their spell
// checker, and phones change them.
export const verbatim = { autocapitalize: 'none', autocorrect: 'off', spellcheck: 'false' };

// field returns an input with a label and room for a hint and an error. The element with
// the id above describes it, too. What is beside the label comes after the field.
export function field({ name, label, hint, reveal, beside, above = '', ...attributes }) {
  const input = el('input', { id: name, name, type: 'text', required: true, enterkeyhint: 'go', 'aria-describedby': `${above} ${name}-hint ${name}-error`.trim(), ...reveal && verbatim, ...attributes });
  return el('div', { class: 'field' },
    el('label', { for: name }, label),
    el('div', { class: reveal ? 'entry reveal' : 'entry' }, input, reveal && revealer(input)),
    reveal && capsLock(input),
    el('div', { id: `${name}-hint` }, hint),
    el('p', { id: `${name}-error`, class: 'error', hidden: true }),
    beside && el('div', { class: 'beside' }, beside));
}

// capsLock returns a hint that caps lock is on, as far as the last key in an input tells.
function capsLock(input) {
  const hint = el('div', { class: 'hint', role: 'status' });
  const look = (event) => event.getModifierState && hint.replaceChildren(event.getModifierState('CapsLock') ? marked(t('password.capslock')) : ''); // autofill sends no real keys
  for (const type of ['keydown', 'keyup']) input.addEventListener(type, look);
  input.addEventListener('blur', () => hint.replaceChildren());
  return hint;
}

// labelled are the attributes of an element whose label is not on the screen.
export const labelled = (text) => ({ 'aria-label': text, lang: isLent(text) && 'en' });

// revealer returns a button that shows and hides the password in an input.
function revealer(input) {
  const toggle = el('button', {
    type: 'button', 'aria-pressed': 'false', ...labelled(t('password.show')), title: t('password.show'), 'aria-controls': input.id,
    onclick() {
      const shown = input.type === 'password';
      input.type = shown ? 'text' : 'password';
      toggle.setAttribute('aria-pressed', String(shown));
      input.focus();
    },
  }, eye());
  return toggle;
}

function eye() {
  const svg = document.createElementNS('http://www.w3.org/2000/svg', 'svg');
  svg.setAttribute('viewBox', '0 0 24 24');
  svg.setAttribute('aria-hidden', 'true');
  for (const [kind, d] of [
    ['', 'M2.5 12S6 5.5 12 5.5 21.5 12 21.5 12 18 18.5 12 18.5 2.5 12 2.5 12Z'],
    ['', 'M12 9a3 3 0 1 0 0 6 3 3 0 0 0 0-6Z'],
    ['slash', 'M4 20 20 4'],
  ]) {
    const path = document.createElementNS(svg.namespaceURI, 'path');
    path.setAttribute('d', d);
    if (kind) path.setAttribute('class', kind);
    svg.append(path);
  }
  return svg;
}

// choices returns a group of radio buttons, with room for an error.
export function choices(name, legend, options) {
  return el('fieldset', { id: name, 'aria-describedby': `${name}-error` },
    el('legend', {}, legend),
    options.map(({ value, label, checked }) => el('label', { class: 'choice' },
      el('input', { name, type: 'radio', value, checked, 'aria-describedby': `${name}-error` }),
      el('span', {}, label))),
    el('p', { id: `${name}-error`, class: 'error', hidden: true }));
}

// complain shows an error at a field, with what the user can do about it, and focuses the
// field. It reports whether the field exists.
export function complain(name, text, ...ways) {
  const error = document.getElementById(`${name}-error`);
  if (!error) return false;
  error.replaceChildren(marked(text), ...ways.flatMap((way) => [' ', marked(way)]));
  error.hidden = false;
  const of = document.getElementById(name);
  // A captcha is neither: an input of its widget may be hidden, and takes no focus then.
  const input = of.matches('input') ? of : of.matches('fieldset') ? $('input:not(:checked)', of) ?? $('input', of) : null;
  input?.setAttribute('aria-invalid', 'true');
  const target = input ?? of;
  if (target === document.activeElement) say(error.textContent); // screen readers speak only when the focus moves
  target.focus();
  return true;
}

// isFilled hides the errors of a form, and reports whether nothing required is missing.
export function isFilled(form) {
  for (const error of form.querySelectorAll('.error[id]')) {
    error.hidden = true;
    error.textContent = ''; // otherwise it still describes its field
  }
  for (const input of form.querySelectorAll('[aria-invalid]')) input.removeAttribute('aria-invalid');
  const empty = [...form.querySelectorAll('input[required]')].find(({ value, autocomplete }) => (/password/.test(autocomplete) ? value : value.trim()) === '');
  if (empty) complain(empty.name, t('error.empty'));
  return !empty;
}

// textOf returns the text for an error: by its reason, by its code, or a general one.
export function textOf({ code, reason, status }) {
  const key = [`reason.${reason}`, /^limit\.sms/.test(reason) && 'reason.limit.sms', status === 422 && `error.${code}.same`, `error.${code}`].find((key) => key && has(key));
  return key ? t(key) : t('error.other', { code });
}

// restore gives a field what was typed into it before, if the screen has the field.
export function restore(input, value) {
  if (!input) return;
  input.value = value;
  if (input.id === 'newpassword') input.dispatchEvent(new Event('input')); // for the marks at its rules
}

// waitOf returns for how many seconds to wait after an error, or 0 if that does not end the
// lock or limit, or may not. Errors with other codes say it themselves.
export const waitOf = ({ code, reason, retryAfter }) =>
  code === 'auth.restricted' && !/^(lock\.disabled|limit\.(renewals|sms_country))/.test(reason) ? retryAfter ?? 0 : 0;

export const waitFor = (seconds) => t('lock.wait', { time: time(seconds) });

// fieldOf returns the name of the field that an error concerns: the new password, or the
// one that fields has for its code.
export const fieldOf = ({ code, reason, status }, fields) => status === 422 || reason?.startsWith('password.') ? 'newpassword' : fields[code];

// told is the notice or alert under the heading. The element that gets the focus is
// described by it.
const told = 'told';

// tell shows a message under the heading, and removes the one before.
function tell(box) {
  document.getElementById(told)?.remove();
  $('h1').after(box);
}

// alert shows an error, with links and buttons for what the user can do about it.
export function alert(text, ...ways) {
  const box = el('div', { id: told, class: 'alert', role: 'alert' }, el('p', {}, el('bdi', {}, text)), ways.length > 0 && el('p', { class: 'links' }, ways));
  tell(box);
  return box;
}

// failed shows a page that could not begin, with a button to try again.
export function failed(heading, error, again, ...ways) {
  const screen = $('#screen');
  const retry = button(t('error.again'), () => {
    if (retry.matches('.busy')) return;
    busy(retry, true);
    again();
  }, 'main');
  screen.removeAttribute('aria-busy');
  $('main').dataset.screen = 'failed';
  screen.replaceChildren(el('h1', { id: 'heading', tabindex: '-1' }, heading), el('p', { class: 'stack' }, retry));
  alert(textOf(error), ...ways);
  focus(screen);
}

// entitle sets the title of the window.
export const entitle = (heading) => { document.title = [heading, $('main').dataset.title].filter(Boolean).join(' – '); };

// note shows what happened.
export const note = (text) => tell(el('p', { id: told, class: 'notice' }, text));

// focus focuses the first input of a screen, or what else the user needs next. For screen
// readers, which go on from there, what is above describes it.
export function focus(screen) {
  const target = $('input:not([hidden], .check *), .main', screen) ?? $('h1', screen);
  const lead = $('.lead', screen);
  if (lead) lead.id = 'lead';
  const above = [target.matches('.main') && 'heading', lead && 'lead', document.getElementById(told) && told];
  const ids = new Set([...target.getAttribute('aria-describedby')?.split(' ') ?? [], ...above.filter(Boolean)]);
  if (ids.size > 0) target.setAttribute('aria-describedby', [...ids].join(' '));
  target.focus();
  document.getElementById(told)?.scrollIntoView({ block: 'nearest' }); // small windows show only one of the two
}

// say announces a message to screen readers. Later it is gone: it may no longer be so.
export function say(text) {
  clearTimeout(forgetting);
  $('#said').textContent = text;
  forgetting = setTimeout(() => { $('#said').textContent = ''; }, 20_000);
}
let forgetting;

// anchor returns a link of the operator, whose address the server has checked.
export const anchor = ({ url, text }) => el('a', { href: url, dir: 'auto' }, text);

// footer shows the operator's links.
export function footer(links) {
  $('#links').hidden = links.length === 0;
  $('#links').replaceChildren(...links.map((link) => el('li', {}, anchor(link))));
}

// link returns a link to another site, or null if the address is not http or https.
export function link(address, text) {
  let url;
  try {
    url = new URL(address);
  } catch {}
  if (url?.protocol !== 'https:' && url?.protocol !== 'http:') return null;
  return el('a', { href: url.href, target: '_blank', rel: 'noopener noreferrer' }, text);
}
