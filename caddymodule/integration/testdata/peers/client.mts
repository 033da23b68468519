// A client for the tests, with the types that openapi-typescript makes of the
// OpenAPI document as ./schema.ts. Its only argument is JSON: where the
// document was served, the company, its API key, and a user's login id and
// password. It logs the user in and out by the address that the document gives,
// and says who that was on standard output.
import createClient from 'openapi-fetch';
import type { AuthenticationResponseJSON, PublicKeyCredentialCreationOptionsJSON, PublicKeyCredentialRequestOptionsJSON, RegistrationResponseJSON } from '@simplewebauthn/browser';
import type { components, paths } from './schema.js';

const { document, company, key, loginID, password } = JSON.parse(process.argv[2]!);

const { servers } = (await (await fetch(document, { headers: { 'X-Api-Key': key } })).json()) as { servers: [{ url: string }] };
const api = createClient<paths>({ baseUrl: new URL(servers[0].url, document).href, headers: { 'X-Api-Key': key } });
const params = { path: { company_code: company } };
const bearer = (token: string) => ({ Authorization: `Bearer ${token}` });

// @ts-expect-error: the login id has another name
const malformed = await api.POST('/{company_code}/v2/auth/login', { params, body: { loginId: loginID } });
expect(malformed.error?.error_code, 'request.validation.failed');

const login = await api.POST('/{company_code}/v2/auth/login', { params, body: { login_id: loginID } });
if (login.data?.session_state !== 'checkpassword') throw new Error(JSON.stringify(login.error ?? login.data));
const asked = { params, headers: bearer(login.data.session_token) };
const accept_disclaimers = login.data.disclaimers_required.map(({ code }) => code);

const wrong = await api.POST('/{company_code}/v2/auth/checkpassword', { ...asked, body: { password: 'not that one' } });
expect(wrong.error?.error_code, 'auth.password.invalid');
// @ts-expect-error: there is no such code
expect(wrong.error?.error_code === 'auth.password.wrong', false);

const refused = await api.POST('/{company_code}/v2/auth/checkpassword', { ...asked, body: { password } });
if (refused.error?.error_code !== 'auth.disclaimer.invalid') throw new Error(JSON.stringify(refused));
expect(refused.error.disclaimers_required?.length, accept_disclaimers.length);

const checked = await api.POST('/{company_code}/v2/auth/checkpassword', { ...asked, body: { password, accept_disclaimers } });
// @ts-expect-error: it may not be authorized yet
void checked.data?.profile_mnemocode;
if (checked.data?.session_state !== 'authorized') throw new Error(JSON.stringify(checked.error ?? checked.data));
const authorized = { params, headers: bearer(checked.data.session_token) };

const again = await api.POST('/{company_code}/v2/auth/checkpassword', { ...authorized, body: { password } });
expect(again.error?.error_code, 'auth.session.invalid');
expect((await api.POST('/{company_code}/v2/auth/logout', authorized)).data?.status, 'success');
expect((await api.POST('/{company_code}/v2/auth/logout', authorized)).error?.error_code, 'auth.token.invalid');
console.log(JSON.stringify({ profile_mnemocode: checked.data.profile_mnemocode }));

// What a library for WebAuthn takes and returns fits the document without a cast.
type Schemas = components['schemas'];
type Fits<To, From extends To> = [To, From];
export type Passkeys = [
  Fits<PublicKeyCredentialRequestOptionsJSON, Schemas['PasskeyLoginOptions']['public_key']>,
  Fits<PublicKeyCredentialCreationOptionsJSON, Schemas['OwnPasskeyOptions']['public_key']>,
  Fits<Schemas['PasskeyLoginRequest']['credential'], AuthenticationResponseJSON>,
  Fits<Schemas['StepupCheckRequest']['credential'], AuthenticationResponseJSON>,
  Fits<Schemas['MePasskeyAddRequest']['credential'], RegistrationResponseJSON>,
];

function expect<T>(got: T, want: NonNullable<T>) {
  if (got !== want) throw new Error(`got ${got}, want ${want}`);
}
