package gate

import (
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// The words of the OpenAPI document, and what each answer holds. What a route
// takes and may answer is not said here: openAPI reads it from the routes.

const apiDescription = "Logs users in and recovers their access.\n\n" +
	"The answer to each step brings a `session_token` and a `session_state`. The state says which route comes next, " +
	"and the token is sent to it as `Authorization: Bearer <session_token>`. A token is good for one step: the answer " +
	"brings its successor. The token of an `authorized` session opens the application behind this API.\n\n" +
	"A request has a body of one JSON object in UTF-8, of at most 16 KiB unless the server is set up otherwise. " +
	"Fields that are not listed are ignored, and `null` is the same as no field.\n\n" +
	"Programs go by the `error_code` of an error and, where one has several causes, its `reason`; the `message` is for their developers. Below `/{company_code}/v2/auth/`, " +
	"what is no route is answered with 404, and another method than POST with 405, both with `request.validation.failed`. " +
	"Answers may get further fields."

var securitySchemes = object{
	{"apiKey", object{
		{"type", "apiKey"},
		{"in", "header"},
		{"name", apiKeyHeader},
		{"description", "A key of the company, in one header. A company can be set up to need none."},
	}},
	{"session", object{
		{"type", "http"},
		{"scheme", "bearer"},
		{"description", "The session_token of the answer before."},
	}},
	{"cookie", object{
		{"type", "apiKey"},
		{"in", "cookie"},
		{"name", defaultCookie},
		{"description", "Where the server is set up for cookies, perhaps by another name: what POST session has set, for a request without Authorization."},
	}},
}

var companyParameter = object{
	{"name", "company_code"},
	{"in", "path"},
	{"required", true},
	{"description", "The company whose users log in. It must be written exactly so."},
	{"schema", object{{"type", "string"}, {"pattern", `^[A-Za-z0-9_-]{1,64}$`}}},
	{"example", "acme"},
}

var disclaimerSchema = object{
	{"type", "object"},
	{"description", "A legal text that users must accept."},
	{"required", []string{"code", "title", "description", "link"}},
	{"properties", object{
		{"code", object{{"type", "string"}, {"description", "What accept_disclaimers names it by."}}},
		{"title", object{{"type", "string"}, {"description", "In a language of Accept-Language or else of the account, if the company has it in one; so are description and link."}}},
		{"description", object{{"type", "string"}, {"description", "What it is about, in short."}}},
		{"link", object{{"type", "string"}, {"description", "The URL of the whole text."}}},
	}},
}

const challengeDescription = "Only where the company has `captcha pow`; elsewhere it is 404, as a route that there is not. " +
	"The captcha_response is `<challenge>.<n>` with a decimal number n such that the SHA-256 of the whole, as ASCII, begins with that many zero bits: " +
	"try 0, 1, 2 and so on. A challenge is good for one response, of this company."

var challengeSchema = object{
	{"type", "object"},
	{"description", "What a captcha_response is made of."},
	{"required", []string{"status", "challenge", "bits", "expires_in"}},
	{"properties", object{
		{"status", object{{"type", "string"}, {"enum", []any{"success"}}}},
		{"challenge", words("What the captcha_response begins with. It has no meaning for clients.", challengeExample[1][1].(string))},
		{"bits", object{{"type", "integer"}, {"description", "With how many zero bits the hash must begin."}, {"minimum", 8}, {"maximum", 30}, {"examples", []any{18}}}},
		{"expires_in", object{{"type", "integer"}, {"description", "For how many seconds the challenge is good."}, {"examples", []any{300}}}},
	}},
}

var challengeExample = object{
	{"status", "success"}, {"challenge", "nVq0Zl3cT2sWAAZFkQv6gB3m9t5c1XyHc8bqL4uJwE2i"}, {"bits", 18}, {"expires_in", 300},
}

const (
	currentDescription = "Takes a token in any state, or the cookie. It spends nothing and makes nothing last longer. " +
		"Beside the state comes what the answer held that led there, as it is now: disclaimers_required has those that are still pending."
	cookieDescription = "Only where the server is set up for cookies; elsewhere it is 405. It ends the authorized token in Authorization, " +
		"and the same session goes on in a cookie that no script can read."
	cookieEndDescription = "Only where the server is set up for cookies; elsewhere it is 405. Must come from a page of this origin, " +
		"else it is auth.header.invalid with the reason cross_site. The cookie is cleared."
)

var sessionExample = object{
	{"status", "success"}, {"session_state", record.Authorized}, {"expires_in", 3600}, {"profile_mnemocode", "alice-0001"},
}

// fieldSchemas are the fields of requests and of answers. How long a request's
// may be is added where it is used.
var fieldSchemas = map[string]object{
	"login_id":           words("The account's primary phone, primary email or login name, in any case.", "alice@example.com"),
	"password":           words("The password.", "correct horse battery"),
	"captcha_response":   words("What the captcha gave for having solved it, or the work that GET captcha asks for; good once.", "03AFcWeA5"),
	"accept_disclaimers": {{"type", "array"}, {"description", "The codes of the disclaimers that the user accepts."}, {"examples", []any{[]any{"terms"}}}},
	"otp":                words("The one-time code from the SMS.", "123456"),
	"backup_code":        words("A backup code in place of the one-time code, with or without the dash.", "JBSWY-3DPEH"),
	"new_password":       words("The new password.", "a much better secret"),
	"provider_id": {
		{"type", "integer"}, {"description", "Which of the company's OAuth providers."},
		{"minimum", 1}, {"maximum", 5}, {"examples", []any{1}},
	},
	"code":         words("The authorization code, as it came from the provider. It is good once.", "4/0AVMBsJ"),
	"redirect_uri": words("The redirect URI that the provider was given; one of those configured.", "https://app.example.com/callback"),
	"code_verifier": append(words("The verifier of the code_challenge that the provider was given (PKCE).", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"),
		member{"pattern", "^[A-Za-z0-9._~-]{43,128}$"}),
	"nonce":          words("The nonce that the provider was given.", "n-0S6_WzA2Mj"),
	"method":         {{"type", "string"}, {"description", "How to recover."}, {"enum", methods}, {"examples", []any{tenant.ByPhone}}},
	"token":          words("The token in the mailed link.", "mgl_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE"),
	"control_answer": words("The answer to the control question, in any case.", "Rex"),

	"session_token":        words("The token for the next step. It has no meaning for clients.", "mgs_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_AbCdE"),
	"session_state":        {{"type", "string"}, {"description", "Which step comes next."}},
	"expires_in":           {{"type", "integer"}, {"description", "After how many seconds the token ends, unless it is used."}, {"minimum", 0}, {"examples", []any{600}}},
	"profile_mnemocode":    words("Names the user's profile to the application.", "alice-0001"),
	"disclaimers_required": {{"type", "array"}, {"description", "The disclaimers that the user must accept."}, {"items", ref("schemas", "Disclaimer")}, {"examples", []any{[]any{disclaimerExample}}}},
	"captcha_required":     {{"type", "boolean"}, {"description", "The next attempt needs a captcha_response."}, {"enum", []any{true}}, {"examples", []any{true}}},
	"user_phone":           words("The phone that the code was sent to, masked.", "+37*******34"),
	"user_email":           words("The address that the link was mailed to.", "alice@example.com"),
	"control_question":     words("The question that the user chose.", "What was your first pet called?"),
	"verification":         {{"type", "string"}, {"description", "How the access is recovered."}},
	"password_regex": {
		{"type", []any{"string", "null"}},
		{"description", "What a new password must match, in RE2 syntax; null for no such rule."}, {"examples", []any{"[0-9]"}},
	},
	"password_regex_description": {
		{"type", []any{"string", "null"}},
		{"description", "All that a new password must be, for people: also what no regular expression says."},
		{"examples", []any{"8 to 128 characters. At least one digit."}},
	},
}

var methods = []any{tenant.ByPhone, tenant.ByMail, tenant.ByQuestion}

var disclaimerExample = object{
	{"code", "terms"}, {"title", "Terms of use"}, {"description", "How you may use the service."}, {"link", "https://example.com/terms"},
}

func words(description, example string) object {
	return object{{"type", "string"}, {"description", description}, {"examples", []any{example}}}
}

// A routeText says in words what a route does.
type routeText struct {
	summary, description string
	example              []string // the fields of the example of its request
}

var routeTexts = map[string]routeText{
	"auth/login": {
		"Begin with a login id",
		"Says how the account's owner proves who they are: by the password or, where the account has none, by the code that was just sent to its phone.",
		[]string{"login_id"},
	},
	"auth/checkpassword": {
		"Check the password",
		"accept_disclaimers must hold the codes of all disclaimers that are pending. Once captcha_required was true, captcha_response is needed.",
		[]string{"password", "accept_disclaimers"},
	},
	"auth/checkotp": {
		"Check a one-time code or a backup code",
		"Takes exactly one of otp and backup_code. A one-time code is spent by the first attempt, right or wrong, also when the disclaimers were what failed: auth/renewotp sends the next. Where the step before brought no user_phone, otp may be the code of the account's authenticator app: each is good once, and a wrong one spends nothing.",
		[]string{"otp", "accept_disclaimers"},
	},
	"auth/renewotp": {
		"Send another one-time code",
		"It ends the one before, and from then on an authenticator app's codes are no longer taken with this token. The token stays, and lives no longer for it. Where the account has no phone: request.validation.failed.",
		nil,
	},
	"auth/setpassword": {
		"Set a new password",
		"Ends all other sessions of the account. accept_disclaimers must hold the codes of disclaimers that became pending meanwhile. After a recovery no token is issued: the user logs in with the new password.",
		[]string{"new_password"},
	},
	"auth/checkcredentials": {
		"Check login id and password in one call",
		"An unknown login id is answered as a wrong password is. accept_disclaimers must hold the codes of all disclaimers that are pending. Once captcha_required was true, captcha_response is needed.",
		[]string{"login_id", "password"},
	},
	"auth/oauth": {
		"Log in with the code of an OAuth provider",
		"No second factor is asked for. Some providers are set up to need code_verifier.",
		[]string{"provider_id", "code", "redirect_uri"},
	},
	"auth/acceptdisclaimers": {
		"Accept disclaimers after OAuth",
		"accept_disclaimers must hold the codes of all disclaimers that are pending.",
		[]string{"accept_disclaimers"},
	},
	"auth/logout": {
		"End the session",
		"The token is worth nothing from then on.",
		nil,
	},
	"auth/recovery/recover": {
		"Begin a recovery",
		"Without a method, it is the first that the company allows and the account can use. By PHONE a code is sent; by QUESTION the control question is asked; by MAIL a link is sent, whose token auth/recovery/checklink takes. A captcha_response is always needed; where the company has no captcha, any text will do.",
		[]string{"login_id", "captcha_response"},
	},
	"auth/recovery/checkotp": {
		"Check the one-time code of a recovery",
		"The code is spent by the first attempt, right or wrong: auth/recovery/renewotp sends the next.",
		[]string{"otp"},
	},
	"auth/recovery/renewotp": {
		"Send another one-time code of a recovery",
		"It ends the one before. The token stays, and lives no longer for it.",
		nil,
	},
	"auth/recovery/checkquestion": {
		"Check the answer to the control question",
		"The answer may differ in case and spaces.",
		[]string{"control_answer"},
	},
	"auth/recovery/checklink": {
		"Take the token of a mailed link",
		"The token is good once, and only the newest one's.",
		[]string{"token"},
	},
}

// An answerText is a successful answer: its schema's name and what it has
// beside status and, with a state, session_token and session_state.
type answerText struct {
	name, description string
	fields            []answerField
}

type answerField struct {
	name     string
	optional bool
	value    tenant.Method // the only one, if not empty
}

var passwordQuality = []answerField{{name: "password_regex"}, {name: "password_regex_description"}}

// stateAnswers are the answers that lead to a state by whatever route.
var stateAnswers = map[record.State]answerText{
	record.None: {"Done", "It is done, and there is nothing more to say.", nil},
	record.CheckPassword: {
		"CheckPassword", "The password comes next: auth/checkpassword.",
		[]answerField{{name: "disclaimers_required"}, {name: "captcha_required", optional: true}},
	},
	record.CheckOTP: {
		"CheckOTP", "A code was sent to user_phone, and it or a backup code comes next: auth/checkotp. Without user_phone none was sent, and a backup code comes next.",
		[]answerField{{name: "user_phone", optional: true}},
	},
	record.SetPassword: {"SetPassword", "A new password comes next: auth/setpassword.", passwordQuality},
	record.Authorized: {
		"Authorized", "The user is logged in.",
		[]answerField{{name: "profile_mnemocode"}},
	},
	record.AcceptDisclaimers: {
		"AcceptDisclaimers", "Disclaimers are pending: auth/acceptdisclaimers.",
		[]answerField{{name: "disclaimers_required"}},
	},
	record.RecoveryOTP: {
		"RecoveryCheckOTP", "A code was sent; it comes next: auth/recovery/checkotp. A company may leave user_phone out unless it is the login_id that was sent.",
		[]answerField{{name: "user_phone", optional: true}, {name: "verification", value: tenant.ByPhone}},
	},
	record.RecoveryQuestion: {
		"RecoveryCheckQuestion", "The answer to the control question comes next: auth/recovery/checkquestion.",
		[]answerField{{name: "control_question"}, {name: "verification", value: tenant.ByQuestion}},
	},
	record.RecoveryPassword: {"RecoverySetPassword", "A new password comes next: auth/setpassword.", passwordQuality},
}

// routeAnswers are those that are another route's only.
var routeAnswers = map[string]map[record.State]answerText{
	"auth/login": {record.CheckOTP: {
		"LoginCheckOTP", "A code was sent to user_phone, and it or a backup code comes next: auth/checkotp. Without user_phone none was sent, and a backup code comes next.",
		[]answerField{{name: "disclaimers_required"}, {name: "user_phone", optional: true}},
	}},
	"auth/renewotp": {record.None: {
		"CodeSent", "Another code was sent to user_phone.",
		[]answerField{{name: "user_phone"}},
	}},
	"auth/setpassword": {record.None: {passwordRecovered, "After a recovery: the password is set, and there is no session.", nil}},
	"auth/recovery/recover": {record.None: {
		"LinkSent", "A link was mailed; there is no session yet.",
		[]answerField{{name: "user_email"}, {name: "verification", value: tenant.ByMail}},
	}},
}

// passwordRecovered can be told from the other answer of its route only by
// what it lacks, so that the two have one schema.
const passwordRecovered = "PasswordRecovered"

var passwordSetSchema = func() object {
	schema := stateAnswers[record.Authorized].schema(record.Authorized)
	for i, m := range schema {
		switch m.Name() {
		case "description":
			schema[i][1] = "The password is set. Without session_token, after a recovery, all but status is left out."
		case "required":
			schema[i][1] = []string{"status"}
		}
	}
	return schema
}
