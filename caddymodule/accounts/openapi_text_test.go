package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/openapi"
	"github.com/mnemogate/mnemogate/flows/manage"
)

// The words of the OpenAPI document, and what each operation takes and answers.

const apiDescription = "Manages the accounts of companies and their sessions.\n\n" +
	"A key is sent as `Authorization: Bearer <key>`. It has rights, of which none brings another with it, and companies; one that it does not have is 404, as one that there is not. " +
	"Requests with an `Origin` are refused: this API is for backends, not for browsers.\n\n" +
	"Bodies are JSON, of at most 64 KiB. Fields and parameters that are not listed are refused. " +
	"A mnemocode in a path is percent-encoded, also its slashes. Answers may get further fields."

// An operationText says what a route takes and answers.
type operationText struct {
	id, more string
	query    []string
	body     object // its content
	status   int
	answer   string
	of       []any // values of the types that are answered
	content  object
	fails    []int // beside what all may answer
}

var (
	accountOrName = []any{api.Account{}, api.Changed{}}
	lines         = object{{"application/x-ndjson", object{{"schema", object{{"type", "string"}}}}}}
)

const (
	isAccount    = "The account."
	isChanged    = "The account; its mnemocode alone for a key without the right `read`."
	rulesForUser = "With `rules=user` its password is held to the rules for users: 422, and `reason` names the rule. Then no hash is taken."
)

func jsonOf(schema any) object { return openapi.JSON(schema) }

// texts are the content of a body of strings.
func texts(required []string, fields ...member) object {
	return jsonOf(object{{"type", "object"}, {"required", required}, {"additionalProperties", false}, {"properties", object(fields)}})
}

func text(name, description string) member {
	return member{name, object{{"type", "string"}, {"description", description}}}
}

var withToken = object{{"schema", object{{"type", "object"}, {"required", []string{"token"}}, {"properties", object{text("token", "The session token.")}}}}}

var operations = map[string]operationText{
	"GET ":             {id: "listCompanies", status: 200, answer: "Their codes.", of: []any{api.Companies{}}},
	"GET openapi.json": {id: "describe", status: 200, answer: "OpenAPI 3.1.", content: jsonOf(object{{"type", "object"}})},
	"GET {company}/accounts": {
		id: "listAccounts", query: []string{"login_id", "status", "contains", "limit", "after"}, status: 200,
		answer: "A page of accounts, ordered by mnemocode; with login_id the one that has it, or none. With status or contains, a page can have fewer accounts than limit, also none, while there is a `next`: it looks at 10,000 accounts.", of: []any{api.Page{}},
	},
	"POST {company}/accounts": {
		id: "createAccount", more: rulesForUser, query: []string{"rules"}, body: jsonOf(openapi.Ref("schemas", "NewAccount")),
		status: 201, answer: isAccount, of: []any{api.Account{}}, fails: []int{http.StatusConflict, http.StatusUnprocessableEntity},
	},
	"GET {company}/accounts/{mnemocode}": {id: "showAccount", status: 200, answer: isAccount, of: []any{api.Account{}}},
	"GET {company}/accounts/{mnemocode}/history": {
		id: "showHistory", query: []string{"limit"}, more: "They are kept for `audit_keep`: the newest hundred that strangers can cause, and a hundred others. `session_id` is there only for keys with the right `sessions`.",
		status: 200, answer: "Its events, the newest first.", of: []any{api.History{}},
	},
	"PATCH {company}/accounts/{mnemocode}": {
		id: "changeAccount", query: []string{"rules"}, body: jsonOf(openapi.Ref("schemas", "AccountPatch")),
		more:   "What is not given stays, and `null` takes a value away. A new status, password, phone, email, second factor or mnemocode ends the account's sessions. " + rulesForUser,
		status: 200, answer: isChanged, of: accountOrName, fails: []int{http.StatusConflict, http.StatusUnprocessableEntity},
	},
	"DELETE {company}/accounts/{mnemocode}":            {id: "deleteAccount", status: 204, answer: "It is gone."},
	"POST {company}/accounts/{mnemocode}/backup-codes": {id: "makeBackupCodes", status: 200, answer: "The codes.", of: []any{api.BackupCodes{}}},
	"POST {company}/accounts/{mnemocode}/totp":         {id: "makeTOTP", status: 200, answer: "The secret.", of: []any{manage.TOTPSecret{}}},
	"POST {company}/accounts/{mnemocode}/totp/confirm": {
		id: "confirmTOTP", body: texts([]string{"code"}, text("code", "The app's present code.")),
		status: 200, answer: isChanged, of: accountOrName, fails: []int{http.StatusConflict, http.StatusUnprocessableEntity},
	},
	"DELETE {company}/accounts/{mnemocode}/totp": {id: "removeTOTP", status: 204, answer: "There is none any more."},
	"POST {company}/accounts/{mnemocode}/password": {
		id: "changePassword", more: "It counts as a login does, and is held to the rules for users. All sessions but the one to keep end.",
		body: texts([]string{"current_password", "new_password"}, text("current_password", "The present one."), text("new_password", "The one to set."),
			text("keep_session", "The session_id of a session that goes on."), text("address", "The user's IP address, whose limits then apply.")),
		status: 204, answer: "It is set.", fails: []int{http.StatusConflict, http.StatusUnprocessableEntity},
	},
	"POST {company}/accounts/{mnemocode}/check-password": {
		id: "checkPassword", more: "It counts as a login does.",
		body:   texts([]string{"current_password"}, text("current_password", "The present one."), text("address", "The user's IP address, whose limits then apply.")),
		status: 204, answer: "It is right.", fails: []int{http.StatusConflict},
	},
	"POST {company}/accounts/{mnemocode}/unlock": {id: "unlockAccount", status: 200, answer: isChanged, of: accountOrName},
	"POST {company}/accounts/{mnemocode}/welcome": {
		id: "welcome", more: "The mail is `welcome.link.mail.txt`; its link is one of `recovery link`, and counts among the account's recovery mails.",
		status: 202, answer: "The mail is on its way.", content: jsonOf(object{{"type", "object"}}), fails: []int{http.StatusConflict},
	},
	"GET {company}/accounts/{mnemocode}/sessions":              {id: "listSessions", status: 200, answer: "Those that live, oldest first.", of: []any{api.Sessions{}}},
	"DELETE {company}/accounts/{mnemocode}/sessions":           {id: "endSessions", status: 204, answer: "They are ended, on all nodes."},
	"DELETE {company}/accounts/{mnemocode}/sessions/{session}": {id: "endSession", status: 204, answer: "It is ended, on all nodes."},
	"DELETE {company}/sessions":                                {id: "endAllSessions", status: 204, answer: "They are ended, on all nodes."},
	"POST {company}/introspect": {
		id: "introspect", more: "What it takes besides, such as `token_type_hint`, is not looked at. The token is not prolonged.",
		body: object{{"application/x-www-form-urlencoded", withToken}, {"application/json", withToken}}, status: 200,
		answer: "`active` alone of a token that opens no protected path: a step's, an ended or unknown one, another company's.",
		of:     []any{manage.Introspection{}}, fails: []int{http.StatusUnsupportedMediaType},
	},
	"POST {company}/import": {
		id: "import", query: []string{"update", "skipped"},
		more: "A line is an account as in NewAccount, and may have `control_answer_hash`, `backup_code_hashes`, `totp_secret` and `created_at` besides. What is there is skipped, or changed with update=true.",
		body: lines, status: 200, answer: "A line for each that failed (`line`, `field`, `error`) and, with skipped=true, each that was skipped (`line`, `skipped`: why), and the counts last (`created`, `updated`, `skipped`, `failed`).", content: lines,
	},
	"GET {company}/export": {id: "export", query: []string{"secrets"}, status: 200, answer: "What import takes, one account a line.", content: lines},
}

var failureTexts = map[int]string{
	http.StatusBadRequest:            "A field or parameter is wrong; nothing was stored.",
	http.StatusUnauthorized:          "There is no key, or it is wrong. Where a user's password is checked: that is wrong, with the field `current_password` and the reason `password.wrong`.",
	http.StatusForbidden:             "The key does not have the right, or the request comes from a web page.",
	http.StatusNotFound:              "There is no such company or account.",
	http.StatusConflict:              "Another account has the value, or the account lacks what is needed; nothing was stored.",
	http.StatusRequestEntityTooLarge: "The body is too large.",
	http.StatusUnsupportedMediaType:  "The body has another Content-Type than those that are listed.",
	http.StatusUnprocessableEntity:   "A password breaks a rule, or a code is wrong; nothing was stored.",
	http.StatusTooManyRequests:       "Too many wrong keys, wrong passwords or mails.",
	http.StatusInternalServerError:   "A defect of the server; its log says more.",
	http.StatusServiceUnavailable:    "A store or gateway did not answer. If `error` says that the change is stored, it is, and the sessions that it ends are ended as soon as their store answers.",
}

var parameterTexts = map[string]object{
	"company":   {{"description", "The code of a company that the key has."}, {"schema", object{{"type", "string"}, {"pattern", `^[A-Za-z0-9_-]{1,64}$`}}}},
	"mnemocode": {{"description", "The account's profile_mnemocode."}, {"schema", object{{"type", "string"}, {"pattern", `^[!-z|~]{1,128}$`}}}},
	"session":   {{"description", "A session_id."}, {"schema", object{{"type", "string"}}}},
	"login_id":  {{"description", "A phone, email or login name, in any spelling."}, {"schema", object{{"type", "string"}}}},
	"status":    {{"description", "Only accounts with this status."}, {"schema", object{{"type", "string"}, {"enum", statuses}}}},
	"contains":  {{"description", "Only accounts with a login id that contains this, without regard to case; in a part of a phone that has a plus, spaces or brackets, these and dashes and dots are ignored."}, {"schema", object{{"type", "string"}, {"minLength", 1}, {"maxLength", 254}}}},
	"limit":     {{"description", "How many at most."}, {"schema", object{{"type", "integer"}, {"minimum", 1}, {"maximum", api.MaxPage}, {"default", api.DefaultPage}}}},
	"after":     {{"description", "The `next` of the page before."}, {"schema", object{{"type", "string"}}}},
	"rules":     {{"description", "`user` applies the rules for passwords that users choose."}, {"schema", object{{"type", "string"}, {"enum", []any{"user"}}}}},
	"update":    {{"description", "Change what is there."}, {"schema", object{{"type", "boolean"}, {"default", false}}}},
	"skipped":   {{"description", "Answer a line for each that is skipped, too."}, {"schema", object{{"type", "boolean"}, {"default", false}}}},
	"secrets":   {{"description", "With the secrets of authenticator apps, in plain."}, {"schema", object{{"type", "boolean"}, {"default", false}}}},
}

var (
	optionalText = []any{"string", "null"}
	flagSchema   = object{{"type", []any{"boolean", "null"}}}
)

// writtenFields are what the fields take that can be written.
var writtenFields = map[string]object{
	"profile_mnemocode":    {{"type", "string"}, {"pattern", `^[!-z|~]{1,128}$`}},
	"role":                 {{"type", optionalText}, {"maxLength", 128}},
	"primary_phone":        {{"type", optionalText}},
	"primary_email":        {{"type", optionalText}, {"maxLength", 254}},
	"login_name":           {{"type", optionalText}, {"maxLength", 254}},
	"locale":               {{"type", optionalText}},
	"status":               {{"type", "string"}, {"enum", statuses}},
	"second_factor":        flagSchema,
	"password":             {{"type", optionalText}},
	"password_hash":        {{"type", optionalText}, {"maxLength", 4096}},
	"must_set_password":    flagSchema,
	"control_question":     {{"type", optionalText}, {"maxLength", 256}},
	"control_answer":       {{"type", optionalText}, {"maxLength", 256}},
	"oauth_identities":     {{"type", []any{"array", "null"}}, {"items", openapi.Ref("schemas", "Identity")}},
	"disclaimers_accepted": {{"type", []any{"array", "null"}}, {"items", openapi.Ref("schemas", "Acceptance")}},
}

// fieldTexts describe fields wherever they are, or those of a schema.
var fieldTexts = map[string]string{
	"active":               "Whether the token is one of an authorized session of the company.",
	"Event.time":           "When it happened.",
	"Event.event":          "What happened, named as in the audit log.",
	"Event.session_id":     "The session that it was about.",
	"Event.session_state":  "That of the session.",
	"Event.address":        "The client's.",
	"Event.user_agent":     "What the client says it is, its first 200 bytes.",
	"Event.actor":          "Who managed the account: the name of a key, or `admin endpoint`.",
	"Event.result":         "What came of it: `success`, or the error_code.",
	"Event.reason":         "Why, as far as the result does not say it.",
	"events":               "They are an account's.",
	"sub":                  "The user's profile_mnemocode.",
	"company":              "The company's code.",
	"state":                "That of the session, `authorized`.",
	"sid":                  "The session's id, which names it to operators and is of no use as a token.",
	"iat":                  "When the user logged in, in Unix seconds.",
	"exp":                  "When the session ends unless it is used, in Unix seconds.",
	"profile_mnemocode":    "Names the account, and its user to the application: visible ASCII without braces.",
	"role":                 "What the application makes of it.",
	"primary_phone":        "An international number, which is a login id.",
	"primary_email":        "A login id.",
	"login_name":           "A login id.",
	"locale":               "The language that its owner reads, as a tag of BCP 47 such as lt or pt-BR: of SMS, mails and, behind Accept-Language, disclaimers.",
	"status":               "Who is not active can't log in.",
	"second_factor":        "A one-time code follows the password.",
	"password":             "In plain, of 1 to 128 characters; it is stored as a hash, and never shown.",
	"password_hash":        "A hash from elsewhere, instead of a password: argon2id, bcrypt, scrypt or pbkdf2 in PHC or crypt form, and others.",
	"must_set_password":    "The next login sets a new password. A new one that is given clears it, unless it is given, too.",
	"password_set":         "There is a password.",
	"control_question":     "For a recovery by QUESTION; it goes with control_answer.",
	"control_answer":       "In plain; it is stored as a hash, and never shown.",
	"backup_codes_left":    "How many there are.",
	"totp":                 "An authenticator app was confirmed.",
	"oauth_identities":     "Users of OAuth providers who log in as the account, one of each provider.",
	"disclaimers_accepted": "What was accepted can't be taken away.",
	"locked_until":         "The end of the longest lock after wrong attempts; 9999-12-31T23:59:59Z until someone unlocks it.",
	"captcha_due":          "The next password needs a captcha, after `captcha_after` wrong ones; false where the company has no captcha.",
	"created_at":           "When it began.",
	"updated_at":           "The last change.",
	"provider_id":          "Which of the company's OAuth providers, 1 to 5.",
	"subject":              "The provider's id of the user.",
	"code":                 "The disclaimer's.",
	"version":              "The disclaimer's; empty is one like any other.",
	"accepted_at":          "Now, if it is not given.",
	"accounts":             "At most as many as limit.",
	"next":                 "The `after` of the next page; left out on the last.",
	"companies":            "Their codes.",
	"backup_codes":         "As they are shown to the user, this once.",
	"secret":               "In base32, for who types it in.",
	"uri":                  "For a QR code.",
	"sessions":             "No recovery links are among them.",
	"session_id":           "Of no use as a token.",
	"session_state":        "Which step it awaits, or authorized.",
	"expires_at":           "Unless it is used.",
	"ends_at":              "Whatever happens.",
	"last_used":            "As a rule the last request lies less than a minute behind it.",
	"address":              "Of the login.",
	"user_agent":           "Of the login, its first 200 bytes.",
	"error":                "A sentence for developers.",
	"field":                "The one at fault.",
	"reason":               "A word for programs, where there are several.",
}
