// The page's texts in the chosen language.
let texts = {};
let foreign = new Set(); // the keys of texts that the language lacks, which are in English
const lent = new Set(); // such texts as they were used
export let language = document.documentElement.lang;

// speak loads the texts of a language.
export async function speak(tag) {
  const answer = await fetch(new URL(`texts/${tag}.json`, import.meta.url));
  if (!answer.ok) throw new Error(`no texts in ${tag}`);
  texts = await answer.json();
  foreign = new Set(texts.foreign?.split(' '));
  language = tag;
}

export const has = (key) => Object.hasOwn(texts, key);

// t returns a text and replaces {name} by values.
export function t(key, values = {}) {
  const text = (texts[key] ?? key).replace(/\{([a-z]+)\}/g, (held, name) => values[name] ?? held);
  if (foreign.has(key)) lent.add(text);
  return text;
}

// isLent reports whether a text is in English because the language lacks it.
export const isLent = (text) => lent.has(text);

// time formats a number of seconds for people.
export function time(seconds, unitDisplay = 'long') {
  const [n, unit] = seconds >= 7200 ? [seconds / 3600, 'hour'] : seconds >= 120 ? [seconds / 60, 'minute'] : [seconds, 'second'];
  return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay }).format(Math.ceil(n));
}
