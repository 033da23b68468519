// A client for logins at mnemogate. client.d.ts documents it. Start at connect.

export class MnemogateError extends Error {
  constructor(code, message, more) {
    super(`${code}: ${message}`);
    Object.assign(this, {
      name: 'MnemogateError', code, status: 0, reason: null, ref: null, retryAfter: null,
      captchaRequired: false, disclaimersRequired: [], step: undefined,
    }, more);
  }
}

export function connect({ company, apiKey, cookie = false, remember, rememberDevice, deviceToken, storage, language, timeout = 30_000 }) {
  const base = new URL(company, globalThis.location?.href).href.replace(/\/+$/, '');
  const name = `mnemogate ${base}`; // the key in the storage
  const stepUpName = `${name} stepup`;
  const inBrowser = globalThis.location !== undefined; // elsewhere, users share the storage
  const tab = inBrowser && storageOfTab() || new Memory();
  const given = storage ?? (cookie ? tab : new Memory());
  const store = spared(given);
  let key; // the API key, once it is known
  let busy = false;
  let refused = null; // a token
  let moving; // to the cookie
  let returned; // React's effects run twice
  let turn = Promise.resolve();
  const unanswered = {}; // the keys of requests

  return {
    resume: (options) => inTurn(() => look(options)).catch((error) => { throw goingOn(error, { state: 'start' }); }),
    start() {
      store.removeItem(name);
      return step({ state: 'start' });
    },
    logout: () => logout({ state: 'start' }),
    stepUp: (options) => inTurn(() => stepUp(options)),
    finishOAuth: (location) => returned ??= finishOAuth(location).finally(() => { returned = null; }),
    askPasskey,
    config: () => ask('GET', 'client.json'),
    solveCaptcha,
  };

  // ask sends a request. Without an answer, it sends any but a GET once more. Until there is
  // one, the key stays the same.
  async function ask(method, path, { token, body, again = false } = {}) {
    key ??= await keyOf();
    const headers = { 'X-Api-Key': key };
    if (token) headers.Authorization = `Bearer ${token}`;
    if (body) headers['Content-Type'] = 'application/json';
    const spoken = valueOf(language);
    if (spoken) headers['Accept-Language'] = spoken;
    const sent = JSON.stringify(body), what = [method, path, token, sent];
    const repeatable = method !== 'GET';
    if (repeatable) headers['Idempotency-Key'] = unanswered[what] ??= random();
    let response, answer;
    const send = async () => {
      response = await fetch(`${base}/v2/${path}`, {
        method, headers, body: sent, signal: AbortSignal.timeout?.(timeout),
        credentials: cookie ? 'include' : 'omit', cache: 'no-store', redirect: 'error', referrerPolicy: 'no-referrer',
      });
      answer = camel(await response.json());
    };
    try {
      await send().catch(repeatable && send);
    } catch (cause) {
      throw new MnemogateError('network', `no answer to ${method} ${path}`, { cause, status: response?.status ?? 0 });
    }
    if (response.status < 500) delete unanswered[what];
    if (answer?.expiresIn !== undefined) answer.expiresAt = Date.now() + 1000 * answer.expiresIn;
    if (response.ok) return answer;
    const { errorCode = 'network', message = `status ${response.status}`, reason = null, ref = null, disclaimersRequired = [] } = answer ?? {};
    const code = String(errorCode); // that of a proxy may be a number
    if (code === 'auth.apikey.invalid' && typeof apiKey === 'function' && !again) { // safe: it is checked first
      key = await keyOf(key);
      return ask(method, path, { token, body, again: true });
    }
    throw new MnemogateError(code, message, {
      status: response.status, reason, ref, disclaimersRequired, retryAfter: Number(response.headers.get('Retry-After')) || null,
      captchaRequired: answer?.captchaRequired ?? code.startsWith('auth.captcha.'),
    });
  }

  // keyOf asks the app for the key, if it has a function for that.
  async function keyOf(refused) {
    if (typeof apiKey !== 'function') return apiKey;
    try {
      return await apiKey(refused);
    } catch (cause) {
      throw new MnemogateError('network', 'no API key', { cause });
    }
  }

  function read(storage = store, key = name) {
    try {
      const kept = JSON.parse(storage.getItem(key)) ?? {};
      return kept.token === refused ? {} : kept;
    } catch {
      return {};
    }
  }

  function keep(token, loginId) {
    store.setItem(name, JSON.stringify({ token, loginId }));
    keepStepUp(); // it is one of the session before
  }

  // forget removes a token from the storage, but no newer one.
  function forget(token) {
    if (token && read().token === token) store.removeItem(name);
  }

  // refuse ignores a token that the server has refused. In localStorage, another tab may have
  // stored a newer one.
  function refuse(token) {
    const shared = given !== tab && globalThis.Storage && given instanceof Storage;
    if (!shared) forget(token);
    refused = token;
  }

  // inTurn runs one function at a time, with locks in all tabs.
  function inTurn(f) {
    const locks = inBrowser && !(given instanceof Memory) && navigator.locks;
    const run = () => {
      if (!locks) return f();
      const signal = AbortSignal.timeout?.(5000); // the other tab may get no answer
      return locks.request(name, { signal }, f).catch((error) => {
        if (error !== signal?.reason) throw error;
        return f();
      });
    };
    return turn = turn.then(run, run);
  }

  // look finds out the current step of the browser. With fresh, a session is not
  // enough.
  async function look({ byCookie = cookie, fresh = false } = {}) {
    const { token, loginId } = read();
    try {
      if (!token && !byCookie) return step({ state: 'start' });
      if (moving && moving.token === token) return await toCookie(moving); // the answer was lost
      const answer = await ask('GET', 'session', { token });
      if (!token) return step(fresh ? { ...answer, state: 'start', notice: 'login.fresh' } : { state: 'authorized', ...answer });
      if (answer.sessionState === 'authorized' && cookie) return await toCookie({ token, loginId });
      return step({ state: answer.sessionState, ...answer, token, loginId });
    } catch (error) {
      if (!isOver(error)) throw error;
      if (!token) return step({ state: 'start' });
      refuse(token);
      return look({ byCookie, fresh });
    }
  }

  // toCookie moves an authorized session, and a device's token, to cookies. The session's
  // token stays in the storage until then, so that a reload finds it.
  async function toCookie(from) {
    const { token, loginId, deviceToken } = moving = from;
    const answer = await ask('POST', 'session', { token, body: { remember: valueOf(remember), device_token: deviceToken } });
    forget(token);
    return step({ state: 'authorized', ...answer, loginId });
  }

  // Steps. `from` has the fields of a step's answer, token and loginId.

  // take makes a step and returns the next one. body may be a function that computes it.
  // bare: without the token. stay: the fields of the next step, if the token stays. end: the
  // next state, if the answer has no token. spends: an attempt uses the code up.
  async function take(from, route, body, { loginId = from.loginId, bare = false, stay, end, spends = false } = {}) {
    if (busy) throw goingOn(new MnemogateError('busy', 'another step is under way'), from);
    busy = true;
    try {
      body = await valueOf(body);
      return await inTurn(async () => {
        if (read().token !== from.token) throw new MnemogateError('superseded', 'another tab was first', { step: await look() });
        const device = { device_token: valueOf(deviceToken), remember_device: valueOf(rememberDevice) }; // routes may ignore them
        const answer = await ask('POST', route, { token: bare ? undefined : from.token, body: { ...device, ...body } });
        const next = { state: end, loginId, ...stay, ...answer };
        if (answer.sessionToken) Object.assign(next, { state: answer.sessionState, token: answer.sessionToken });
        if (next.token) keep(next.token, next.loginId);
        else forget(from.token);
        if (route === 'stepup') keepStepUp(next);
        if (route === 'stepup/check') keepStepUp();
        if (next.state !== 'authorized' || !cookie || !next.token) return step(next); // a session in the cookie may be raised there
        // If this fails, the user is logged in, and the app must show that.
        return await toCookie(next).catch((error) => { throw isOver(error) ? error : goingOn(error, next); });
      });
    } catch (error) {
      if (isOver(error) && from.token && !bare) throw await lost(error, from);
      if (isOver(error) && from.state === 'stepup') throw goingOn(error, { state: 'start' });
      if (route === 'stepup/check' && [400, 401].includes(error.status)) keepStepUp();
      const known = { ...from, notice: undefined };
      if (error.captchaRequired && route !== 'auth/recovery/recover') known.captchaRequired = true;
      if (error.code === 'auth.disclaimer.invalid') known.disclaimersRequired = error.disclaimersRequired;
      if (spends && ['auth.disclaimer.invalid', 'auth.otp.invalid'].includes(error.code)) Object.assign(known, { codeSpent: true, codeWrong: error.code === 'auth.otp.invalid' });
      throw goingOn(error, known);
    } finally {
      busy = false;
    }
  }

  // lost returns the error for a token that is no longer valid. Another tab may have
  // used it and hold the next token, or be logged in. That must not be changed.
  async function lost(error, from) {
    refuse(from.token);
    try {
      const now = await inTurn(look);
      return now.state === 'start' ? goingOn(error, now) : new MnemogateError('superseded', 'another tab was first', { step: now, cause: error });
    } catch {
      return goingOn(error, { state: 'start' });
    }
  }

  // goingOn adds the step to continue with to a MnemogateError.
  function goingOn(error, from) {
    if (error instanceof MnemogateError) error.step ??= step(from);
    return error;
  }

  // step creates the object that an app sees.
  function step(from) {
    const { state, token, loginId = null, expiresAt, captchaRequired = false, disclaimersRequired: disclaimers = [], userPhone: phone = null, secondFactors = null, codeSpent = false, notice = null } = from;
    const halfway = { state, notice, loginId, expiresAt, cancel: () => cancel(token) };
    const renewed = { ...from, codeSpent: false, codeWrong: false, notice: from.codeWrong ? 'code.wrong.resent' : 'code.resent' };
    const start = {
      state, captchaRequired, notice: state === 'passwordset' ? 'password.set' : notice, user: from.user ?? null, profileMnemocode: from.profileMnemocode ?? null,
      login: (loginId) => take(from, 'auth/login', { login_id: loginId }, { loginId }),
      loginWithPassword: (loginId, password, { captcha, acceptDisclaimers } = {}) => take(from, 'auth/checkcredentials', async () => (
        { login_id: loginId, password, captcha_response: await solved(captcha, captchaRequired), accept_disclaimers: acceptDisclaimers }
      ), { loginId }),
      loginWithPasskey: ({ challengeToken, credential, rpId }, { acceptDisclaimers } = {}) => take(from, 'passkey/login', {
        challenge_token: challengeToken, credential, accept_disclaimers: acceptDisclaimers,
      }, { bare: true, loginId: null }).catch((error) => {
        if (rpId && error.reason === 'passkey.unknown') signal('UnknownCredential', { rpId, credentialId: credential.id });
        throw error;
      }),
      recover: (loginId, options) => recover(from, loginId, options),
      checkLink: (link) => take(from, 'auth/recovery/checklink', { token: link }),
      authorize,
    };
    switch (state) {
      case 'start':
      case 'passwordset':
        return start;
      case 'linkmailed':
        return { ...start, email: from.userEmail ?? null };
      case 'checkpassword':
        return {
          ...halfway, captchaRequired, disclaimers,
          checkPassword: (password, { captcha, acceptDisclaimers } = {}) => take(from, 'auth/checkpassword', async () => (
            { password, captcha_response: await solved(captcha, captchaRequired), accept_disclaimers: acceptDisclaimers }
          )),
          recover: ({ loginId = from.loginId, ...options } = {}) => recover(from, loginId, options),
        };
      case 'checkotp':
        return {
          ...halfway, phone, secondFactors, codeSpent, disclaimers,
          // Without a phone the code is that of an app, unless no SMS could be sent.
          notice: phone === null && !secondFactors?.includes('otp') ? 'sms.exhausted' : notice,
          checkOTP: (code, { acceptDisclaimers } = {}) => take(from, 'auth/checkotp',
            { otp: code, accept_disclaimers: acceptDisclaimers }, { spends: phone !== null }),
          useBackupCode: (code, { acceptDisclaimers } = {}) => take(from, 'auth/checkotp',
            { backup_code: code, accept_disclaimers: acceptDisclaimers }),
          renewOTP: () => take(from, 'auth/renewotp', {}, { stay: renewed }),
        };
      case 'acceptdisclaimers':
        return { ...halfway, disclaimers, acceptDisclaimers: (codes) => take(from, 'auth/acceptdisclaimers', { accept_disclaimers: codes }) };
      case 'recovery-checkotp':
        return {
          ...halfway, phone, codeSpent,
          checkOTP: (code) => take(from, 'auth/recovery/checkotp', { otp: code }, { spends: true }),
          renewOTP: () => take(from, 'auth/recovery/renewotp', {}, { stay: renewed }),
        };
      case 'recovery-checkquestion':
        return {
          ...halfway, question: from.controlQuestion ?? '',
          checkAnswer: (answer) => take(from, 'auth/recovery/checkquestion', { control_answer: answer }),
        };
      case 'setpassword':
      case 'recovery-setpassword':
        return {
          ...halfway, disclaimers, rules: { description: from.passwordRegexDescription ?? null, regex: from.passwordRegex ?? null },
          setPassword: (password, { acceptDisclaimers } = {}) => take(from, 'auth/setpassword',
            { new_password: password, accept_disclaimers: acceptDisclaimers }, { end: 'passwordset' }),
        };
      case 'stepup':
        return raising(from, renewed);
      case 'authorized':
        return {
          state, notice, loginId, expiresAt, authMethods: from.authMethods ?? [], profileMnemocode: from.profileMnemocode, user: from.user ?? null, deviceToken: from.deviceToken ?? null,
          headers: () => token ? { Authorization: `Bearer ${token}` } : {},
          fetch: (input, init) => fetchAs(token, input, init),
          logout: () => logout(from),
          me: meOf(token),
        };
      default:
        throw new TypeError(`the server is newer than this client: there is a state ${state}`);
    }
  }

  // recover begins a recovery and abandons an unfinished login. The server requires
  // a response even if the company has no captcha.
  function recover(from, loginId, { captcha, method } = {}) {
    return take(from, 'auth/recovery/recover', async () => (
      { login_id: loginId, method, captcha_response: await solved(captcha, true) ?? 'none' }
    ), { loginId, bare: true, end: 'linkmailed' });
  }

  // Step-ups. `from` has the session's token, unless it is in the cookie.

  // stepUp begins a step-up, unless nobody is logged in or nothing is missing. After a
  // reload it goes on with the one that has sent an SMS.
  async function stepUp({ byCookie, for: wanted = 'mfa', factor } = {}) {
    const now = await look({ byCookie });
    if (now.state !== 'authorized' || wanted === 'mfa' && now.authMethods.includes('mfa')) return now;
    const { user, loginId, profileMnemocode, authMethods } = now;
    const from = { state: 'authorized', wanted, token: cookie ? undefined : read().token, user, loginId, profileMnemocode, authMethods };
    const kept = read(tab, stepUpName);
    if (!factor && kept.wanted === wanted && kept.profileMnemocode === profileMnemocode && Date.now() < kept.expiresAt) return step({ ...kept, ...from, state: 'stepup' });
    try {
      const begun = { ...from, ...await ask('POST', 'stepup', { token: from.token, body: { for: wanted, factor } }), state: 'stepup' };
      keepStepUp(begun);
      return step(begun);
    } catch (error) {
      throw goingOn(error, isOver(error) ? { state: 'start' } : { ...from, expiresAt: now.expiresAt });
    }
  }

  // keepStepUp keeps a step-up by SMS, without the session's token, and forgets any other.
  function keepStepUp({ token, notice, ...kept } = {}) {
    tab.removeItem(stepUpName);
    try {
      if (kept.factor === 'sms') tab.setItem(stepUpName, JSON.stringify(kept));
    } catch {}
  }

  // raising returns the step of a step-up. renewed has the fields after another code was sent.
  function raising(from, renewed) {
    const { factors, factor, wanted, userPhone: phone = null, user, loginId, expiresAt, codeSpent = false, notice = null } = from;
    const begin = (other) => ask('POST', 'stepup', { token: from.token, body: { for: wanted, factor: other } });
    const choose = (other, stay) => take(from, 'stepup', { for: wanted, factor: other }, { stay: { ...stay, userPhone: undefined } });
    const prove = (proof, spends = false) => take(from, 'stepup/check', proof, { stay: { ...from, state: 'authorized', notice: undefined }, spends });
    // With an expired token, no code is valid, so another one will do.
    const token = async () => (Date.now() < expiresAt || phone ? from : await begin(factor)).stepupToken;
    const typed = (proof, spends) => prove(async () => ({ stepup_token: await token(), ...proof }), spends);
    return {
      state: 'stepup', notice, loginId, user: user ?? null, expiresAt, for: wanted, factors, factor, phone, codeSpent,
      choose: (other) => choose(other, { ...from, codeSpent: false, notice: undefined }),
      renewOTP: () => choose('sms', renewed),
      checkOTP: (code) => typed({ otp: code }, phone !== null),
      useBackupCode: (code) => typed({ backup_code: code }),
      checkPassword: (password) => typed({ password }),
      usePasskey: ({ signal } = {}) => prove(async () => {
        const { stepupToken, challengeToken, publicKey } = await begin('passkey'); // a challenge ends sooner
        const credential = await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey), signal });
        return { stepup_token: stepupToken, challenge_token: challengeToken, credential: jsonOf(credential) };
      }),
      cancel: () => look().catch((error) => { throw goingOn(error, from); }),
    };
  }

  async function cancel(token) {
    await ask('POST', 'auth/logout', { token, body: {} }).catch(() => {}); // it soon expires
    forget(token);
    return step({ state: 'start' });
  }

  async function logout(from) {
    const end = async () => {
      if (!from.token) return ask('DELETE', 'session');
      return ask('POST', 'auth/logout', { token: from.token, body: {} }).catch((error) => {
        if (!cookie || !isOver(error)) throw error;
        return ask('DELETE', 'session'); // the answer that moved it to the cookie was lost
      });
    };
    try {
      await inTurn(end);
    } catch (error) {
      if (!isOver(error)) throw goingOn(error, from);
    }
    forget(from.token);
    keepStepUp();
    return step({ state: 'start', notice: 'logout.done' });
  }

  // meOf returns what users can do for their own login.
  function meOf(token) {
    const me = (method, path, body) => ask(method, `me/${path}`, { token, body });
    const contact = (kind) => ({
      send: (value) => me('POST', kind, { [kind]: value }),
      confirm: (contactToken, code) => me('POST', `${kind}/confirm`, { contact_token: contactToken, code }),
      remove: () => me('DELETE', kind),
    });
    return {
      factors: () => me('GET', 'factors'),
      sessions: async () => (await me('GET', 'sessions')).sessions,
      endSession: (id) => me('DELETE', `sessions/${encodeURIComponent(id)}`),
      endOtherSessions: () => me('DELETE', 'sessions'),
      devices: async () => (await me('GET', 'devices')).devices,
      forgetDevice: (id) => me('DELETE', `devices/${encodeURIComponent(id)}`),
      forgetDevices: () => me('DELETE', 'devices'),
      changePassword: (password, { current } = {}) => me('POST', 'password', { current_password: current, new_password: password }),
      phone: contact('phone'),
      email: contact('email'),
      newTOTP: () => me('POST', 'totp'),
      confirmTOTP: (code) => me('POST', 'totp/confirm', { code }),
      removeTOTP: () => me('DELETE', 'totp'),
      setSecondFactor: (enabled) => me('POST', 'second_factor', { enabled }),
      async passkeys() {
        const { passkeys, signal: known } = await me('GET', 'passkeys');
        if (known) ['AllAcceptedCredentials', 'CurrentUserDetails'].forEach((what) => signal(what, known));
        return passkeys;
      },
      async addPasskey(name, { mediation, signal } = {}) {
        const { challengeToken, publicKey } = await me('POST', 'passkeys/options');
        if (mediation === 'conditional') publicKey.authenticatorSelection.userVerification = 'preferred'; // the user is not asked
        const credential = await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(publicKey), mediation, signal });
        return me('POST', 'passkeys', { challenge_token: challengeToken, credential: jsonOf(credential), name, mediation });
      },
      renamePasskey: (id, name) => me('PATCH', `passkeys/${encodeURIComponent(id)}`, { name }),
      removePasskey: (id) => me('DELETE', `passkeys/${encodeURIComponent(id)}`),
      tokens: async () => (await me('GET', 'tokens')).tokens,
      issueToken: ({ name, paths, methods, expiresIn }) => me('POST', 'tokens', { name, paths, methods, expires_in: expiresIn }),
      removeToken: (id) => me('DELETE', `tokens/${encodeURIComponent(id)}`),
      newBackupCodes: async () => (await me('POST', 'backup-codes')).backupCodes,
    };
  }

  // fetchAs never sends the token to another origin.
  async function fetchAs(token, input, init) {
    const at = input instanceof Request ? input : new URL(input, base);
    const request = new Request(at, token ? init : { credentials: 'include', ...init });
    if (new URL(request.url).origin !== new URL(base).origin) throw new TypeError(`${request.url} has not the origin of ${base}`);
    if (token) request.headers.set('Authorization', `Bearer ${token}`);
    return fetch(request);
  }

  // OAuth (RFC 6749, 4.1; RFC 7636; OpenID Connect Core, 3.1.2.1).

  async function authorize(provider, { redirectUri = location.origin + location.pathname, maxAge = year, prompt } = {}) {
    if (typeof provider === 'number') {
      const number = provider;
      provider = (await ask('GET', 'client.json')).oauth.find(({ providerId }) => providerId === number);
      if (!provider) throw new RangeError(`the company has no provider ${number}`);
    }
    const { providerId, authorizeUrl, clientId, scope, pkce, issuer, issRequired } = provider;
    if (authorizeUrl === null) throw new MnemogateError('service.unavailable', 'the provider did not answer');
    const [state, nonce, verifier] = [0, 0, 0].map(random);
    const parameters = { response_type: 'code', client_id: clientId, redirect_uri: redirectUri, scope, state, nonce };
    // With max_age a provider says when the user logged in there.
    if (scope?.split(' ').includes('openid')) parameters.max_age = maxAge;
    prompt ??= provider.prompt;
    if (prompt) parameters.prompt = prompt;
    if (provider.responseMode) parameters.response_mode = provider.responseMode;
    if (pkce) {
      const digest = await crypto.subtle.digest('SHA-256', new TextEncoder().encode(verifier));
      Object.assign(parameters, { code_challenge: base64url(new Uint8Array(digest)), code_challenge_method: 'S256' });
    }
    const to = new URL(authorizeUrl);
    for (const [parameter, value] of Object.entries(parameters)) to.searchParams.set(parameter, value);
    tab.setItem(`${name} oauth`, JSON.stringify({ state, nonce, providerId, redirectUri, issuer, issRequired, verifier: pkce ? verifier : undefined }));
    return to.href;
  }

  async function finishOAuth(location) {
    const { searchParams: said } = new URL(location.href ?? location);
    const code = said.get('code'), error = said.get('error') ?? said.get('error_code'); // Facebook's
    if (!said.has('state') || (code ?? error) === null) return null;
    const begun = read(tab, `${name} oauth`);
    if (begun.state !== said.get('state')) {
      throw new MnemogateError('oauth.state', 'this login was not begun here, or is over', { step: await inTurn(look) });
    }
    tab.removeItem(`${name} oauth`);
    const from = { state: 'start', token: read().token };
    const iss = said.get('iss'); // RFC 9207, section 2.4
    if (begun.issuer && iss !== begun.issuer && (iss !== null || code && begun.issRequired)) {
      throw goingOn(new MnemogateError('oauth.state', 'another provider has answered'), from);
    }
    if (code === null) throw goingOn(new MnemogateError('oauth.denied', error), from);
    return take(from, 'auth/oauth', {
      provider_id: begun.providerId, code, redirect_uri: begun.redirectUri, code_verifier: begun.verifier, nonce: begun.nonce,
    }, { bare: true, loginId: undefined });
  }

  // Passkeys, in the JSON of WebAuthn (section 5.1).

  async function askPasskey({ mediation, signal } = {}) {
    const { challengeToken, publicKey } = await ask('POST', 'passkey/options', { body: {} });
    const credential = await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(publicKey), mediation, signal });
    return { challengeToken, credential: jsonOf(credential), rpId: publicKey.rpId };
  }

  // signal tells the browser what the server knows of passkeys (WebAuthn Level 3, 5.1.10).
  function signal(what, known) {
    globalThis.PublicKeyCredential?.[`signal${what}`]?.(known).catch(() => {});
  }

  async function solveCaptcha({ signal } = {}) {
    const { challenge, bits } = await ask('GET', 'captcha');
    return `${challenge}.${await work(`${base}/v2/client.js`, challenge, bits, signal)}`;
  }

  // solved returns the app's response or, if it must, solves a challenge of captcha pow.
  async function solved(captcha, due) {
    if (captcha !== undefined || !due) return captcha;
    return solveCaptcha().catch((error) => {
      if (error.status !== 404) throw error;
    });
  }
}

const valueOf = (option) => typeof option === 'function' ? option() : option;

const year = 31_536_000; // in seconds; some providers add it to the time in 32 bits

const isOver = ({ code }) => ['auth.token.invalid', 'auth.token.expired', 'auth.header.missing'].includes(code);

// camel renames fields to camel case.
export function camel(value) {
  if (Array.isArray(value)) return value.map(camel);
  if (value === null || typeof value !== 'object') return value;
  return Object.fromEntries(Object.entries(value).map(([field, v]) => [field.replace(/_(.)/g, (_, c) => c.toUpperCase()), camel(v)]));
}

// jsonOf is credential.toJSON(), which some password managers lack.
function jsonOf(credential) {
  try {
    return credential.toJSON();
  } catch {
    const { id, type, response: of } = credential;
    const response = { transports: of.getTransports?.() };
    for (const part of ['clientDataJSON', 'attestationObject', 'authenticatorData', 'signature', 'userHandle']) {
      if (of[part]) response[part] = base64url(new Uint8Array(of[part]));
    }
    return { id, rawId: id, type, response, clientExtensionResults: {} };
  }
}

const base64url = (bytes) => btoa(String.fromCharCode(...bytes)).replace(/\+/g, '-').replace(/\//g, '_').replace(/=+$/, '');
const random = () => base64url(crypto.getRandomValues(new Uint8Array(32)));

// Memory is a storage that only one client uses.
class Memory extends Map {
  getItem(name) { return this.get(name) ?? null; }
  setItem(name, value) { this.set(name, String(value)); }
  removeItem(name) { this.delete(name); }
}

// spared keeps in memory what a storage does not take, since it is full or there is none.
export const spared = (storage, spare = new Memory()) => ({
  getItem: (name) => spare.getItem(name) ?? storage?.getItem(name) ?? null,
  setItem(name, value) {
    this.removeItem(name);
    try {
      storage.setItem(name, value);
    } catch {
      spare.setItem(name, value);
    }
  },
  removeItem(name) {
    spare.removeItem(name);
    storage?.removeItem(name);
  },
});

export function storageOfTab() {
  try {
    return globalThis.sessionStorage;
  } catch { // the user has disabled storage or cookies
    return undefined;
  }
}

// Captcha pow: search finds an n for which the SHA-256 of `${challenge}.${n}` begins
// with `bits` zero bits. The worker runs this file too.

const workerName = 'mnemogate-pow';

// work finds n in a worker, if there can be one, or else here, with pauses.
function work(address, challenge, bits, signal) {
  return new Promise((resolve, reject) => {
    let worker;
    const end = (settle) => (value) => { worker?.terminate(); settle(value); };
    const here = () => pausing(challenge, bits, signal).then(resolve, reject);
    signal?.throwIfAborted();
    signal?.addEventListener('abort', () => end(reject)(signal.reason));
    if (new URL(address).origin !== globalThis.location?.origin || typeof Worker !== 'function') return here();
    try {
      worker = new Worker(address, { type: 'module', name: workerName });
    } catch { // by the page's policy
      return here();
    }
    worker.onmessage = ({ data }) => end(resolve)(data);
    worker.onerror = end(here);
    worker.postMessage([challenge, bits]);
  });
}

async function pausing(challenge, bits, signal) {
  for (let n = 0; ; n += 2000) {
    const found = search(challenge, bits, n, n + 2000);
    if (found !== undefined) return found;
    await new Promise((resume) => setTimeout(resume));
    signal?.throwIfAborted();
  }
}

if (typeof document === 'undefined' && globalThis.name === workerName) {
  globalThis.onmessage = ({ data: [challenge, bits] }) => postMessage(search(challenge, bits, 0, Infinity));
}

// search tries the numbers from first to end.
function search(challenge, bits, first, end) {
  const prefix = new TextEncoder().encode(`${challenge}.`);
  const bytes = new Uint8Array(prefix.length + 89 & ~63); // 17 digits, 0x80, and the length in 8 bytes
  const view = new DataView(bytes.buffer);
  bytes.set(prefix);
  for (let n = first; n < end; n++) {
    let length = prefix.length;
    for (const digit of String(n)) bytes[length++] = digit.charCodeAt(0);
    bytes[length] = 0x80;
    const last = (length + 8 & ~63) + 60;
    view.setUint32(last, 8 * length);
    if (Math.clz32(firstWord(view, last)) >= bits) return n;
    view.setUint32(last, 0);
  }
  return undefined;
}

// SHA-256 (FIPS 180-4), with its constants from the roots of the first primes.
// crypto.subtle is ten times slower for such short inputs.

const primes = [];
for (let p = 2; primes.length < 64; p++) if (primes.every((q) => p % q)) primes.push(p);
const fraction = (x) => (x - Math.floor(x)) * 2 ** 32 | 0;
const initial = primes.slice(0, 8).map((p) => fraction(Math.sqrt(p)));
const constants = Int32Array.from(primes, (p) => fraction(Math.cbrt(p)));
const schedule = new Int32Array(64);

// firstWord returns the first word of the hash of padded blocks. last is the offset of their
// last word.
function firstWord(view, last) {
  const hash = Int32Array.from(initial);
  for (let block = 0; block < last; block += 64) {
    let [a, b, c, d, e, f, g, h] = hash;
    for (let i = 0; i < 64; i++) {
      if (i < 16) {
        schedule[i] = view.getInt32(block + 4 * i);
      } else {
        const x = schedule[i - 15], y = schedule[i - 2];
        const s0 = (x >>> 7 | x << 25) ^ (x >>> 18 | x << 14) ^ x >>> 3;
        const s1 = (y >>> 17 | y << 15) ^ (y >>> 19 | y << 13) ^ y >>> 10;
        schedule[i] = schedule[i - 16] + s0 + schedule[i - 7] + s1;
      }
      const t1 = h + ((e >>> 6 | e << 26) ^ (e >>> 11 | e << 21) ^ (e >>> 25 | e << 7)) + (e & f ^ ~e & g) + constants[i] + schedule[i] | 0;
      const t2 = ((a >>> 2 | a << 30) ^ (a >>> 13 | a << 19) ^ (a >>> 22 | a << 10)) + (a & b ^ a & c ^ b & c) | 0;
      h = g; g = f; f = e; e = d + t1 | 0; d = c; c = b; b = a; a = t1 + t2 | 0;
    }
    [a, b, c, d, e, f, g, h].forEach((word, i) => { hash[i] += word; });
  }
  return hash[0];
}
