// The page's texts in the chosen language.

// What the page brings with it, so that its first screen needs no request.
export const given = JSON.parse(document.getElementById('given').textContent);

let texts, foreign; // foreign has the keys of texts that the language lacks, which are in English
const lent = new Set(); // such texts as they were used
export let language;
use(document.documentElement.lang, given.texts);

function use(tag, of) {
  [language, texts, foreign] = [tag, of, new Set(of.foreign?.split(' '))];
}

// speak loads the texts of a language.
export async function speak(tag) {
  const directory = document.querySelector('main').dataset.kind === 'security' ? 'texts/security/' : 'texts/';
  const answer = await fetch(new URL(`${directory}${tag}.json`, import.meta.url));
  if (!answer.ok) throw new Error(`no texts in ${tag}`);
  use(tag, await answer.json());
}

export const has = (key) => Object.hasOwn(texts, key);

// t returns a text and replaces {name} by values. A value that depends on the language is a
// function of it.
export function t(key, values = {}) {
  const isForeign = foreign.has(key);
  const text = (texts[key] ?? key).replace(/\{([a-z]+)\}/g, (held, name) => {
    const value = values[name] ?? held;
    return typeof value === 'function' ? value(isForeign ? 'en' : language) : value;
  });
  if (isForeign) lent.add(text);
  return text;
}

// isLent reports whether a text is in English because the language lacks it.
export const isLent = (text) => lent.has(text);

// time formats a number of seconds for people, in a text. Who has to wait should not come too
// early, so it rounds up unless round is another function.
export const time = (seconds, unitDisplay = 'long', round = Math.ceil) => (language) => {
  const [n, unit] = seconds >= 172800 ? [seconds / 86400, 'day'] : seconds >= 7200 ? [seconds / 3600, 'hour'] : seconds >= 120 ? [seconds / 60, 'minute'] : [seconds, 'second'];
  return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay }).format(round(n));
};
