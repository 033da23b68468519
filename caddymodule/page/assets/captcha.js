// Captchas: something to show in a form, and the response once it is there.
import { el, field } from './ui.js';
import { t, language } from './texts.js';

const widgets = {
  turnstile: ['https://challenges.cloudflare.com/turnstile/v0/api.js?render=explicit', 'turnstile'],
  hcaptcha: ['https://js.hcaptcha.com/1/api.js?render=explicit', 'hcaptcha'],
  recaptcha: ['https://www.google.com/recaptcha/api.js?render=explicit', 'grecaptcha'],
};

// captcha makes one. Its response() is what a step is sent; undefined while there is
// none, or where client.js finds it by itself.
export function captcha({ type, siteKey }, client) {
  if (type === 'pow') return work(client);
  if (widgets[type]) return widget(type, siteKey);
  return typed();
}

// typed is for captchas that tests answer, and for those that only the operator's own
// page knows to show.
function typed() {
  const element = field({ name: 'captcha', label: t('captcha.typed'), autocomplete: 'off' });
  return { element, response: () => element.querySelector('input').value };
}

// work begins at once, so that it is done by when the form is filled in. What has lain
// about for long is done anew.
function work(client) {
  const stop = new AbortController();
  let begun, solved;
  const response = () => {
    if (!(Date.now() - begun < 240_000)) {
      begun = Date.now();
      solved = client.solveCaptcha({ signal: stop.signal });
      solved.catch(() => { begun = undefined; }); // who waits for it hears of it
    }
    return solved;
  };
  response();
  return { element: el('p', { class: 'hint' }, t('captcha.work')), response, stop: () => stop.abort() };
}

function widget(type, siteKey) {
  const place = el('div', { class: 'captcha' });
  const element = el('div', { id: 'captcha', role: 'group', tabindex: '-1', 'aria-describedby': 'captcha-error', 'aria-label': t('captcha.label') }, place, el('p', { id: 'captcha-error', class: 'error', hidden: true }));
  let response;
  load(type).then((api) => api.render(place, {
    sitekey: siteKey,
    hl: language, language,
    size: innerWidth < 400 ? 'compact' : type === 'turnstile' ? 'flexible' : 'normal',
    theme: matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light',
    callback: (solved) => { response = solved; },
    'expired-callback': () => { response = undefined; },
    'error-callback': () => { response = undefined; },
  })).catch(() => place.replaceChildren(el('p', { class: 'error' }, t('captcha.unreachable'))));
  return { element, response: () => response };
}

// load brings in a provider's script, once.
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
