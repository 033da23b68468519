// Passkeys on the login page: the browser's autofill offers them beside user names, and
// after a login with a password the user can create one.
import { MnemogateError } from './client.js';
import { el, alert, button } from './ui.js';
import { t } from './texts.js';
import { seen } from './frame.js';

// A challenge is valid for 5 minutes. The user may take a while to confirm.
const valid = 5 * 60_000, life = 4 * 60_000;

// autofill waits for the user to choose a passkey, and logs in with it. It returns a
// function that stops waiting. In browsers without autofill of passkeys it does nothing.
export function autofill(page, step) {
  const stopped = new AbortController();
  const stop = () => stopped.abort();
  page.leave(stop);
  if (page.config.passkeys) wait(page, step, stopped.signal);
  return stop;
}

let refusals = 0;

async function wait(page, step, stopped) {
  const { PublicKeyCredential: browser } = globalThis;
  if (!browser?.parseRequestOptionsFromJSON || !await browser.isConditionalMediationAvailable?.()) return;
  while (!stopped.aborted) {
    const began = Date.now();
    const late = AbortSignal.timeout(life);
    try {
      const answer = await page.client.askPasskey({ mediation: 'conditional', signal: AbortSignal.any([stopped, late]) });
      if (!stopped.aborted) page.act(() => Date.now() - began < valid ? login(step, answer) : unanswered()); // no timer runs while the device sleeps
      return;
    } catch (error) {
      if (stopped.aborted) return;
      if (late.aborted) {
        await seen();
        continue;
      }
      // Only people take a second to say no, or a slow network. Without the limits, a browser
      // that always refuses would be asked forever.
      if (error.name !== 'NotAllowedError' || Date.now() - began < 1000 || ++refusals > 3) return;
      return void page.act(() => { throw new MnemogateError('passkey', 'the browser gave no passkey', { cause: error }); });
    }
  }
}

// passkey returns a button for users whose browser has no autofill, or who don't find it. start
// returns the step that the login begins with.
export const passkey = (page, start) => page.config.passkeys && globalThis.PublicKeyCredential?.parseRequestOptionsFromJSON && button(t('login.passkey'), () => page.act(async () => {
  const answer = await page.client.askPasskey().catch(unanswered);
  return login(await start(), answer);
}), 'other');

// unanswered replaces the error of a browser whose user has cancelled, has no passkey, or that
// does not know this call.
const unanswered = (cause) => { throw cause instanceof MnemogateError ? cause : new MnemogateError('passkey', 'the browser gave no passkey', { cause }); };

// usePasskey is passkey for a user who is logged in.
export const usePasskey = (step) => step.usePasskey().catch(unanswered);

async function login(step, answer) {
  const next = await step.loginWithPasskey(answer);
  settle();
  return next;
}

// The offer comes once per browser and company, and never where a passkey was used or
// created. A browser that can't store that gets no offer, since it would get all of them.
const settled = `mnemogate-page passkey ${new URL('.', location.href).pathname}`;

export function settle() {
  try {
    localStorage.setItem(settled, 'yes');
  } catch {}
}

function isSettled() {
  try {
    return localStorage.getItem(settled) !== null;
  } catch {
    return true;
  }
}

// creates says whether the browser can create passkeys.
export const creates = Boolean(globalThis.PublicKeyCredential?.parseCreationOptionsFromJSON);

// canOffer reports whether the user can create a passkey with this device itself.
export const canOffer = async ({ passkeys, selfService }) =>
  Boolean(passkeys && selfService && creates && !isSettled() && await PublicKeyCredential.isUserVerifyingPlatformAuthenticatorAvailable?.());

// createSilently lets browsers that can create a passkey without asking the user, as they do
// for a password that they have just filled in. It reports whether the user has one now.
export async function createSilently(step) {
  const able = await PublicKeyCredential.getClientCapabilities?.();
  if (!able?.conditionalCreate) return false;
  const made = step.me.addPasskey(undefined, { mediation: 'conditional', signal: AbortSignal.timeout(silence) }).then(() => true, ({ name }) => name === 'InvalidStateError');
  const late = new Promise((resolve) => { setTimeout(resolve, silence, false); }); // the server may not answer, which no signal ends
  if (!await Promise.race([made, late])) return false;
  settle();
  return true;
}

// Browsers answer at once, or never.
const silence = 3000;

// isNone reports whether no passkey was created: the user has cancelled, or the server
// has not accepted it.
export const isNone = ({ name, code }) => name === 'NotAllowedError' || code === 'auth.credentials.invalid';

export function offer(page, step) {
  settle();
  return {
    name: 'offer',
    heading: t('offer.heading'),
    body: [
      el('p', { class: 'lead' }, t('offer.text')),
      el('div', { class: 'stack' },
        button(t('offer.create'), () => page.act(() => create(page, step)), 'main'),
        button(t('offer.skip'), () => page.go(), 'other')),
    ],
  };
}

// raise has the user give the other factor, and then create the passkey on the security page.
// From there a link leads on.
function raise(page) {
  const on = new URLSearchParams({ return_to: page.goal().slice(location.origin.length) });
  const { pathname } = new URL('security', location);
  location.assign(`login?${new URLSearchParams({ mfa: 1, return_to: `${pathname}?${on}#passkeys` })}`);
}

// create returns the step to go on with, or nothing if the user has cancelled.
async function create(page, step) {
  try {
    await step.me.addPasskey();
  } catch (error) {
    if (error.reason === 'too_old') return step; // the offer was open for too long
    if (error.reason === 'mfa') return raise(page); // to give the other factor first
    if (isNone(error)) return void alert(t('offer.cancelled'));
    if (!(error instanceof DOMException)) throw error;
    // Otherwise there is one already, or this address of the site has none.
  }
  return step;
}
