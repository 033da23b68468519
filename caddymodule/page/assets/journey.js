// linkIn returns the token of a mailed link in a fragment. The form without recover= has no
// equals sign, which mail programs may spoil. They also break lines, and add to a link what
// follows it.
export const linkIn = (hash) => /^#(?:recover=|(?=mg[lw]_))([\w-]+)/.exec(hash.replace(/%(20|0[9AD]|C2%A0)/gi, ''))?.[1];

// A journey makes each screen an entry of the browser's history, so that Back leads to
// the previous screen. Its first entry is that of the page itself, where a login
// begins. The number of an entry is kept in its state, which a reload does not change.
export class Journey {
  at = history.state?.mnemogate ?? 0; // the current entry
  #stops = []; // what was said of each entry; empty after a reload
  #moved = Promise.resolve(); // done when the browser is where it should be
  #arrived; // called when the browser has travelled

  // back is called with the number of the entry that the user goes to.
  constructor(back) {
    addEventListener('popstate', ({ state }) => {
      const to = state?.mnemogate ?? 0;
      if (this.#arrived) this.#arrived();
      else if (to !== this.at && !linkIn(location.hash)) back(to);
    });
  }

  // arrive notes a screen. It becomes a new entry unless it replaces the current one.
  // With end, no login is in progress, so all entries after the first are over.
  arrive(stop, end) {
    this.#moved = this.#moved.then(async () => {
      if (end) {
        await this.#home();
      } else if (this.at === 0 || this.#stops[this.at] && !isSame(this.#stops[this.at], stop)) {
        this.at++;
        history.pushState({ mnemogate: this.at }, '');
      }
      this.#stops.length = this.at;
      this.#stops[this.at] = stop;
    });
  }

  // home goes to the first entry.
  home() {
    return this.#moved = this.#moved.then(() => this.#home());
  }

  async #home() {
    await this.travel(-this.at);
    this.at = 0;
  }

  // settle goes to the last entry up to this one that can be shown, and returns what was
  // said of it. Of the first entry, which can always be shown, it returns nothing.
  async settle(to, can) {
    let at = to;
    while (at > 0 && !(this.#stops[at] && can(this.#stops[at]))) at--;
    await this.travel(at - to);
    this.at = at;
    return at > 0 ? this.#stops[at] : undefined;
  }

  // travel moves the browser without calling back.
  travel(by) {
    if (by === 0) return undefined;
    return new Promise((resolve) => {
      const arrived = () => {
        clearTimeout(late);
        if (this.#arrived === arrived) this.#arrived = undefined;
        resolve();
      };
      const late = setTimeout(arrived, 1000); // the browser may have no such entry
      this.#arrived = arrived;
      history.go(by);
    });
  }
}

const isSame = (a, b) => a.make === b.make && a.state === b.state;
