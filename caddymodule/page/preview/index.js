// The list of all screens and mails, each in a frame.
import { scenes, addressOf } from './scenes.js';

const chosen = (id) => document.getElementById(id).value;

function show() {
  const [scheme, language] = [chosen('scheme'), chosen('language')];
  const all = [...Object.keys(scenes).map((name) => [name, addressOf(name, scheme, language)]), ...mails.map((type) => [type, `/mails/${scheme}/${type}?lang=${language}`])];
  document.querySelector('main').replaceChildren(...all.map(([name, address]) => {
    const figure = document.createElement('figure'), caption = document.createElement('figcaption');
    const link = document.createElement('a'), frame = document.createElement('iframe');
    link.href = address;
    link.textContent = frame.title = name;
    frame.loading = 'lazy';
    frame.width = chosen('width');
    frame.src = link.href;
    caption.append(link);
    figure.append(caption, frame);
    return figure;
  }));
}

const mails = await (await fetch('/mails')).json();
for (const tag of await (await fetch('/languages')).json()) document.getElementById('language').add(new Option(tag));
addEventListener('change', show);
show();
