// Words for the sessions in a list. Those for times are values of a text.

// The first that matches counts: browsers also name those that they are compatible with.
const browsers = [
  ['Edge', /\bEdg(e|A|iOS)?\//],
  ['Opera', /\bOP(R|T|iOS)\//],
  ['Samsung Internet', /\bSamsungBrowser\//],
  ['Firefox', /\b(Firefox|FxiOS)\//],
  ['Chrome', /\b(Chrome|Chromium|HeadlessChrome|CriOS)\//],
  ['Safari', /\bSafari\//],
];
const systems = [
  ['iPhone', /\biPhone\b/],
  ['iPad', /\biPad\b/],
  ['Android', /\bAndroid\b/],
  ['Windows', /\bWindows\b/],
  ['ChromeOS', /\bCrOS\b/],
  ['Mac', /\bMacintosh\b/],
  ['Linux', /\bLinux\b/],
];

// device names the browser and the system of a User-Agent, or what an app says of
// itself. It returns null if there is nothing to say.
export function device(userAgent) {
  const named = [browsers, systems].map((list) => list.find(([, is]) => is.test(userAgent))?.[0]);
  if (named.some(Boolean)) return named.filter(Boolean).join(' · ');
  return /^[^\s/(]{1,40}/.exec(userAgent)?.[0] ?? null;
}

// ago says how long ago a time is: in numbers of whole days, because "vorgestern" and
// "avant-hier" are days of the calendar.
export const ago = (then) => (language) => {
  const seconds = Math.max(0, Date.now() - new Date(then)) / 1000;
  const [n, unit] = seconds >= 172800 ? [seconds / 86400, 'day'] : seconds >= 7200 ? [seconds / 3600, 'hour'] : seconds >= 60 ? [seconds / 60, 'minute'] : [0, 'second'];
  return new Intl.RelativeTimeFormat(language, { numeric: n ? 'always' : 'auto' }).format(-Math.floor(n), unit);
};

// moment formats a time, as in the user's own region if the browser names one.
export const moment = (then) => (language) => new Intl.DateTimeFormat(navigator.languages.find((l) => l.split('-')[0] === language) ?? language, { dateStyle: 'medium', timeStyle: 'short' }).format(new Date(then));
