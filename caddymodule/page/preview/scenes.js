// The screens of the login page in each state, and of the pages beside it. A scene can
// have:
//
//   page      logout or security; otherwise it is the login page
//   at        the query and fragment of the page's address
//   session   what GET session answers: the step that the page begins with; several
//             answers are a list
//   cookie    it is the session of a cookie, not of a token
//   loginId   who the user said to be
//   answers   what other routes answer: a body, an error by fails, or a list of these
//   config    what differs from the usual client.json
//   act       what the user does: [what, where, text]

const fails = (status, error_code, more = {}) => ({ status, error_code, message: error_code, ref: '7K3M9QXZ2B', ...more });
const locked = (reason, seconds = 900) => fails(429, 'auth.restricted', { reason, retry: seconds });
const disclaimers_required = [
  { code: 'terms', title: 'Terms of use', description: 'How you may use the service, and what we promise.', link: 'https://example.com/terms' },
  { code: 'privacy', title: 'Privacy policy', description: 'What we store about you, and why.', link: 'https://example.com/privacy' },
];
const step = (session_state, more = {}) => ({ status: 'success', session_state, expires_in: 600, ...more });
const loginId = 'alice@example.com';
const password = { loginId, session: step('checkpassword') };
const code = { loginId, session: step('checkotp', { user_phone: '+37*******34', second_factors: ['sms', 'backup'] }) };
const app = { loginId, session: step('checkotp', { second_factors: ['otp', 'sms'] }) };
const newPassword = { loginId, session: step('setpassword', { password_regex: null, password_regex_description: '8 to 128 characters.' }) };
const recoveryCode = { loginId, session: step('recovery-checkotp', { user_phone: '+37*******34' }) };
const question = { loginId, session: step('recovery-checkquestion', { control_question: 'What was your first pet called?' }) };
const enter = (where, text) => [['enter', where, text], ['submit']];
const enterCode = ['enter', 'code', '123456']; // which is sent by itself
const refused = (route, error, ...act) => ({ answers: { [route]: error }, act });
const recover = [['choose', 'recover.offer']];
const session = step('authorized', { profile_mnemocode: 'alice-0001', user: loginId });
const bob = step('authorized', { profile_mnemocode: 'bob-0002', user: 'bob' });
const authorized = { at: '?cookie', session, cookie: true };
const days = (n) => new Date(Date.now() - n * 86_400_000).toISOString();
const answers = {
  'me/factors': { user: loginId, password_set: true, totp: true, backup_codes_left: 7, user_phone: '+37*******34', phone: { value: '+37*******34', verified_at: days(90), removable: false }, email: { value: loginId, removable: false }, provable: ['phone', 'email'], provider_ids: [], second_factor: true, second_factor_policy: 'per_account', fresh_for: 600, mfa_missing: false, password_regex: null, password_regex_description: '8 to 128 characters.' },
  'me/phone': { contact_token: 'x', expires_in: 300, user_phone: '+37*******99' },
  'me/email': { contact_token: 'x', expires_in: 300, user_email: 'alice.new@example.com' },
  'me/sessions': {
    sessions: [
      { session_id: 'a', current: true, created_at: days(2), last_used: days(0), address: '203.0.113.7', user_agent: 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0' },
      { session_id: 'b', current: false, created_at: days(9), last_used: days(3), address: '2001:db8::7', user_agent: 'Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) Version/18.0 Mobile/15E148 Safari/604.1' },
    ],
  },
  'me/totp': { secret: 'JBSWY3DPEHPK3PXPJBSWY3DPEHPK3PXP', uri: 'otpauth://totp/x', qr: '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 29 29"><path fill="#fff" d="M0 0h29v29H0z"/><path d="M4 4h7v7H4zM18 4h7v7h-7zM4 18h7v7H4z"/></svg>' },
  'me/backup-codes': { backup_codes: ['AAAAA-BBBBB', 'CCCCC-DDDDD', 'EEEEE-FFFFF', 'GGGGG-HHHHH', 'JJJJJ-KKKKK'] },
};
const changeEmail = [['choose', 'security.contact.confirm'], ...enter('newemail', 'alice.new@example.com')];
const security = { ...authorized, page: 'security', answers };
const withPasskeys = {
  ...security, config: { passkeys: true },
  answers: { ...answers, 'me/passkeys': { passkeys: [
    { id: 'AQ', name: 'iPhone', backed_up: true, created_at: days(30), last_used: days(1) },
    { id: 'Ag', name: 'Firefox · Linux', backed_up: false, created_at: days(2), last_used: null },
  ] } },
};
const withDevices = {
  ...security, config: { devices: true },
  answers: { ...answers, 'me/devices': { devices: [
    { device_id: 'a', current: true, skip_second_factor: true, created_at: days(40), expires_at: days(-50), address: '203.0.113.7', user_agent: 'Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0' },
    { device_id: 'b', current: false, skip_second_factor: false, created_at: days(2), expires_at: days(-88), address: '2001:db8::7', user_agent: '' },
  ] } },
};
const factors = (more) => ({ ...security, answers: { ...answers, 'me/factors': { ...answers['me/factors'], ...more } } });
const lastPasskey = (more) => ({ ...withPasskeys, answers: { ...factors(more).answers, 'me/passkeys': { passkeys: withPasskeys.answers['me/passkeys'].passkeys.slice(0, 1) } } });
const withTokens = {
  ...security, config: { issued_tokens: { lifetime: 7_776_000 } },
  answers: { ...factors({ totp: false }).answers, 'me/tokens': { tokens: [
    { id: 'a', name: 'Nightly report', paths: ['/reports/*', '/a/very/long/path/that/does/not/fit/into/any/narrow/window/at/all/*'], methods: ['GET'], created_at: days(40), expires_at: days(-50), last_used: days(1), acting: false },
    { id: 'b', name: '', paths: ['/*'], methods: ['GET', 'POST'], created_at: days(0), expires_at: days(-0.04), last_used: null, acting: true },
  ] } },
};
const newToken = (answer, ...act) => ({ ...withTokens, answers: { ...withTokens.answers, 'me/tokens': [withTokens.answers['me/tokens'], answer, withTokens.answers['me/tokens']] }, act: [['choose', 'security.tokens.create'], ...act] });
const offer = { ...password, config: { passkeys: true, self_service: true }, answers: { 'auth/checkpassword': step('authorized', { session_token: 'preview' }) } };
const raised = (more, session = authorized) => ({ ...session, at: '?mfa=1&cookie', config: { step_up: true, self_service: true }, answers: {
  stepup: { stepup_token: 'preview', expires_in: 600, factors: ['passkey', 'otp', 'sms', 'backup'], ...more }, 'stepup/check': [fails(401, 'auth.otp.invalid'), session.session],
} });
const raisedBySMS = { factor: 'sms', user_phone: '+37*******34', factors: ['sms', 'backup'] };
const oauth = { at: '?state=s&code=c' };

export const scenes = {
  'login': {},
  'login-empty': { act: [['submit']] },
  'login-unknown': refused('auth/login', fails(404, 'auth.loginid.notfound'), ...enter('login', loginId)),
  'login-restricted': refused('auth/login', fails(403, 'auth.user.restricted'), ...enter('login', loginId)),
  'login-closed': refused('auth/login', fails(403, 'auth.user.closed'), ...enter('login', loginId)),
  'login-denied': refused('auth/login', fails(403, 'auth.user.denied'), ...enter('login', loginId)),
  'login-locked': refused('auth/login', locked('lock.password'), ...enter('login', loginId)),
  'login-locked-hardened': { config: { hardened: true }, ...refused('auth/login', locked('lock.password'), ...enter('login', loginId)) },
  'login-disabled': refused('auth/login', locked('lock.disabled'), ...enter('login', loginId)),
  'login-disabled-for-good': { config: { recovery: [] }, ...refused('auth/login', locked('lock.disabled'), ...enter('login', loginId)) },
  'login-address': refused('auth/login', locked('limit.address', 300), ...enter('login', loginId)),
  'login-unavailable': refused('auth/login', fails(503, 'service.unavailable'), ...enter('login', loginId)),
  'login-offline': refused('auth/login', 'network', ...enter('login', loginId)),
  'login-fresh': { ...authorized, at: '?fresh=60&cookie' },
  'login-fresh-phone': { ...authorized, session: step('authorized', { profile_mnemocode: 'bob-0002', user: '+37*******34' }), at: '?fresh=60&cookie' },
  'stepup-passkey': raised({ factor: 'passkey', challenge_token: 'preview', public_key: {} }),
  'stepup-app': raised({ factor: 'otp' }),
  'stepup-app-wrong': { ...raised({ factor: 'otp' }), act: [enterCode] },
  'stepup-code': raised(raisedBySMS),
  'stepup-code-wrong': { ...raised(raisedBySMS), act: [enterCode] },
  'stepup-code-unavailable': { ...authorized, at: '?fresh=60&cookie', config: { step_up: true }, answers: { stepup: locked('limit.sms', 3000) } },
  'stepup-limit': { ...authorized, at: '?mfa=1&cookie', config: { step_up: true }, answers: { stepup: locked('limit.sms', 3000) } },
  'stepup-backup': raised({ factor: 'backup' }),
  'stepup-password': { ...raised({ factor: 'pwd', factors: ['pwd', 'otp'] }), at: '?fresh=60&cookie' },
  'stepup-password-wrong': { ...refused('stepup/check', fails(401, 'auth.password.invalid'), ...enter('password', 'x')), ...authorized, at: '?fresh=60&cookie', config: { step_up: true }, answers: { stepup: { stepup_token: 'preview', expires_in: 600, factors: ['pwd'], factor: 'pwd' }, 'stepup/check': fails(401, 'auth.password.invalid') } },
  'stepup-password-locked': { ...raised({ factor: 'pwd', factors: ['pwd'] }), at: '?fresh=60&cookie', answers: { ...raised({ factor: 'pwd', factors: ['pwd'] }).answers, 'stepup/check': locked('lock.password') }, act: enter('password', 'right') },
  'stepup-none': { ...authorized, at: '?mfa=1&cookie', config: { step_up: true, self_service: true }, answers: { stepup: fails(403, 'auth.user.restricted', { reason: 'user.no_second_factor' }) } },
  'stepup-none-support': { ...authorized, at: '?mfa=1&cookie', config: { step_up: true }, answers: { stepup: fails(403, 'auth.user.restricted', { reason: 'user.no_second_factor' }) } },
  'login-changed': {
    ...authorized, session: [session, bob], at: '?fresh=60&cookie', answers: { 'auth/checkpassword': step('authorized', { session_token: 'preview' }), session: bob },
    act: [...enter('login', 'bob'), ...enter('password', 'right')],
  },
  'login-unconfirmed': { ...password, answers: { 'auth/checkpassword': step('authorized', { session_token: 'preview' }), session: 'network' }, act: enter('password', 'right') },
  'login-unconfirmed-over': {
    ...password, answers: { 'auth/checkpassword': step('authorized', { session_token: 'preview' }), session: ['network', 'network', fails(401, 'auth.token.invalid')] }, session: [password.session, fails(401, 'auth.token.invalid')],
    act: [...enter('password', 'right'), ['submit']],
  },
  'login-blank': { act: enter('login', ' ') },
  'login-passkeys': { config: { passkeys: true } },
  'login-passkey-unknown': { config: { passkeys: true }, ...refused('passkey/login', fails(401, 'auth.credentials.invalid'), ['passkey', 'given']) },
  'login-passkey-cancelled': { config: { passkeys: true }, act: [['passkey', 'cancelled']] },
  'login-plain': { config: { oauth: [], recovery: [] } },
  'login-choices': { config: { remember: true } },
  'login-devices': { config: { devices: true, passkeys: true } },
  'provider-failed': { ...oauth, ...refused('auth/oauth', fails(401, 'auth.oauth.failed')) },
  'provider-unknown': { ...oauth, ...refused('auth/oauth', fails(404, 'auth.oauth.notfound')) },
  'provider-denied': { at: '?state=s&error=access_denied' },
  'provider-stateless': { at: '?error=server_error' },
  'provider-unavailable': { config: { oauth: [{ provider_id: 1, name: 'Example', authorize_url: null, client_id: 'preview', scope: 'openid' }] }, act: [['provider']] },
  'password': password,
  'password-empty': { ...password, act: [['submit']] },
  'password-wrong': { ...password, ...refused('auth/checkpassword', fails(401, 'auth.password.invalid'), ...enter('password', 'wrong')) },
  'password-locked': { ...password, ...refused('auth/checkpassword', locked('lock.password'), ...enter('password', 'wrong')) },
  'password-expired': { ...password, ...refused('auth/checkpassword', fails(401, 'auth.token.expired'), ...enter('password', 'right')) },
  'password-passkeys': { ...password, config: { passkeys: true } },
  'password-choices': { ...password, config: { devices: true } },
  'password-lost': { ...password, ...refused('auth/checkpassword', ['network', 'network', fails(401, 'auth.token.invalid')], ...enter('password', 'right'), ['submit']) },
  'password-captcha': { ...password, session: step('checkpassword', { captcha_required: true }) },
  'password-disclaimers': { ...password, session: step('checkpassword', { disclaimers_required }), act: enter('password', 'right') },
  'code': code,
  'code-disclaimers': { ...code, session: { ...code.session, disclaimers_required } },
  'code-choices': { ...code, config: { devices: true, skip_second_factor: true } },
  'code-expired': { ...code, config: { otp: { length: 6, ttl: 0 } } },
  'code-wrong': { ...code, ...refused('auth/checkotp', fails(401, 'auth.otp.invalid'), enterCode) },
  'code-resent': { ...code, act: [['choose', 'code.resend']] },
  'code-limit': { ...code, ...refused('auth/renewotp', locked('limit.sms_account', 600), ['choose', 'code.resend']) },
  'code-wrong-limit': { ...code, answers: { 'auth/checkotp': fails(401, 'auth.otp.invalid'), 'auth/renewotp': locked('limit.renewals', 600) }, act: [enterCode] },
  'code-spent': { ...code, answers: { 'auth/checkotp': fails(401, 'auth.otp.invalid'), 'auth/renewotp': 'network' }, act: [enterCode] },
  'code-lost-phone': { ...code, act: [['open']] },
  'code-locked': { ...code, ...refused('auth/checkotp', locked('lock.codes', 80000), enterCode) },
  'code-app': app,
  'code-app-wrong': { ...app, ...refused('auth/checkotp', fails(401, 'auth.otp.invalid'), enterCode) },
  'backup': { ...code, act: [['choose', 'backup.offer']] },
  'backup-wrong': { ...code, ...refused('auth/checkotp', fails(401, 'auth.backupcode.invalid'), ['choose', 'backup.offer'], ...enter('backup', 'AAAAABBBBB')) },
  'backup-without-sms': { loginId, session: step('checkotp', { second_factors: ['sms', 'backup'] }) },
  'newpassword': newPassword,
  'newpassword-typed': { ...newPassword, act: [['enter', 'newpassword', 'correct horse battery']] },
  'newpassword-weak': { ...newPassword, ...refused('auth/setpassword', fails(422, 'request.validation.failed', { reason: 'password.common' }), ...enter('newpassword', 'password1')) },
  'newpassword-rules': {
    ...newPassword, ...refused('auth/setpassword', fails(422, 'request.validation.failed', { reason: 'password.too_short' }), ...enter('newpassword', 'nine char')),
    session: [newPassword.session, { ...newPassword.session, password_regex_description: '12 to 128 characters.' }],
  },
  'newpassword-same': { ...newPassword, ...refused('auth/setpassword', fails(422, 'auth.password.invalid'), ...enter('newpassword', 'correct horse battery')) },
  'newpassword-pattern': { loginId, session: step('setpassword', { password_regex: '[0-9]', password_regex_description: '8 to 128 characters. At least one digit.' }) },
  'newpassword-unsure': { ...newPassword, ...refused('auth/setpassword', 'network', ...enter('newpassword', 'correct horse battery')) },
  'newpassword-lost': { ...newPassword, ...refused('auth/setpassword', ['network', 'network', fails(401, 'auth.token.invalid')], ...enter('newpassword', 'correct horse battery'), ['submit']) },
  'newpassword-done': { loginId, session: step('recovery-setpassword', { password_regex: null, password_regex_description: null }), answers: { 'auth/setpassword': { status: 'success' } }, act: enter('newpassword', 'correct horse battery') },
  'disclaimers': { session: step('acceptdisclaimers', { disclaimers_required }) },
  'disclaimers-missing': { session: step('acceptdisclaimers', { disclaimers_required }), act: [['submit']] },
  'recover': { act: recover },
  'recover-notset': refused('auth/recovery/recover', fails(409, 'recovery.phone.notset'), ...recover, ...enter('login', loginId)),
  'recover-captcha': refused('auth/recovery/recover', fails(403, 'auth.captcha.invalid'), ...recover, ...enter('login', loginId)),
  'recover-captcha-gone': refused('captcha', fails(404, 'request.validation.failed'), ...recover, ...enter('login', loginId)),
  'recover-mailed': { answers: { 'auth/recovery/recover': { status: 'success', verification: 'MAIL', user_email: loginId } }, act: [...recover, ...enter('login', loginId)] },
  'recover-mails': refused('auth/recovery/recover', locked('limit.mails', 3000), ...recover, ...enter('login', loginId)),
  'recover-code': recoveryCode,
  'recover-code-wrong': { ...recoveryCode, ...refused('auth/recovery/checkotp', fails(401, 'auth.otp.invalid'), enterCode) },
  'recover-question': question,
  'recover-question-wrong': { ...question, ...refused('auth/recovery/checkquestion', fails(401, 'auth.controlanswer.invalid'), ...enter('answer', 'Tom')) },
  'recover-question-locked': { ...question, ...refused('auth/recovery/checkquestion', locked('lock.answers', 80000), ...enter('answer', 'Tom')) },
  'link': { at: '#mgl_preview' },
  'link-dead': { at: '#recover=mgl_preview', ...refused('auth/recovery/checklink', fails(401, 'auth.token.invalid'), ['submit']) },
  'link-lost': { at: '#recover=mgl_preview', ...refused('auth/recovery/checklink', ['network', 'network', fails(401, 'auth.token.invalid')], ['submit'], ['submit']) },
  'link-password': { at: '#mgl_preview', answers: { 'auth/recovery/checklink': step('recovery-setpassword', { session_token: 'preview', login_id: loginId, password_regex: null, password_regex_description: null }) }, act: [['submit']] },
  'welcome': { at: '#recover=mgw_preview' },
  'welcome-password': { at: '#recover=mgw_preview', answers: { 'auth/recovery/checklink': step('recovery-setpassword', { session_token: 'preview', login_id: loginId, password_regex: null, password_regex_description: null }) }, act: [['submit']] },
  'offer': { ...offer, act: enter('password', 'right') },
  'offer-cancelled': { ...offer, act: [...enter('password', 'right'), ['submit']] },
  'offer-refused': { ...offer, answers: { ...offer.answers, 'me/passkeys/options': fails(401, 'auth.credentials.invalid') }, act: [...enter('password', 'right'), ['submit']] },
  'already': authorized,
  'logout': { ...authorized, page: 'logout' },
  'logout-unavailable': { ...authorized, page: 'logout', session: fails(503, 'service.unavailable') },
  'loggedout': { page: 'logout' },
  'security': security,
  'security-first': factors({ totp: false, backup_codes_left: 0, second_factor: false }),
  'security-sms': factors({ totp: false }),
  'security-idle': factors({ second_factor: false }),
  'security-required': factors({ totp: false, user_phone: undefined, second_factor_policy: 'required' }),
  'security-twostep-off': { ...security, act: [['choose', 'security.twostep.turnoff']] },
  'security-twostep-on': { ...factors({ totp: false, second_factor: false }), act: [['choose', 'security.twostep.turnon']] },
  'security-password': { ...security, at: '?cookie#password', answers: { ...answers, 'me/factors': { ...answers['me/factors'], fresh_for: 20 } } },
  'security-password-wrong': {
    ...security, answers: { ...answers, 'me/password': fails(401, 'auth.password.invalid') },
    act: [['choose', 'security.password.change'], ['enter', 'current', 'wrong'], ...enter('newpassword', 'correct horse battery')],
  },
  'security-password-disabled': {
    ...security, answers: { ...answers, 'me/password': locked('lock.disabled') },
    act: [['choose', 'security.password.change'], ['enter', 'current', 'right'], ...enter('newpassword', 'correct horse battery')],
  },
  'security-password-none': factors({ password_set: false, totp: false, second_factor: false, backup_codes_left: 0 }),
  'security-password-unsure': {
    ...security, answers: { ...answers, 'me/password': fails(503, 'service.unavailable', { retry: 5 }) },
    act: [['choose', 'security.password.change'], ['enter', 'current', 'right'], ...enter('newpassword', 'correct horse battery')],
  },
  'security-contacts-none': factors({ phone: undefined, email: undefined }),
  'security-email': { ...security, act: [['choose', 'security.contact.confirm']] },
  'security-email-invalid': { ...security, answers: { ...answers, 'me/email': fails(400, 'request.validation.failed') }, act: [['choose', 'security.contact.confirm'], ...enter('newemail', 'alice')] },
  'security-email-code': { ...security, act: changeEmail },
  'security-email-code-wrong': { ...security, answers: { ...answers, 'me/email/confirm': fails(401, 'auth.otp.invalid') }, act: [...changeEmail, ['enter', 'code', '12345678']] },
  'security-email-taken': { ...security, answers: { ...answers, 'me/email/confirm': fails(409, 'request.validation.failed') }, act: [...changeEmail, ['enter', 'code', '12345678']] },
  'security-phone-code-wrong': { ...security, answers: { ...answers, 'me/phone/confirm': fails(401, 'auth.otp.invalid') }, act: [['choose', 'security.phone.change'], ...enter('newphone', '+37060012399'), enterCode] },
  'security-phone-alike': { ...security, answers: { ...answers, 'me/phone': { ...answers['me/phone'], user_phone: '+37*******34' } }, act: [['choose', 'security.phone.change'], ...enter('newphone', '+37061112234'), enterCode] },
  'security-phone-country': { ...security, answers: { ...answers, 'me/phone': locked('limit.sms_country', 86400) }, act: [['choose', 'security.phone.change'], ...enter('newphone', '+4915112345678')] },
  'security-phone-limit': { ...security, answers: { ...answers, 'me/phone': locked('limit.sms_phone', 600) }, act: [['choose', 'security.phone.change'], ...enter('newphone', '+37060012399')] },
  'security-phone-remove': { ...factors({ phone: { ...answers['me/factors'].phone, removable: true } }), act: [['choose', 'security.remove']] },
  'security-session-over': { ...security, answers: { ...answers, 'me/sessions/b': fails(404, 'request.validation.failed') }, act: [['choose', 'security.sessions.end']] },
  'security-session-unavailable': { ...security, answers: { ...answers, 'me/sessions/b': fails(503, 'service.unavailable', { retry: 5 }) }, act: [['choose', 'security.sessions.end']] },
  'security-passkeys': withPasskeys,
  'security-passkey': { ...withPasskeys, act: [['choose', 'security.passkeys.add']] },
  'security-passkey-refused': { ...withPasskeys, answers: { ...withPasskeys.answers, 'me/passkeys/options': fails(401, 'auth.credentials.invalid') }, act: [['choose', 'security.passkeys.add'], ['submit']] },
  'security-passkeys-full': { ...withPasskeys, answers: { ...withPasskeys.answers, 'me/passkeys/options': fails(409, 'request.validation.failed') }, act: [['choose', 'security.passkeys.add'], ['submit']] },
  'security-passkey-last': lastPasskey({ totp: false, user_phone: undefined, second_factor_policy: 'required' }),
  'security-passkey-provider': lastPasskey({ password_set: false, totp: false, user_phone: undefined, provider_ids: [1] }),
  'security-passkey-rename': { ...withPasskeys, act: [['choose', 'security.passkeys.rename']] },
  'security-passkey-remove': { ...withPasskeys, act: [['choose', 'security.remove']] },
  'security-devices': withDevices,
  'security-devices-none': { ...withDevices, config: { devices: true, skip_second_factor: true }, answers: { ...answers, 'me/devices': { devices: [] } } },
  'security-device-forget': { ...withDevices, act: [['choose', 'security.devices.forget']] },
  'security-tokens': withTokens,
  'security-token': newToken({}),
  'security-token-invalid': newToken(fails(400, 'request.validation.failed'), ['enter', 'name', 'Backup'], ...enter('paths', 'reports')),
  'security-token-full': newToken(fails(409, 'request.validation.failed'), ...enter('name', 'Backup')),
  'security-token-issued': newToken({ token: 'mgp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE' }, ...enter('name', 'Backup')),
  'security-token-remove': { ...withTokens, act: [['choose', 'security.remove']] },
  'security-app': { ...security, act: [['choose', 'security.app.replace']] },
  'security-app-codes': { ...security, answers: { ...answers, 'me/totp/confirm': answers['me/backup-codes'] }, act: [['choose', 'security.app.replace'], enterCode] },
  'security-app-extra': { ...factors({ totp: false, second_factor: false, second_factor_policy: 'off' }), at: '?mfa=1&cookie' },
  'security-app-remove': { ...security, act: [['choose', 'security.remove']] },
  'security-codes-first': { ...factors({ backup_codes_left: 0 }), act: [['choose', 'security.codes.create']] },
  'security-codes': { ...security, act: [['choose', 'security.codes.create'], ['submit']] },
};

// addressOf returns the address of a scene.
export function addressOf(name, scheme, language) {
  const { page = 'login', at = '' } = scenes[name];
  const [query, hash] = at.split('#');
  return `/${scheme}/${name}/${page}${query}${query ? '&' : '?'}lang=${language}${hash ? `#${hash}` : ''}`;
}
