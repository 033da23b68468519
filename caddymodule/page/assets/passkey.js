// Passkeys in the browser's autofill: the login field offers them beside user names.
import { MnemogateError } from './client.js';

// A challenge is valid for 5 minutes. The user may take a while to confirm.
const life = 4 * 60_000;

// autofill waits for the user to choose a passkey, and logs in with it. It returns a
// function that stops waiting. In browsers without autofill of passkeys it does nothing.
export function autofill(page, step) {
  const stopped = new AbortController();
  const stop = () => stopped.abort();
  page.leave(stop);
  if (page.config.passkeys) wait(page, step, stopped.signal);
  return stop;
}

async function wait(page, step, stopped) {
  const { PublicKeyCredential: browser } = globalThis;
  if (!browser?.parseRequestOptionsFromJSON || !await browser.isConditionalMediationAvailable?.()) return;
  while (!stopped.aborted) {
    const began = Date.now();
    const late = AbortSignal.timeout(life);
    try {
      const answer = await page.client.askPasskey({ mediation: 'conditional', signal: AbortSignal.any([stopped, late]) });
      if (!stopped.aborted) page.act(() => step.loginWithPasskey(answer));
      return;
    } catch (error) {
      if (stopped.aborted) return;
      if (late.aborted) {
        await seen();
        continue;
      }
      // Only people take a second to say no. Without the limit, a browser that always
      // refuses would be asked forever.
      if (error.name !== 'NotAllowedError' || Date.now() - began < 1000) return;
      return void page.act(() => { throw new MnemogateError('passkey', 'the browser gave no passkey', { cause: error }); });
    }
  }
}

// seen waits until the user sees the page, so that forgotten tabs request nothing.
async function seen() {
  while (document.hidden) await new Promise((resume) => document.addEventListener('visibilitychange', resume, { once: true }));
}
