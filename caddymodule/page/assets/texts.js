// The page's texts in the chosen language.
let texts = {};
export let language = document.documentElement.lang;

// speak loads the texts of a language.
export async function speak(tag) {
  const answer = await fetch(new URL(`texts/${tag}.json`, import.meta.url));
  if (!answer.ok) throw new Error(`no texts in ${tag}`);
  texts = await answer.json();
  language = tag;
}

export const has = (key) => Object.hasOwn(texts, key);

// t returns a text and replaces {name} by values.
export const t = (key, values = {}) => (texts[key] ?? key).replace(/\{([a-z]+)\}/g, (held, name) => values[name] ?? held);

// time formats a number of seconds for people.
export function time(seconds) {
  const [n, unit] = seconds >= 7200 ? [seconds / 3600, 'hour'] : seconds >= 120 ? [seconds / 60, 'minute'] : [seconds, 'second'];
  return new Intl.NumberFormat(language, { style: 'unit', unit, unitDisplay: 'long' }).format(Math.ceil(n));
}
