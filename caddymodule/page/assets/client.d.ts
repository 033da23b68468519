// Types of client.js: a login, step by step. `client.resume()` says where the browser
// is; `step.state` tells the compiler what can be done there; each method returns the
// next step.
//
//     const client = connect({ company: '/acme', apiKey, cookie: true });
//     let step = await client.resume();
//     if (step.state === 'start') step = await step.login('alice@example.com');
//     if (step.state === 'checkpassword') step = await step.checkPassword('…');
//
// A method that does not succeed throws a MnemogateError, whose `step` is where it
// goes on: the same token with what is now known of it, or the start.

export declare function connect(options: Options): Client;

export interface Options {
  /** The company's address: `https://api.example.com/acme`, or `/acme` of the page's own origin. */
  company: string;
  /**
   * The API key; or a function that gets one. It is asked once, and again with the
   * key that was refused: the request is then sent anew, since nothing was done.
   */
  apiKey: string | ((refused?: string) => string | Promise<string>);
  /**
   * Whether the session goes on in a cookie that no script can read, where the site
   * has the option `cookie`. Else its token is sent in Authorization. Default: false.
   */
  cookie?: boolean;
  /**
   * Where the newest token is kept, and with it a login that a reload interrupts: read
   * by every script of the origin. Default: with `cookie` sessionStorage, which then
   * holds tokens of single steps only; else the memory of this client.
   */
  storage?: TokenStorage;
  /** The language of disclaimers, as in Accept-Language, or a function that tells it. Default: the browser's. */
  language?: string | (() => string);
  /** After how many milliseconds without an answer a request is given up. Default: 30000. */
  timeout?: number;
}

/** What sessionStorage and localStorage are. */
export type TokenStorage = Pick<Storage, 'getItem' | 'setItem' | 'removeItem'>;

export interface Client {
  /** Where the browser is: at the start, in a login that was interrupted, or logged in. */
  resume(options?: {
    /** False where there is certainly no cookie, as a server that sees it can tell: the session is not asked for. */
    byCookie?: boolean;
  }): Promise<Step>;
  /** Begins anew, whatever was under way. Who is logged in by the cookie stays so until the next login. */
  start(): Start;
  /**
   * The login goes on that `authorize` began, at an address that a provider sent the
   * browser back to; null if it is another address. Take code and state out of it
   * (`history.replaceState`) before anything else is loaded. A code is sent once.
   */
  finishOAuth(location: string | URL | { href: string }): Promise<AcceptDisclaimers | Authorized | null>;
  /** What a login page must know beforehand. */
  config(): Promise<Config>;
  /**
   * Works off a challenge of `captcha pow`, for a few seconds at most on most machines,
   * in a Worker where that is possible: a `captcha` that is good once and for 5 minutes.
   * The steps do this by themselves where they get no `captcha`.
   */
  solveCaptcha(options?: { signal?: AbortSignal }): Promise<string>;
}

/** Where a login is. */
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
  | Authorized;

interface AtStart {
  /** Whether `loginWithPassword` needs a captcha. */
  captchaRequired: boolean;
  login(loginId: string): Promise<CheckPassword | CheckOTP>;
  /** A login whose answers don't tell whether the account or the password is wrong. */
  loginWithPassword(loginId: string, password: string, options?: Proof & Consent): Promise<CheckOTP | SetPassword | Authorized>;
  /** Begins a recovery. Without a method the company's first one that the account has is taken. */
  recover(loginId: string, options?: Proof & { method?: RecoveryMethod }): Promise<RecoveryCheckOTP | RecoveryCheckQuestion | LinkMailed>;
  /** The token of a mailed link, which this uses up: wait for a click of the user. */
  checkLink(token: string): Promise<RecoverySetPassword>;
  /**
   * The address of a provider to which the browser is to go (`location.assign`). What
   * `finishOAuth` needs stays in sessionStorage.
   */
  authorize(provider: number | OAuthProvider, options?: {
    /** Where the provider sends the browser back to. Default: this page, without query and fragment. */
    redirectUri?: string;
  }): Promise<string>;
}

/** Nobody is logged in. */
export interface Start extends AtStart { state: 'start' }

/** A link was mailed; the page behind it calls `checkLink`. */
export interface LinkMailed extends AtStart {
  state: 'linkmailed';
  /** The address, masked. */
  email: string | null;
}

/** A recovery is done: the user logs in with the new password. */
export interface PasswordSet extends AtStart { state: 'passwordset' }

interface WithToken {
  /** What the user entered as login id, if this client was told; for password managers. */
  loginId: string | null;
  /** When the token ends unless it is used, in milliseconds of Date.now(). */
  expiresAt: number;
}

interface Halfway extends WithToken {
  /** Gives the login up, and ends its token. */
  cancel(): Promise<Start>;
}

export interface CheckPassword extends Halfway {
  state: 'checkpassword';
  captchaRequired: boolean;
  disclaimers: Disclaimer[];
  checkPassword(password: string, options?: Proof & Consent): Promise<CheckOTP | SetPassword | Authorized>;
  /** Ends this login and begins a recovery of the same account. */
  recover(options?: Proof & { method?: RecoveryMethod; loginId?: string }): Promise<RecoveryCheckOTP | RecoveryCheckQuestion | LinkMailed>;
}

export interface CheckOTP extends Halfway {
  state: 'checkotp';
  /** Where the code was sent, masked; null: none was, ask for one of the authenticator app, or a backup code. */
  phone: string | null;
  /** The code that was sent is spent: `renewOTP` comes before the next `checkOTP`. */
  codeSpent: boolean;
  disclaimers: Disclaimer[];
  checkOTP(code: string, options?: Consent): Promise<SetPassword | Authorized>;
  useBackupCode(code: string, options?: Consent): Promise<SetPassword | Authorized>;
  /** Has another code sent; where an app's code is asked for, an SMS in its place. */
  renewOTP(): Promise<CheckOTP>;
}

export interface SetPassword extends Halfway {
  state: 'setpassword';
  rules: PasswordRules;
  /** Those that became required meanwhile. */
  disclaimers: Disclaimer[];
  setPassword(password: string, options?: Consent): Promise<Authorized>;
}

/** After OAuth only. */
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

export interface Authorized extends WithToken {
  state: 'authorized';
  profileMnemocode: string;
  /** What a request to the application needs: Authorization; nothing with the cookie. */
  headers(): Record<string, string>;
  /** fetch as this user, for addresses of the company's origin alone. A 401 is the end of the session: `resume`. */
  fetch(input: string | URL | Request, init?: RequestInit): Promise<Response>;
  /** Ends the session. It is no error if it had ended already. */
  logout(): Promise<Start>;
}

interface Proof {
  /**
   * The response of a captcha's widget. Without it `captcha pow` is worked off, if one
   * is needed and the company has that.
   */
  captcha?: string | Promise<string>;
}

interface Consent {
  /** Codes of disclaimers that the user accepted in this step. */
  acceptDisclaimers?: string[];
}

/** Text of the operator, not markup: link may be empty, and is an address to be checked before it is one to click. */
export interface Disclaimer { code: string; title: string; description: string; link: string }

export interface PasswordRules {
  /** All rules, in English, then what the operator wrote. */
  description: string | null;
  /** In the syntax of RE2. */
  regex: string | null;
}

export type RecoveryMethod = 'PHONE' | 'MAIL' | 'QUESTION';

export interface Config {
  password: {
    minLength: number;
    regex: string | null;
    /** All rules, in English, then what the operator wrote. */
    description: string;
    /** What the operator wrote, alone. */
    regexDescription?: string;
  };
  captcha: { type: string; siteKey?: string };
  recovery: RecoveryMethod[];
  oauth: OAuthProvider[];
  disclaimers: Disclaimer[];
  /** In seconds. */
  session: { idle: number; lifetime: number };
}

export interface OAuthProvider {
  providerId: number;
  name: string;
  /** Null where nobody knows it, or the provider does not say it just now. */
  authorizeUrl: string | null;
  clientId: string;
  scope: string;
  pkce: boolean;
}

/** What a method throws. Go by `code`, whose texts for users are the app's; `message` is for developers. */
export declare class MnemogateError extends Error {
  readonly code: ErrorCode | OwnCode;
  /** The status of the answer; 0 if there was none. */
  readonly status: number;
  /** One word for programs, where a code has several causes. */
  readonly reason: Reason | null;
  /** After how many seconds it may be tried again; null if that is not said. */
  readonly retryAfter: number | null;
  /** Whether the next attempt needs a captcha; so has `step`. */
  readonly captchaRequired: boolean;
  /** Those that must be accepted; so has `step`. */
  readonly disclaimersRequired: Disclaimer[];
  /** Where it goes on. */
  readonly step: Step;
}

/** Codes of this module, beside the server's. */
export type OwnCode =
  /** No answer came, or none of the server's: the step may have been made. It is never sent again by itself; `step` may be tried again. */
  | 'network'
  /** Another step of this client is under way, such as the first click of two. Nothing was sent. */
  | 'busy'
  /** Another tab, or another click, was first. `step` is where that has led. */
  | 'superseded'
  /** The address that a provider sent the browser to belongs to no login that was begun here. */
  | 'oauth.state'
  /** The provider sent an error instead of a code; `message` ends with its name, as in access_denied. */
  | 'oauth.denied';

export type ErrorCode =
  | 'auth.apikey.invalid' | 'auth.apikey.missing'
  | 'auth.backupcode.invalid'
  | 'auth.captcha.invalid' | 'auth.captcha.missing'
  | 'auth.controlanswer.invalid'
  | 'auth.credentials.invalid'
  | 'auth.disclaimer.invalid'
  | 'auth.header.invalid' | 'auth.header.missing'
  | 'auth.loginid.notfound'
  | 'auth.oauth.failed' | 'auth.oauth.notfound'
  | 'auth.otp.invalid'
  | 'auth.password.invalid'
  | 'auth.restricted'
  | 'auth.session.invalid'
  | 'auth.token.expired' | 'auth.token.invalid'
  | 'auth.user.closed' | 'auth.user.denied' | 'auth.user.restricted'
  | 'recovery.email.notset' | 'recovery.method.restricted' | 'recovery.phone.notset' | 'recovery.question.notset'
  | 'request.validation.failed'
  | 'service.error' | 'service.unavailable';

export type Reason =
  | 'cross_site'
  | 'limit.address' | 'limit.logins' | 'limit.mails' | 'limit.renewals'
  | 'limit.sms_account' | 'limit.sms_address' | 'limit.sms_company' | 'limit.sms_country' | 'limit.sms_phone'
  | 'lock.answers' | 'lock.codes' | 'lock.disabled' | 'lock.password'
  | 'password.common' | 'password.pattern' | 'password.personal' | 'password.too_long' | 'password.too_short'
  | 'too_old'
  | 'user.no_second_factor'
  | (string & {}); // servers to come may have more
