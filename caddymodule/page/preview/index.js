// The list of all screens, each in a frame.
import { scenes, addressOf } from './scenes.js';

const chosen = (id) => document.getElementById(id).value;

function show() {
  document.querySelector('main').replaceChildren(...Object.keys(scenes).map((name) => {
    const figure = document.createElement('figure'), caption = document.createElement('figcaption');
    const link = document.createElement('a'), frame = document.createElement('iframe');
    link.href = addressOf(name, chosen('scheme'), chosen('language'));
    link.textContent = frame.title = name;
    frame.loading = 'lazy';
    frame.width = chosen('width');
    frame.src = link.href;
    caption.append(link);
    figure.append(caption, frame);
    return figure;
  }));
}

for (const tag of await (await fetch('/languages')).json()) document.getElementById('language').add(new Option(tag));
addEventListener('change', show);
show();
