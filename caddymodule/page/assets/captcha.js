// Captchas: an element for a form, and the response once the user has solved it.
import { el, field, labelled, marked } from './ui.js';
import { t, language } from './texts.js';

const widgets = {
  turnstile: ['https://challenges.cloudflare.com/turnstile/v0/api.js?render=explicit', 'turnstile'],
  hcaptcha: ['https://js.hcaptcha.com/1/api.js?render=explicit', 'hcaptcha'],
  recaptcha: ['https://www.google.com/recaptcha/api.js?render=explicit', 'grecaptcha'],
};

// captcha returns a captcha of the company's type. Its response() is the response to
// send. It is undefined if there is none yet.
export function captcha({ type, siteKey }, client) {
  if (type === 'pow') return work(client);
  if (widgets[type]) return widget(type, siteKey);
  return typed();
}

// typed is an input for static captchas in tests, and for captchas of other types,
// which only the operator's own page can show.
function typed() {
  const element = field({ name: 'captcha', label: t('captcha.typed'), autocomplete: 'off' });
  return { element, response: () => element.querySelector('input').value };
}

// work solves a challenge at once, so that the response is ready when the form is
// filled in. After four minutes it solves a new one.
function work(client) {
  const stop = new AbortController();
  let begun, solved;
  const element = el('p', { class: 'hint' });
  const says = (text) => element.replaceChildren(marked(text));
  const response = () => {
    if (!(Date.now() - begun < 240_000)) {
      begun = Date.now();
      says(t('captcha.work'));
      solved = client.solveCaptcha({ signal: stop.signal });
      solved.then(() => says(t('captcha.done')), () => {
        begun = undefined; // the caller of response gets the error
        says('');
      });
    }
    return solved;
  };
  response();
  return { element, response, stop: () => stop.abort() };
}

function widget(type, siteKey) {
  const place = el('div', { class: 'captcha' });
  const element = el('div', { id: 'captcha', role: 'group', tabindex: '-1', 'aria-describedby': 'captcha-error', ...labelled(t('captcha.label')) }, place, el('p', { id: 'captcha-error', class: 'error', hidden: true }));
  let response;
  load(type).then((api) => api.render(place, {
    sitekey: siteKey,
    hl: language, language,
    size: innerWidth < 400 ? 'compact' : type === 'turnstile' ? 'flexible' : 'normal',
    theme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light',
    callback: (solved) => { response = solved; },
    'expired-callback': () => { response = undefined; },
    'error-callback': () => { response = undefined; },
  })).catch(() => place.replaceChildren(el('p', { class: 'error', role: 'alert' }, t('captcha.unreachable'))));
  return { element, response: () => response };
}

// load loads a provider's script once.
function load(type) {
  const [src, name] = widgets[type];
  return loading[type] ??= new Promise((resolve, reject) => {
    const script = el('script', {
      src, async: true,
      onload: () => {
        const api = globalThis[name];
        if (name === 'grecaptcha') api.ready(() => resolve(api));
        else resolve(api);
      },
      onerror: () => { delete loading[type]; reject(new Error(src)); },
    });
    document.head.append(script);
  });
}
const loading = {};
