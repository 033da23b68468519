// What the login page and the security page share: the page's key, what the tab
// remembers, and the language.
import { camel, spared, storageOfTab } from './client.js';
import { $, alert } from './ui.js';
import { t, given, speak, language } from './texts.js';

const own = language; // the page's

// configOf returns the company's configuration. The page brings it in its own language.
export const configOf = async (client) => given.config && language === own ? camel(given.config) : client.config();

const tab = spared(storageOfTab());
export const remembered = (name) => tab.getItem(`mnemogate-page ${name}`);
export const keep = (name, value) => tab.setItem(`mnemogate-page ${name}`, value);

// key returns the key in the page. If that has expired, it loads the page again for
// a new one.
export async function key(refused) {
  const present = $('meta[name="mnemogate-key"]').content;
  if (!refused || refused !== present) return present;
  const answer = await fetch(location.pathname, { cache: 'no-store' });
  const meta = new DOMParser().parseFromString(await answer.text(), 'text/html').querySelector('meta[name="mnemogate-key"]');
  if (meta) $('meta[name="mnemogate-key"]').content = meta.content;
  return meta?.content ?? present;
}

// seen waits until the user sees the page. Tabs that nobody looks at request nothing, nor do
// pages that the browser loads before the user opens them: they would send an SMS.
export async function seen() {
  while (document.hidden) await new Promise((resume) => document.addEventListener('visibilitychange', resume, { once: true }));
}

// A page from the browser's back/forward cache may show another user's data.
addEventListener('pageshow', ({ persisted }) => persisted && location.reload());

// choose changes the language of this page.
async function choose(tag) {
  await speak(tag);
  $('#language').previousElementSibling.textContent = t('language.choose');
  const option = $(`#language option[value="${CSS.escape(tag)}"]`);
  Object.assign(document.documentElement, { lang: tag, dir: option?.dir || 'ltr' });
  $('#language').value = tag;
}

// languages loads the texts of the language that the user has chosen before, and offers
// the others. changed is called when the user has chosen another one.
export async function languages(changed) {
  const chooser = $('#language');
  if (new URLSearchParams(location.search).has('lang')) keep('language', own); // for the pages that this one leads to
  const wanted = remembered('language');
  if (wanted && wanted !== own && $(`option[value="${CSS.escape(wanted)}"]`, chooser)) await choose(wanted).catch(() => {}); // otherwise it stays the page's
  chooser.addEventListener('change', async () => {
    try {
      await choose(chooser.value);
    } catch {
      chooser.value = language;
      return alert(t('error.network'));
    }
    keep('language', chooser.value);
    document.cookie = `mnemogate-language=${chooser.value}; Path=${new URL('.', location).pathname}; Max-Age=31536000; SameSite=Lax${location.protocol === 'https:' ? '; Secure' : ''}`;
    await changed();
    chooser.focus();
  });
}
