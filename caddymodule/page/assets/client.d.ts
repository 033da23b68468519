// Types of client.js, which leads a user through a login step by step. `client.resume()`
// returns the current step. From `step.state` the compiler knows which methods the step
// has. Each method returns the next step.
//
//     const client = connect({ company: '/acme', apiKey, cookie: true });
//     let step = await client.resume();
//     if (step.state === 'start') step = await step.login('alice@example.com');
//     if (step.state === 'checkpassword') step = await step.checkPassword('…');
//
// It needs fetch, URL, btoa and crypto.getRandomValues. In React Native, import
// react-native-get-random-values and react-native-url-polyfill/auto before it.
//
// A method that fails throws a MnemogateError. Continue with its `step`: the same step
// with updated fields, or the start.

export declare function connect(options: Options): Client;

export interface Options {
  /** The company's address: `https://api.example.com/acme`, or `/acme` if the page has the same origin. */
  company: string;
  /**
   * The API key, or a function that returns one. The client calls the function once. If the
   * server refuses the key, the client calls it again with the refused key and repeats the
   * request, which is safe because the server checks the key first.
   */
  apiKey: string | ((refused?: string) => string | Promise<string>);
  /**
   * Keep the session in a cookie that scripts can't read. The site must have the option
   * `cookie`. Otherwise the client sends the token in Authorization. Default: false.
   */
  cookie?: boolean;
  /**
   * Whether the cookie outlives the browser, or a function that returns it when the login is
   * done. Only for sites whose `config().remember` is true; others ignore it. Default: false.
   */
  remember?: boolean | (() => boolean);
  /**
   * Whether the company remembers this device, or a function that returns it during the login.
   * Only for companies whose `config().devices` is true; others ignore it. Default: false.
   */
  rememberDevice?: boolean | (() => boolean);
  /**
   * The `deviceToken` of an earlier login of the user on this device, or a function that
   * returns it. With `cookie` the browser keeps it for you. Default: none.
   */
  deviceToken?: string | (() => string | undefined);
  /**
   * Where the client keeps the newest token, so that a login survives a reload. Warning:
   * every script of the origin can read it. Default: sessionStorage with `cookie`, where
   * it holds only the tokens of login steps; otherwise the memory of this client. What it
   * does not take, because it is full, stays in memory.
   */
  storage?: TokenStorage;
  /** The language of disclaimers, as in Accept-Language, or a function that returns it. Default: the browser's. */
  language?: string | (() => string);
  /** How long to wait for an answer to a request, in milliseconds. Default: 30000. */
  timeout?: number;
}

/** The methods of sessionStorage and localStorage that the client uses. */
export interface TokenStorage {
  getItem(name: string): string | null;
  setItem(name: string, value: string): void;
  removeItem(name: string): void;
}

export interface Client {
  /** Returns the current step: the start, a step of an interrupted login, or the session of a user who is logged in. */
  resume(options?: {
    /**
     * Set it to false if you know that there is no cookie, for example from your server.
     * This saves the request for the session. Default: the option `cookie`.
     */
    byCookie?: boolean;
    /**
     * Makes the user log in again even if the cookie has a session: the step is the start, with
     * the notice `login.fresh`. Default: false. Without the option `cookie`, call `start` instead.
     */
    fresh?: boolean;
  }): Promise<Step>;
  /** Drops an unfinished login and returns the start. A user with a session cookie stays logged in until the next login. */
  start(): Start;
  /** Ends the session of the cookie. It may be one of another company of the site, which `resume` does not find. */
  logout(): Promise<Start>;
  /**
   * Asks a user who is logged in for one more factor, after `auth.session.invalid` with the
   * reason `mfa` (`for: 'mfa'`) or `too_old` (`for: 'fresh'`). The session and its token stay.
   * Returns the start if nobody is logged in, and the session if it has two factors already.
   * Fails with `auth.user.restricted`, `user.no_second_factor`, if the account has no factor
   * that would do. If this tab has begun a step-up by SMS, which has not expired, `stepUp`
   * goes on with it and sends no other code, also after a reload.
   */
  stepUp(options?: {
    /** Default: mfa. */
    for?: 'mfa' | 'fresh';
    /** The factor to begin with, anew. Default: the best one that the account has. */
    factor?: Factor;
    /** As for `resume`. */
    byCookie?: boolean;
  }): Promise<Step>;
  /**
   * Continues the login that `authorize` began. Call it with the address that the provider
   * sent the browser back to. For other addresses it returns null. Remove code and state
   * from the address (`history.replaceState`) before the page loads anything else. The
   * client sends a code only once. A call while another is under way returns the same.
   */
  finishOAuth(location: string | URL | { href: string }): Promise<AcceptDisclaimers | Authorized | null>;
  /**
   * Asks the browser for a passkey, for companies whose `config().passkeys` is true, and
   * returns what `loginWithPasskey` takes. The result works once, within 5 minutes of the
   * call. `askPasskey` fails with the browser's `DOMException`: `NotAllowedError` if the user cancels
   * or has no passkey here, `AbortError` if `signal` aborts it. Call it only if the browser has
   * `PublicKeyCredential.parseRequestOptionsFromJSON`.
   */
  askPasskey(options?: {
    /**
     * `conditional` waits until the user chooses a passkey in the autofill of a field with
     * `autocomplete="username webauthn"`. Ask again before 5 minutes are over. Default: the
     * browser shows a dialog.
     */
    mediation?: 'conditional';
    signal?: AbortSignal;
  }): Promise<PasskeyAnswer>;
  /** Returns what a login page needs to know before the login. */
  config(): Promise<Config>;
  /**
   * Solves a challenge of `captcha pow` and returns the value for `captcha`. The value
   * works once, within 5 minutes. On most machines this takes a few seconds at most. It runs in
   * a Worker if possible. The steps call it themselves if you pass no `captcha`.
   */
  solveCaptcha(options?: { signal?: AbortSignal }): Promise<string>;
}

/** A step of a login. */
export type Step =
  | Start
  | LinkMailed
  | PasswordSet
  | CheckPassword
  | CheckOTP
  | SetPassword
  | AcceptDisclaimers
  | RecoveryCheckOTP
  | RecoveryCheckQuestion
  | RecoverySetPassword
  | StepUp
  | Authorized;

/** What happened on the way to a step. Choose your text for users by it. */
export type Notice =
  /** Another code was sent. */
  | 'code.resent'
  /** The code was wrong or had expired, and another one was sent. */
  | 'code.wrong.resent'
  /** No code was sent: no phone gets one, or a limit was reached. Ask for a backup code. */
  | 'sms.exhausted'
  /** The new password is set. The user logs in with it now. */
  | 'password.set'
  /** The user has logged out. */
  | 'logout.done'
  /** The user is logged in, but the login is too old for what they want to do. */
  | 'login.fresh';

/** What a user can enter as a second factor: a code by SMS, a code of an authenticator app, or a backup code. */
export type SecondFactor = 'sms' | 'otp' | 'backup';

interface Noticing {
  /** What happened on the way to this step, if there is something to tell. */
  notice: Notice | null;
}

interface AtStart extends Noticing {
  /** Whether `loginWithPassword` needs a captcha. */
  captchaRequired: boolean;
  /** With the notice `login.fresh`, who is logged in: what to call that user on a screen, and the mnemocode. Otherwise null. */
  user: string | null;
  profileMnemocode: string | null;
  login(loginId: string): Promise<CheckPassword | CheckOTP>;
  /** Logs in with login id and password at once. The error does not reveal which of them is wrong. */
  loginWithPassword(loginId: string, password: string, options?: Proof & Consent): Promise<CheckOTP | SetPassword | Authorized>;
  /** Logs in with a passkey, which counts as both factors. `auth.credentials.invalid` says that it is unknown or was removed (reason `passkey.unknown`), or that its challenge has expired. */
  loginWithPasskey(answer: PasskeyAnswer, options?: Consent): Promise<SetPassword | AcceptDisclaimers | Authorized>;
  /** Begins a recovery. Default method: the first of the company's methods that the account can use. */
  recover(loginId: string, options?: Proof & { method?: RecoveryMethod }): Promise<RecoveryCheckOTP | RecoveryCheckQuestion | LinkMailed>;
  /** Spends the token of a mailed link. Call it only after a click of the user, because mail scanners open links, too. */
  checkLink(token: string): Promise<RecoverySetPassword>;
  /**
   * Returns the address of the provider. Send the browser there with `location.assign`.
   * The data that `finishOAuth` needs is kept in sessionStorage. Without `authorizeUrl` it
   * fails with `service.unavailable`.
   */
  authorize(provider: number | OAuthProvider, options?: {
    /** The address that the provider sends the browser back to. Default: this page, without query and fragment. */
    redirectUri?: string;
    /**
     * How many seconds old the login at an OpenID provider may be. The provider asks again
     * for an older one. OAuth 2.0 and some OpenID providers ask nothing. Default: a year.
     */
    maxAge?: number;
    /**
     * What an OpenID provider shows to a user who is logged in there, such as `select_account`
     * after a login with the wrong account was refused. Default: the provider's `prompt`.
     */
    prompt?: string;
  }): Promise<string>;
}

/** Nobody is logged in. */
export interface Start extends AtStart { state: 'start' }

/** A link was mailed. The page that it opens must call `checkLink`. */
export interface LinkMailed extends AtStart {
  state: 'linkmailed';
  /** The address. With `hardened`, `***@***` unless it was the login id. */
  email: string | null;
}

/** A recovery is done: the user logs in with the new password. */
export interface PasswordSet extends AtStart { state: 'passwordset' }

interface WithToken extends Noticing {
  /**
   * The login id as the user entered it (a phone as the server read it), the email that a
   * link was sent to, or null if this client does not know it. Show it to users and
   * password managers.
   */
  loginId: string | null;
  /** When the token expires unless it is used, in milliseconds like Date.now(). */
  expiresAt: number;
}

interface Halfway extends WithToken {
  /** Cancels the login and revokes its token. */
  cancel(): Promise<Start>;
}

export interface CheckPassword extends Halfway {
  state: 'checkpassword';
  captchaRequired: boolean;
  disclaimers: Disclaimer[];
  checkPassword(password: string, options?: Proof & Consent): Promise<CheckOTP | SetPassword | Authorized>;
  /** Leaves this login and begins a recovery of the same account. */
  recover(options?: Proof & { method?: RecoveryMethod; loginId?: string }): Promise<RecoveryCheckOTP | RecoveryCheckQuestion | LinkMailed>;
}

export interface CheckOTP extends Halfway {
  state: 'checkotp';
  /** The masked phone that the code was sent to. If null, no code was sent: ask for a backup code or, if `secondFactors` has `otp`, a code of the authenticator app. */
  phone: string | null;
  /**
   * The second factors that the account has. Offer no others. Null if the login began
   * without a password: strangers can begin it, so the server does not say.
   */
  secondFactors: SecondFactor[] | null;
  /** A failed attempt spent the code. Call `renewOTP` before the next `checkOTP`. */
  codeSpent: boolean;
  disclaimers: Disclaimer[];
  checkOTP(code: string, options?: Consent): Promise<SetPassword | Authorized>;
  useBackupCode(code: string, options?: Consent): Promise<SetPassword | Authorized>;
  /** Sends another code by SMS. If the step expects a code of an app, the SMS replaces it. */
  renewOTP(): Promise<CheckOTP>;
}

export interface SetPassword extends Halfway {
  state: 'setpassword';
  rules: PasswordRules;
  /** Disclaimers to accept in this step, if any. */
  disclaimers: Disclaimer[];
  setPassword(password: string, options?: Consent): Promise<Authorized>;
}

/** Follows only a login with OAuth or a passkey. */
export interface AcceptDisclaimers extends Halfway {
  state: 'acceptdisclaimers';
  disclaimers: Disclaimer[];
  acceptDisclaimers(codes: string[]): Promise<Authorized>;
}

export interface RecoveryCheckOTP extends Halfway {
  state: 'recovery-checkotp';
  phone: string | null;
  codeSpent: boolean;
  checkOTP(code: string): Promise<RecoverySetPassword>;
  renewOTP(): Promise<RecoveryCheckOTP>;
}

export interface RecoveryCheckQuestion extends Halfway {
  state: 'recovery-checkquestion';
  question: string;
  checkAnswer(answer: string): Promise<RecoverySetPassword>;
}

export interface RecoverySetPassword extends Halfway {
  state: 'recovery-setpassword';
  rules: PasswordRules;
  setPassword(password: string): Promise<PasswordSet>;
}

/** A factor: a code by SMS, a code of an authenticator app, a backup code, a passkey or the password. */
export type Factor = 'sms' | 'otp' | 'backup' | 'passkey' | 'pwd';

/** The session of a user who is logged in waits for one more factor. */
export interface StepUp extends WithToken {
  state: 'stepup';
  for: 'mfa' | 'fresh';
  /** What to call the user on a screen. */
  user: string | null;
  /** The factors that the user can give, best first. */
  factors: Factor[];
  /** The one to ask for. The user may give another one: see `choose`. */
  factor: Factor;
  /** The masked phone that a code was sent to, or null. */
  phone: string | null;
  /** A failed attempt spent the code by SMS. Call `renewOTP` before the next `checkOTP`. */
  codeSpent: boolean;
  /** Asks for another factor. For `sms` it sends a code. */
  choose(factor: Factor): Promise<StepUp>;
  /** Sends another code by SMS. */
  renewOTP(): Promise<StepUp>;
  checkOTP(code: string): Promise<Authorized>;
  useBackupCode(code: string): Promise<Authorized>;
  checkPassword(password: string): Promise<Authorized>;
  /** Lets the browser ask for a passkey. Fails with the browser's `DOMException` as `askPasskey` does. */
  usePasskey(options?: { signal?: AbortSignal }): Promise<Authorized>;
  /** Leaves the step-up, and asks the server for the session as it is. No code is sent. */
  cancel(): Promise<Step>;
}

export interface Authorized extends WithToken {
  state: 'authorized';
  /** How the user has proved who they are, with `mfa` for two factors. Empty if this client has not asked: see `resume`. */
  authMethods: string[];
  profileMnemocode: string;
  /** What to call the user on a screen: the email, login name or masked phone. Null after a login, until `resume` returns it. */
  user: string | null;
  /**
   * The device's token if this login made the company remember the device; otherwise null.
   * Keep it where no other app can read it, for the user's next login. With `cookie` it is
   * null: the browser keeps it.
   */
  deviceToken: string | null;
  /** The headers for a request to the application: Authorization, or none with the cookie. */
  headers(): Record<string, string>;
  /** Like fetch, as this user; with `cookie`, as whoever is logged in now. Only for addresses of the company's origin, where `/orders` is one, too. After a 401, call `resume`: the session may have ended. */
  fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;
  /** Revokes the session. It also succeeds if the session has already ended. With `cookie`, it works only on a page of the company's origin. */
  logout(): Promise<Start>;
  /** How users manage their own login, on sites with `self_service`. */
  readonly me: Me;
}

/**
 * Users manage their own login. Methods marked with * fail with `auth.session.invalid`
 * and the reason `too_old` if the login is not recent, or `mfa`: use `stepUp`.
 */
export interface Me {
  factors(): Promise<Factors>;
  /** Oldest first. */
  sessions(): Promise<OwnSession[]>;
  /** * The current session needs no recent login. */
  endSession(sessionId: string): Promise<unknown>;
  /** * Logins and recoveries in progress, links and known devices stay. */
  endOtherSessions(): Promise<unknown>;
  /** The devices that the company remembers, oldest first. */
  devices(): Promise<KnownDevice[]>;
  /** * Revokes no session. */
  forgetDevice(deviceId: string): Promise<unknown>;
  /** * Forgets all devices. Revokes no session. */
  forgetDevices(): Promise<unknown>;
  /** * Revokes all other sessions. An account without a password needs no current one. */
  changePassword(password: string, options?: { current?: string }): Promise<unknown>;
  phone: OwnContact;
  email: OwnContact;
  /** * A secret for an authenticator app, shown only once. It takes effect with `confirmTOTP`. `qr` is a picture of `uri`, in SVG. */
  newTOTP(): Promise<{ secret: string; uri: string; qr: string }>;
  /** * Revokes all other sessions. An account without backup codes gets ten, shown only once. */
  confirmTOTP(code: string): Promise<{ backupCodes?: string[] }>;
  /** * Revokes all other sessions. */
  removeTOTP(): Promise<unknown>;
  /** * Says whether a login with the password needs a code, too. Revokes all other sessions. */
  setSecondFactor(enabled: boolean): Promise<unknown>;
  /** Oldest first. Tells the browser which ones there are, and the user's present name. */
  passkeys(): Promise<Passkey[]>;
  /**
   * * Lets the browser create a passkey. It fails with the browser's `DOMException` if the user
   * cancels (`NotAllowedError`) or the authenticator has a passkey of the account already
   * (`InvalidStateError`). Without a name it is called like the provider that keeps it, such
   * as 1Password. With `conditional`, after a login with a password, the browser asks nobody,
   * if it has `conditionalCreate` among its `PublicKeyCredential.getClientCapabilities()`.
   */
  addPasskey(name?: string, options?: { mediation?: 'conditional'; signal?: AbortSignal }): Promise<Passkey>;
  /** * Changes the name. Revokes no session. */
  renamePasskey(id: string, name: string): Promise<unknown>;
  /** * Revokes all other sessions. */
  removePasskey(id: string): Promise<unknown>;
  /** The issued tokens of the account, oldest first, for companies whose `config().issuedTokens` is not null. */
  tokens(): Promise<IssuedToken[]>;
  /**
   * * Issues a token for a machine or script, shown only once: `token`. It opens the paths (as
   * `/reports/*`) and methods (as `GET`), and is no login. `expiresIn` is in seconds; without
   * it the token is valid as long as the company allows.
   */
  issueToken(wish: { name: string; paths: string[]; methods: string[]; expiresIn?: number }): Promise<IssuedToken & { token: string }>;
  /** * Revokes a token. Revokes no session. */
  removeToken(id: string): Promise<unknown>;
  /** * Ten codes, shown only once. This revokes the old ones. */
  newBackupCodes(): Promise<string[]>;
}

export interface OwnContact {
  /** * Sends a code to a new phone or email. Until `confirm`, nothing changes. The phone is masked in the answer. */
  send(value: string): Promise<{ contactToken: string; expiresIn: number; userPhone?: string; userEmail?: string }>;
  /**
   * * Makes the change and revokes all other sessions. A code by SMS can be tried once, one by
   * mail five times; then send a new one. It fails with the status 409 if another account
   * has the value. One's own present value is only proven.
   */
  confirm(contactToken: string, code: string): Promise<unknown>;
  /** * Revokes all other sessions. It fails with the status 409 if the account would have no way to log in or none to be recovered. */
  remove(): Promise<unknown>;
}

export interface OwnSession {
  sessionId: string;
  /** Whether it is the session of this client. */
  current: boolean;
  /** Times are in ISO 8601. */
  createdAt: string;
  lastUsed: string;
  expiresAt: string;
  endsAt: string;
  address: string;
  /** Text of a client. Show it as text, not as markup. */
  userAgent: string;
}

export interface KnownDevice {
  deviceId: string;
  /** Whether it is the device of this client. */
  current: boolean;
  /** Whether it may skip the second factor. */
  skipSecondFactor: boolean;
  createdAt: string;
  expiresAt: string;
  address: string;
  /** Text of a client. Show it as text, not as markup. */
  userAgent: string;
}

export interface IssuedToken {
  /** It does not work as a token. */
  id: string;
  /** Text of the user or of a backend. Show it as text, not as markup. Empty if somebody acts as the user with it. */
  name: string;
  paths: string[];
  methods: string[];
  createdAt: string;
  expiresAt: string;
  /** To the minute. Null until it is first used. */
  lastUsed: string | null;
  /** Whether somebody, such as support, acts as the user with it. */
  acting: boolean;
}

export interface Passkey {
  id: string;
  /** Text of the user or of a client. Show it as text, not as markup. */
  name: string;
  /** Whether it exists on other devices, too. */
  backedUp: boolean;
  createdAt: string;
  /** Null until the first login with it. */
  lastUsed: string | null;
}

export interface Factors {
  /** What to call the user on a screen: the email, login name or masked phone. */
  user?: string;
  passwordSet: boolean;
  /** How many. */
  passkeys: number;
  totp: boolean;
  backupCodesLeft: number;
  /** Masked. */
  userPhone?: string;
  phone?: ContactFactor;
  email?: ContactFactor;
  /** To which of them the company can send a code, so that users can change them. */
  provable: ('phone' | 'email')[];
  providerIds: number[];
  /** Whether a login with the password needs a code, too. */
  secondFactor: boolean;
  secondFactorPolicy: 'per_account' | 'required' | 'off';
  /** For how many seconds the login is recent enough for changes. */
  freshFor: number;
  /** Whether changes of what the user logs in with need a step-up `for: 'mfa'`. */
  mfaMissing: boolean;
  /** What some part of a new password must match, in RE2 syntax, or null. */
  passwordRegex: string | null;
  /** All rules for a new password of this account, in English. */
  passwordRegexDescription: string;
}

export interface ContactFactor {
  /** A phone is masked. */
  value: string;
  /** When its owner has proven it, in ISO 8601. */
  verifiedAt?: string;
  /** Whether the account could do without it. */
  removable: boolean;
}

interface Proof {
  /**
   * The response of a captcha's widget. Default: if a captcha is required and the company
   * has `captcha pow`, the client solves a challenge.
   */
  captcha?: string | Promise<string>;
}

interface Consent {
  /** The codes of the disclaimers that the user accepted in this step. */
  acceptDisclaimers?: string[];
}

/** Text of the operator. Show it as text, not as markup. The link may be empty. Check its address before you make it clickable. */
export interface Disclaimer { code: string; title: string; description: string; link: string }

export interface PasswordRules {
  /** All rules in English, followed by the operator's text. */
  description: string | null;
  /** A regular expression in RE2 syntax. */
  regex: string | null;
}

/** The browser's answer to a challenge of the server. */
export interface PasskeyAnswer {
  challengeToken: string;
  credential: unknown;
  /** With it, the browser is told of a passkey that was removed. */
  rpId?: string;
}

export type RecoveryMethod = 'PHONE' | 'MAIL' | 'QUESTION';

export interface Config {
  /** What people call the company. */
  name: string;
  /** How many digits a code by SMS has, and how many seconds it is valid. */
  otp: { length: number; ttl: number };
  password: {
    minLength: number;
    regex: string | null;
    /** All rules in English, followed by the operator's text. */
    description: string;
    /** Only the operator's text. */
    regexDescription?: string;
  };
  captcha: { type: string; siteKey?: string; bits?: number };
  recovery: RecoveryMethod[];
  oauth: OAuthProvider[];
  disclaimers: Disclaimer[];
  /** In seconds. */
  session: { idle: number; lifetime: number };
  /** The operator's links, such as imprint, privacy policy and support. Empty without a login page. */
  links: Link[];
  /** Where users without an account create one. */
  signup: Link | null;
  /** Whether users can choose to stay logged in. See the option `remember`. */
  remember: boolean;
  /** Whether the company can remember devices. See the option `rememberDevice`. */
  devices: boolean;
  /** Whether users of a remembered device are asked for no code. */
  skipSecondFactor: boolean;
  /** Whether users can log in with passkeys. */
  passkeys: boolean;
  /** The tokens that users can issue for themselves, and how many seconds these are valid at most. Null if users can't. */
  issuedTokens: { lifetime: number } | null;
  /** Whether the company hides who has an account. A locked password then stays locked after a recovery. */
  hardened: boolean;
  /** Whether users can manage their own login: `Authorized.me`. */
  selfService: boolean;
  /** Whether sessions can be raised: `stepUp`. */
  stepUp: boolean;
}

/** A link of the operator, in the client's language. The address has https, http, mailto or tel, or is a path of this site. */
export interface Link {
  text: string;
  url: string;
  /** Whether it leads to support. */
  support?: boolean;
}

export interface OAuthProvider {
  providerId: number;
  name: string;
  /** Null if it is not known, or if the provider does not answer at the moment. */
  authorizeUrl: string | null;
  clientId: string;
  scope: string;
  pkce: boolean;
  /** The `prompt` to send, if the operator has set one. */
  prompt?: string;
  /** The `response_mode` to send, if the operator has set it: `form_post`. The answer is then posted to the redirect URI. */
  responseMode?: string;
  /** If the provider's answer has an `iss`, it must equal this (RFC 9207). `finishOAuth` checks that. */
  issuer?: string;
  /** Whether an answer with a code must have an `iss`. */
  issRequired?: boolean;
  /** The path of an image for the button, if the operator has set one. */
  icon?: string;
}

/** The error that methods throw. Choose your text for users by `code`. `message` is for developers. */
export declare class MnemogateError extends Error {
  readonly code: ErrorCode | OwnCode;
  /** The HTTP status of the answer, or 0 without an answer. */
  readonly status: number;
  /** The cause, if the code has several. It is a word for programs. */
  readonly reason: Reason | null;
  /** Names the error in the server's logs, or null without an answer. Show it where you offer support. */
  readonly ref: string | null;
  /**
   * Seconds until another attempt may succeed, or null if the server does not say. If the
   * step expires before, begin again then.
   */
  readonly retryAfter: number | null;
  /** Whether the next attempt needs a captcha. `step` has it too, except after `recover`, which always needs one. */
  readonly captchaRequired: boolean;
  /** The disclaimers that the user must accept. A step with a token has them as `disclaimers`. */
  readonly disclaimersRequired: Disclaimer[];
  /** The step to continue with. Undefined for methods that are not steps (`config`, `askPasskey`, `solveCaptcha`, `authorize` and `me`), and if `stepUp` or `finishOAuth` can't ask for the session. */
  readonly step: Step | undefined;
}

/** Codes of this module. All others come from the server. */
export type OwnCode =
  /** No answer from mnemogate arrived, or `apiKey` failed. The client has sent a step twice, with one `Idempotency-Key`. It may have succeeded. You may try `step` again. */
  | 'network'
  /** Another step of this client is in progress, for example after a double click. Nothing was sent. */
  | 'busy'
  /** Another tab or another click was faster. `step` is the step that it led to. */
  | 'superseded'
  /** The provider sent the browser back for a login that did not begin in this tab, that has ended, or that began at another provider. */
  | 'oauth.state'
  /** The provider sent an error instead of a code. `message` ends with its name, such as access_denied. */
  | 'oauth.denied';

export type ErrorCode =
  | 'auth.apikey.invalid'
  | 'auth.apikey.missing'
  | 'auth.backupcode.invalid'
  | 'auth.captcha.invalid'
  | 'auth.captcha.missing'
  | 'auth.controlanswer.invalid'
  | 'auth.credentials.invalid'
  | 'auth.disclaimer.invalid'
  | 'auth.header.invalid'
  | 'auth.header.missing'
  | 'auth.loginid.notfound'
  | 'auth.oauth.failed'
  | 'auth.oauth.notfound'
  | 'auth.otp.invalid'
  | 'auth.password.invalid'
  | 'auth.restricted'
  | 'auth.session.invalid'
  | 'auth.token.expired'
  | 'auth.token.invalid'
  | 'auth.user.closed'
  | 'auth.user.denied'
  | 'auth.user.restricted'
  | 'recovery.email.notset'
  | 'recovery.method.restricted'
  | 'recovery.phone.notset'
  | 'recovery.question.notset'
  | 'request.validation.failed'
  | 'service.error'
  | 'service.unavailable';

export type Reason =
  | 'cross_site'
  | 'limit.address'
  | 'limit.changes'
  | 'limit.logins'
  | 'limit.mails'
  | 'limit.renewals'
  | 'limit.sms_account'
  | 'limit.sms_address'
  | 'limit.sms_company'
  | 'limit.sms_country'
  | 'limit.sms_phone'
  | 'lock.answers'
  | 'lock.codes'
  | 'lock.disabled'
  | 'lock.password'
  | 'mfa'
  | 'passkey.changed'
  | 'passkey.unknown'
  | 'password.breached'
  | 'password.common'
  | 'password.pattern'
  | 'password.personal'
  | 'password.too_long'
  | 'password.too_short'
  | 'role'
  | 'scope'
  | 'too_old'
  | 'user.no_second_factor'
  | (string & {}); // newer servers may have more
