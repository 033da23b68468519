// What the login page and the security page share: the page's key, what the tab
// remembers, and the language.
import { $, alert, button, el } from './ui.js';
import { t, speak, language } from './texts.js';

// stored returns the storage of the tab. A browser that accepts no cookies of this
// site also refuses storage.
export function stored() {
  try {
    return sessionStorage;
  } catch {
    return null;
  }
}
export const remembered = (name) => stored()?.getItem(`mnemogate-page ${name}`) ?? null;
export const keep = (name, value) => stored()?.setItem(`mnemogate-page ${name}`, value);

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

// languages loads the texts in the user's language, and offers the others. changed is
// called when the user has chosen another one.
export async function languages(changed) {
  const wanted = new URLSearchParams(location.search).has('lang') ? null : remembered('language');
  await choose(wanted && $(`#language option[value="${CSS.escape(wanted)}"]`) ? wanted : language).catch((error) => {
    $('.loading').remove();
    $('#screen').append(el('p', { class: 'stack', lang: 'en', dir: 'ltr' }, button('Try again', () => location.reload(), 'main')));
    $('#screen').removeAttribute('aria-busy');
    throw error;
  });
  const chooser = $('#language');
  chooser.parentElement.hidden = chooser.options.length < 2;
  chooser.addEventListener('change', async () => {
    try {
      await choose(chooser.value);
    } catch {
      chooser.value = language;
      return alert(t('error.network'));
    }
    keep('language', chooser.value);
    await changed();
    chooser.focus();
  });
}
