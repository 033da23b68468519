package integration

import (
	"os"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// Wrong uses of the global option and of mnemogate_accounts are refused, also those that are
// found only after the placeholders are resolved. Nothing is created.
func TestMistakesInTheGlobalOptionAreRefused(t *testing.T) {
	// Where the options stand. The comments name the line of the first one.
	const (
		whole    = "OPTIONS"
		app      = "{\nmnemogate {\nOPTIONS\n}\n}"                                                                                                    // 3
		global   = "{\nmnemogate {\nOPTIONS\ncompany acme {\napi_key k\ncaptcha off\n}\n}\n}"                                                         // 3
		bare     = "{\nmnemogate {\nsecond_factor off\ncompany acme {\nOPTIONS\n}\n}\n}"                                                              // 5
		company  = "{\nmnemogate {\ncaptcha off\ncompany acme {\napi_key k\nOPTIONS\n}\n}\n}"                                                         // 6
		site     = "{\nmnemogate {\ncompany acme {\napi_key k\ncaptcha off\n}\n}\n}\n\naccounts.internal:8443 {\nOPTIONS\n}"                          // 11
		accounts = "{\nmnemogate {\ncompany acme {\napi_key k\ncaptcha off\n}\n}\n}\n\naccounts.internal:8443 {\nmnemogate_accounts {\nOPTIONS\n}\n}" // 12
		hash     = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857"
		key      = "{\nmnemogate {\ncompany acme {\napi_key k\ncaptcha off\n}\n}\n}\n\naccounts.internal:8443 {\nmnemogate_accounts {\nkey shop " + hash + " {\nOPTIONS\n}\n}\n}" // 13
		shared   = "{\nmnemogate {\ncaptcha off\ncompany acme {\napi_key k\n}\ncompany beta {\napi_key k\n}\n}\n}\nhttp:// {\nmnemogate {\nOPTIONS\n}\n}"                         // 13
		client   = "client_id a\nclient_secret b\nredirect_uri https://a.example\n"
		oidc     = "{\nmnemogate {\ncaptcha off\ncompany acme {\napi_key k\noauth 3 oidc https://a.example {\n" + client + "OPTIONS\n}\n}\n}\n}" // 10
		oauth2   = "{\nmnemogate {\ncaptcha off\ncompany acme {\napi_key k\noauth 3 oauth2 {\ntoken_url https://a.example\nuserinfo_url https://a.example\nsubject id\n" + client + "OPTIONS\n}\n}\n}\n}"
	)
	for _, c := range []struct{ in, options, want string }{
		// With their line
		{company, "session {\n\ntemporary 16m\n}", "company acme: session temporary: 16m is against NIST SP 800-63B-4, section 3.1.3; choose at most 15m or, if you must, add the word insecure after it, at Caddyfile:8"},
		{company, "otp {\nfixed 123456 60012345\n}", `company acme: otp fixed: "60012345" is not a possible phone, or could be two; write it as an international number, as in +37060012345, at Caddyfile:7`},
		{company, "password {\nregex (?=x)\n}", "company acme: password regex: RE2 can't compile it; correct it: error parsing regexp: invalid or unsupported Perl syntax: `(?=`, at Caddyfile:7"},
		{company, "second_factor always", `company acme: second_factor: "always" is unknown; choose per_account, required or off, at Caddyfile:6`},
		{company, "recovery {\nlink http://a.example/#{token}\n}", "company acme: recovery link: write an https URL without credentials; http is allowed only for this machine, at Caddyfile:7"},
		{company, "disclaimer terms {\nlink terms.html\n}", "company acme: disclaimer terms: link: write a URL like https://host/path, at Caddyfile:7"},
		{company, "account a {\nphone 60012345\n}", "company acme: account a: phone: it is not a possible phone, or could be two; write it as an international number, as in +37060012345, at Caddyfile:7"},
		{company, "phone_region DE\naccount a {\nphone 491701234567\n}", "company acme: account a: phone: it is not a possible phone, or could be two; write it as an international number, as in +37060012345, at Caddyfile:8"},
		{company, "sms webhook gateway {\nsecret x\n}", "company acme: sms: write a URL like https://host/path, at Caddyfile:6"},
		{company, "sms log {\nname a\nname b\n}", "company acme: sms: name already specified; remove one, at Caddyfile:8"},
		{company, "sms log {\nname \"\"\n}", "company acme: sms: name: the value is empty; write name <name>, at Caddyfile:7"},
		{company, "sms log {\ncountries 370\n}", "company acme: sms: countries: '370' is not the beginning of an international number; write it as +370, at Caddyfile:7"},
		{company, "sms log\nsms log", "sms 2: two gateways have the name log; write name and another one into the block of one, at Caddyfile:7"},
		{company, "sms webhook https://gateway.example {\nsecret whsec_?\n}", "company acme: sms: secret: what follows whsec_ must be base64, at Caddyfile:7"},
		{company, "sms webhook https://gateway.example {\ntimeout 2m\nsecret {env.X}\n}", "company acme: sms: timeout: '2m' is too long; choose at most 1m, at Caddyfile:7"},
		{company, "oauth 1 oidc https://id.example {\nclient_id us\n}", "company acme: oauth 1: client_secret is missing; a client without one needs require_pkce, at Caddyfile:8"},
		{company, "oauth 1 oidc https://id.example/.well-known/openid-configuration {\nclient_id us\nclient_secret x\nredirect_uri https://a.example\n}", "oauth oidc: issuer: leave out what begins with /.well-known, at Caddyfile:6"},
		{company, "oauth 1 oidc https://login.microsoftonline.com/{tenantid}/v2.0 {\nclient_id us\nclient_secret x\nredirect_uri https://a.example\n}", "company acme: oauth 1: tenants is missing, since this issuer stands for many; name the ids of yours, write any, or write one tenant's id in the issuer, at Caddyfile:10"},
		{bare, "api_key off", "company acme: captcha is missing; choose one, or captcha off, at Caddyfile:4"},
		{bare, "captcha off", "company acme: api_key is missing; add one, or api_key off, at Caddyfile:4"},
		{bare, "captcha off\napi_key $ACME_API_KEY", "company acme: api_key: it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME, at Caddyfile:6"},
		{bare, "captcha off\napi_key ${ACME_API_KEY}", "company acme: api_key: it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME, at Caddyfile:6"},
		{bare, "captcha off\napi_key \"a b\"", "company acme: api_key: it must be visible ASCII without spaces, because a header carries it, at Caddyfile:6"},
		{bare, "captcha off\napi_key sha256:0", "company acme: api_key: sha256: must be followed by 64 hex digits, at Caddyfile:6"},
		{bare, "captcha turnstile $SECRET\napi_key off", "captcha turnstile: secret: it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME, at Caddyfile:5"},
		{bare, "captcha off\napi_key {ACME_API_KEY}", "company acme: api_key: a placeholder in it is unknown or is empty; write {env.NAME} or {file.PATH}, and \\{ for a brace, at Caddyfile:6"},
		// An address with a placeholder would never answer
		{company, "disclaimer terms {\ntitle T\nlink https://a.example/{env.X}\n}", "company acme: disclaimer terms: link: placeholders are not replaced here; write the URL itself, at Caddyfile:8"},
		{company, "oauth 1 oidc https://a.example/{env.X} {\nclient_id x\nclient_secret y\nredirect_uri https://a.example/\n}", "oauth oidc: issuer: placeholders are not replaced here; write the URL itself, at Caddyfile:6"},
		{company, "oauth 1 oidc https://a.example {\nscope openid {env.X}\nclient_id x\nclient_secret y\nredirect_uri https://a.example/\n}", "oauth oidc: scope: placeholders are not replaced here; write the scope itself, at Caddyfile:7"},
		{company, "oauth 1 oauth2 {\ntoken_url https://a.example/{env.X}\nsubject id\nuserinfo_url https://a.example/\nclient_id x\nclient_secret y\nredirect_uri https://a.example/\n}", "oauth oauth2: token_url: placeholders are not replaced here; write the URL itself, at Caddyfile:7"},
		{company, "oauth 1 oauth2 {\ntoken_url https://a.example/\nsubject {env.X}\nuserinfo_url https://a.example/\nclient_id x\nclient_secret y\nredirect_uri https://a.example/\n}", "oauth oauth2: subject: placeholders are not replaced here; write the name of the field, at Caddyfile:8"},
		{company, "oauth 1 oauth2 {\ntoken_url https://a.example/\nsubject id\nemail mail {env.X}\nuserinfo_url https://a.example/\nclient_id x\nclient_secret y\nredirect_uri https://a.example/\n}", "oauth oauth2: email: placeholders are not replaced here; write the name of the field, at Caddyfile:9"},
		{company, "oauth 1 oidc https://a.example {\nprompt {env.X}\nclient_id x\nclient_secret y\nredirect_uri https://a.example/\n}", "oauth oidc: prompt: placeholders are not replaced here; write the prompt itself, at Caddyfile:7"},
		{company, "password {\nbreached https://a.example/{env.X}\n}", "company acme: password breached: placeholders are not replaced here; write the URL itself, at Caddyfile:7"},
		{company, "captcha turnstile s {\nhostname müller.de\n}", `captcha turnstile: hostname: "müller.de" is not how providers write it; write xn--mller-kva.de, at Caddyfile:7`},
		{company, "captcha siteverify https://a.example/{env.X} s", "captcha siteverify: url: placeholders are not replaced here; write the URL itself, at Caddyfile:6"},
		{company, "mail smtp {env.X}:587 {\nfrom a@a.example\n}", "mail smtp: placeholders are not replaced here; write the server as host:port, at Caddyfile:6"},
		{company, "mail smtp a.example:587 {\nfrom \"{env.X} <a@a.example>\"\n}", "mail smtp: from: placeholders are not replaced here; write the address itself, at Caddyfile:7"},
		{company, "mail log {\nname a\n}\nmail log {\nname {env.X}\n}", "company acme: mail 2: name: placeholders are not replaced here; write the name as metrics and the log should have it, at Caddyfile:11"},
		{whole, "{\nmnemogate {\ncaptcha off\ncompany acme {\napi_key off\ncaptcha off\n}\n}\n}\nhttp:// {\nmnemogate {\nlogin_page {\nlink Imprint /{env.X}\n}\n}\n}", "login_page: link: placeholders are not replaced here; write the address itself, at Caddyfile:13"},
		// Words in the wrong place or number
		{whole, "{\nmnemogate {\ncompany acme {\napi_key off\ncaptcha off\n}\n}\nmnemogate {\n}\n}", "mnemogate already specified; write all its options into one block, at Caddyfile:8"},
		{whole, "{\nmnemogate acme {\n}\n}", "mnemogate: it takes no argument like acme; write company acme { ... } into its block, at Caddyfile:2"},
		{app, "company acme beta {\n}", "company: wrong argument count; write company <code> { ... }, with quotes around a value that has spaces"},
		{app, "company acme {\n}\ncompany acme {\n}", "company acme: already specified; remove one"},
		{global, "session {\nidle 1h\nidle 2h\n}", "session: idle already specified"},
		{global, "session {\nidle 1h 2h\n}", "session: idle: wrong argument count"},
		{global, "session {\nidle soon\n}", "session: idle: 'soon' is not a duration"},
		{global, "session {\nidle 0\n}", "session: idle: '0' is not a duration"},
		{global, "session {\nstream_recheck 1s insecure\n}", "session: stream_recheck: wrong argument count"},
		{global, "otp {\nlength six\n}", "otp: length: 'six' is not a number"},
		{global, "otp {\nlength 0\n}", "otp: length: '0' is not a number above 0"},
		{global, "otp {\nrenewals many\n}", "otp: renewals: 'many' is not a number"},
		{global, "password {\nregex a b c\n}", "password: regex: wrong argument count"},
		{global, "password {\nargon2id 19456 2\n}", "password: argon2id: <parallelism> is missing; write argon2id <memory_KiB> <iterations> <parallelism> [insecure]"},
		{global, "password {\nargon2id 19MiB 2 1\n}", "password: argon2id: '19MiB' is not one of the numbers"},
		{global, "password {\nargon2id 19456 2 256\n}", "password: argon2id: '256' is not one of the numbers"},
		{global, "password {\nargon2id 0 0 0\n}", "password: argon2id: '0' is not one of the numbers"},
		{global, "recovery {\nmethods\n}", "recovery: methods: PHONE|MAIL|QUESTION is missing; write methods PHONE|MAIL|QUESTION...|off"},
		{global, "limits {\nsms_per_phone 10\n}", "limits: sms_per_phone: '10' is not a rate; write a number and a time, as in 5/10m"},
		{global, "limits {\nsms_per_phone 0/1h\n}", "limits: sms_per_phone: '0/1h' is not a rate"},
		{global, "limits {\nwrong_codes 10/0s\n}", "limits: wrong_codes: '10/0s' is not a rate"},
		{global, "second_factor", "second_factor: per_account|required|off is missing; write second_factor per_account|required|off"},
		{app, "company acme {\napi_key off k\n}", "company acme: api_key: off takes no other keys; write it alone, or remove it"},
		{app, "locale lt_LT", "locale: write a language tag of BCP 47 like lt, lt-LT or zh-Hant-TW"},
		{company, "disclaimer", "company acme: disclaimer: <code> is missing; write disclaimer <code> [<version>] { ... }"},
		{company, "disclaimer terms {\ntitle Terms\n}\ndisclaimer terms 2", "company acme: disclaimer terms: already specified; remove one"},
		{company, "disclaimer terms {\ntitle Terms of use\n}", "company acme: disclaimer terms: title: wrong argument count"},
		{app, "limits {\nsms_countries\n}", "limits: sms_countries: <prefix> is missing; write sms_countries <prefix>...|all"},
		{app, "limits {\nsms_countries 370\n}", "limits sms_countries: '370' is not the beginning of an international number; write it as +370"},
		{app, "limits {\nsms_countries +370 +370\n}", "limits sms_countries: +370 appears twice; remove one"},
		{app, "limits {\nsms_countries all +370\n}", "limits sms_countries: all takes no other countries; write it alone, or remove it"},
		{company, "disclaimer terms {\ntitle Terms\ntitle lt Sąlygos\ntitle LT Taisyklės\n}", "company acme: disclaimer terms: title: already specified"},
		{company, "disclaimer terms {\ntitle Our terms\n}", "company acme: disclaimer terms: title: 'Our' is not a language: write a language tag of BCP 47 like lt, lt-LT or zh-Hant-TW; put quotes around a text of several words"},
		{company, "disclaimer terms {\ntitle lt \"\"\n}", "company acme: disclaimer terms: title: the value is empty"},
		{company, "account a {\nidentity one 1\n}", "company acme: account a: identity: 'one' is not a provider id"},
		// The errors about the count of arguments go to a terminal and perhaps a log
		{company, "sms webhook https://gateway.example/sms {\nheader X-Key " + guesttest.Secret + " more\n}", "company acme: sms: header: wrong argument count; write header <name> <value>, with quotes around a value that has spaces, at Caddyfile:7"},
		{company, "mail webhook https://gateway.example/mail {\nsecret \"\" " + guesttest.Secret + "\n}", "company acme: mail: secret: the value is empty; write secret <key>..., at Caddyfile:7"},
		{company, "mail smtp mail.example:25 {\nfrom a@b.example\npassword " + guesttest.Secret + " more\n}", "company acme: mail: password: wrong argument count; write password <secret>, with quotes around a value that has spaces, at Caddyfile:8"},
		{company, "otp {\nfixed " + guesttest.Secret + "\n}", "company acme: otp: fixed: <phone> is missing; write fixed <code> <phone>..., at Caddyfile:7"},
		{bare, "captcha static " + guesttest.Secret + " more", "company acme: captcha: wrong argument count; write static <response>, with quotes around a value that has spaces, at Caddyfile:5"},
		{bare, "captcha turnstile " + guesttest.Secret + " more", "company acme: captcha: wrong argument count; write turnstile <secret>, with quotes around a value that has spaces, at Caddyfile:5"},
		{bare, "captcha siteverify https://captcha.example/ " + guesttest.Secret + " more", "company acme: captcha: wrong argument count; write siteverify <url> [insecure] <secret>, with quotes around a value that has spaces, at Caddyfile:5"},
		{company, "account a {\nquestion Who? " + guesttest.Secret + " more\n}", "company acme: account a: question: wrong argument count; write question <text> <answer>, with quotes around a value that has spaces, at Caddyfile:7"},
		// The global option
		{global, `store postgres "host=127.0.0.1 sslmode=disable"`, "sessions: postgres keeps none; say where they are kept, as in sessions redis <url>"},
		{global, "store postgres \"\"\nsessions redis redis://127.0.0.1", "store: the value is empty; write postgres <dsn>, at Caddyfile:3"},
		{global, "store postgres {env.MNEMOGATE_TEST_UNSET}\nsessions redis redis://127.0.0.1", "store postgres: {env.MNEMOGATE_TEST_UNSET} is not set; set the variable, also for caddy validate"},
		{global, "store postgres postgres://mg:whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ=@db.example.com/mg\nsessions redis redis://127.0.0.1", "store postgres: the connection to db.example.com could fall back to plaintext, since the DSN's sslmode is not set, prefer or allow: set it to verify-full (with sslrootcert=<file> for a CA of your own), require or disable"},
		{global, "store postgres \"postgres://mg:whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ=/x@db.example.com/mg?sslmode=require\"\nsessions redis redis://127.0.0.1", "store postgres: the DSN can't be used: invalid port; write postgres://user:password@host/database?sslmode=verify-full, with %xx for special characters in the password"},
		{global, "sessions redis http://127.0.0.1", "sessions redis: Redis URL 1 begins with none of redis://, rediss://, unix://"},
		{global, "sessions redis", "sessions: <url> is missing; write redis <url>... [insecure], at Caddyfile:3"},
		{global, "sessions redis {env.MNEMOGATE_TEST_EMPTY}", "sessions redis: {env.MNEMOGATE_TEST_EMPTY} is empty; give the variable its value"},
		{global, `sessions redis "redis://:whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ=/x@127.0.0.1"`, "sessions redis: Redis URL 1 can't be read; is it like redis://user:password@host:6379/0, and what is special in its password percent-encoded?"},
		{global, `sessions postgres "host=127.0.0.1 sslmode=disable"`, "sessions: there is no module 'postgres'; this Caddy has: redis, at Caddyfile:3"},
		{global, "sessions redis {env.MNEMOGATE_TEST_REDIS}", "sessions redis: anyone on the network path to redis.example.com:6379 could read and change sessions; write rediss:// or, if you must, add the word insecure after the URLs, at Caddyfile:3"},
		{global, "sessions redis redis://:secret@localhost redis://:secret@10.0.0.2:7000", "sessions redis: anyone on the network path to 10.0.0.2:7000 could read and change sessions; write rediss:// or, if you must, add the word insecure after the URLs, at Caddyfile:3"},
		{company, "mail smtp mail.example.com:25 {\nfrom noreply@example.com\ntls off\n}", "mail smtp: tls: anyone on the network path could read the links and the password with tls off; use starttls or implicit or, if you must, add the word insecure after it, at Caddyfile:8"},
		{global, "store sqlite :memory:", `store sqlite: ":memory:" is not the path of a file; accounts must survive a restart, so write a path such as /data/mnemogate.db, at Caddyfile:3`},
		{global, "store sqlite file::memory:?cache=shared", `store sqlite: "file::memory:?cache=shared" is not the path of a file; accounts must survive a restart, so write a path such as /data/mnemogate.db, at Caddyfile:3`},
		{global, "store sqlite ~/x.db", `store sqlite: "~/x.db": Caddy replaces neither ~ nor shell variables; write the whole path, or {env.NAME} for the value of NAME, at Caddyfile:3`},
		{global, "store sqlite $HOME/x.db", `store sqlite: "$HOME/x.db": Caddy replaces neither ~ nor shell variables; write the whole path, or {env.NAME} for the value of NAME, at Caddyfile:3`},
		{global, "store sqlite testdata/", "store sqlite: testdata/ is a directory; write the path of a file in it, such as /"},
		// Companies
		{whole, "{\nmnemogate\n}", "company is missing; add at least one"},
		{app, "company acme/beta {\napi_key k\ncaptcha off\n}", "company acme/beta: its code must be 1 to 64 letters, digits, _ and -"},
		{app, "company acme {\napi_key {env.MNEMOGATE_TEST_UNSET}\ncaptcha off\n}", "company acme: api_key: {env.MNEMOGATE_TEST_UNSET} is not set"},
		{app, "company acme {\napi_key {file.testdata/nowhere}\ncaptcha off\n}", "company acme: api_key: {file.testdata/nowhere} can't be read (open testdata/nowhere: no such file or directory); correct the path"},
		{company, "disclaimer \"\" {\ntitle Terms\n}", `company acme: disclaimer "": its code must have 1 to 64 characters`},
		{company, "disclaimer terms {\ntitle lt Sąlygos\ndescription Terms\n}", "company acme: disclaimer terms: title lt: users who read another language need one, too; add title without a language"},
		{company, "disclaimer terms {\ndescription Terms\n}", "company acme: disclaimer terms: title is missing: users could not see what they accept; add one, at Caddyfile:8"},
		{company, "account a {\nemail a@example.com\n}\naccount b {\nlogin b\nemail A@example.com\n}", "company acme: account b: email: account a has it already; change one of them, at Caddyfile:11"},
		{company, "mail smtp mail.example.com:587 {\ntls starttls\n}", "mail smtp: from: write an address that mail can be sent to, like help@example.com, at Caddyfile:6"},
		{company, "mail smtp mail.example.com:587 {\nfrom nobody\n}", "mail smtp: from: write an address that mail can be sent to, like help@example.com, at Caddyfile:7"},
		{company, "password {\nmin_length 10\nblocklist /nowhere/list\n}", "company acme: password blocklist: open /nowhere/list: no such file or directory; correct the path, at Caddyfile:8"},
		{global, "second_factor required", "company acme: second_factor required needs an sms sender; add sms, at Caddyfile:3"},
		{company, "recovery {\nlink https://a.example/#{token}\nmethods MAIL\n}", "company acme: recovery methods: MAIL needs a mail sender; add mail, or take MAIL out, at Caddyfile:8"},
		{app, "company acme {\nname \"Acme: the shop\"\napi_key k\ncaptcha off\n}", "company acme: name: it has a colon, where authenticator apps end a name; write it without, at Caddyfile:4"},
		{app, "company acme {\nname \"Acme\tInc\"\napi_key k\ncaptcha off\n}", "company acme: name: it has a line break, another control character, or space at its beginning or end; remove it"},
		{app, "name Acme", "name: it does not belong here: write it into oauth <1-5> oidc|oauth2 { ... }, or into passkeys { ... }, or into the block of a company, company <code> { ... }, in the global option mnemogate"},
		{app, "company acme {\nname \"{env.COMPANY}\"\napi_key k\ncaptcha off\n}", "company acme: name: placeholders are not replaced here; write the name as users read it, at Caddyfile:4"},
		{app, "company acme {\npasskeys {\nrp_id example.com\nname \"{env.COMPANY}\"\n}\napi_key k\ncaptcha off\n}", "company acme: passkeys: name: placeholders are not replaced here; write the name as users read it, at Caddyfile:6"},
		{company, "oauth 1 oidc https://login.example.com {\nname \"{env.PROVIDER}\"\nclient_id ours\nclient_secret hidden\nredirect_uri https://app.example.com/acme/login\n}", "company acme: oauth 1: name: placeholders are not replaced here; write the name as users read it, at Caddyfile:"},
		{company, "disclaimer terms vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv {\ntitle Terms\n}", `company acme: disclaimer "terms": its code must have 1 to 64 characters, its version at most 64, and neither control characters`},
		{company, "disclaimer \"te\trms\" {\ntitle Terms\n}", `company acme: disclaimer "te\trms": its code must have 1 to 64 characters, its version at most 64, and neither control characters`},
		// Accounts
		{company, "account \"a b\" {\nphone +37060000001\n}", "company acme: account a b: profile_mnemocode: it must be"},
		{company, "account .. {\nphone +37060000001\n}", "company acme: account ..: profile_mnemocode: it must be"},
		{company, "account a {\nemail example.com\n}", "company acme: account a: email: no mail can be sent there"},
		{company, "account a {\nlocale lt_LT\n}", "company acme: account a: locale: write a language tag of BCP 47"},
		{company, "account a {\nlogin \" \"\n}", "company acme: account a: login: it must be"},
		{company, "account a {\npassword $argon2id$v=19$m=99999999,t=1,p=1$c2FsdHNhbHQ$c2FsdHNhbHQ\n}", "company acme: account a: password: the hash takes too long to check: argon2 with 1048576 as memory in KiB times iterations is the most; leave it out, and let the user set a new one, at Caddyfile:7"},
		{company, "account a {\npassword xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n}", "company acme: account a: password: it must have 1 to 128 characters"},
		{company, "account a {\npassword \"\"\n}", "company acme: account a: password: the value is empty; write password <plain_or_hash>, at Caddyfile:7"},
		{company, "account a {\npassword {env.MNEMOGATE_TEST_UNSET}\n}", "company acme: account a: password: {env.MNEMOGATE_TEST_UNSET} is not set"},
		{company, "account a {\nquestion \"Who?\" {env.MNEMOGATE_TEST_UNSET}\n}", "company acme: account a: question: {env.MNEMOGATE_TEST_UNSET} is not set"},
		{company, "account a {\nidentity 6 x\n}", "company acme: account a: identity: provider_id must be 1 to 5"},
		{company, "account a {\nidentity 1 x\nidentity 1 y\n}", "company acme: account a: identity 1 already specified"},
		{company, "account a {\nidentity 1 x\n}\naccount b {\nidentity 1 x\n}", "company acme: account b: identity: account a has it already"},
		{company, "account a {\nphone +37060000001\n}\naccount b {\nlogin \"00370 600 00001\"\n}", "company acme: account b: login: account a has it already"},
		{company, "account a {\nlogin a\nquestion \"Cat?\tOr dog?\" Tom\n}", "company acme: account a: question: it must have at most 256 characters, without control characters"},
		{company, "account a {\nlogin a\nidentity 1 \"a\tb\"\n}", "company acme: account a: identity: a subject contains a control character"},
		// Policies
		{app, "company acme {\napi_key k\ncaptcha pow 7\n}", "company acme: captcha: captcha pow: choose 8 to 24 bits, at Caddyfile:5"},
		{app, "company acme {\napi_key k\ncaptcha pow 25\n}", "company acme: captcha: captcha pow: choose 8 to 24 bits, at Caddyfile:5"},
		{global, "otp {\nfixed 123456 +37060000001\nfixed 654321 \"+370 600 00001\"\n}", "otp fixed: +37060000001 has two codes"},
		{global, "otp {\nfixed 12345 +37060000001\n}", "company acme: otp fixed: a code must have 6 digits"},
		{global, "password {\nargon2id 4096 1 1\n}", "password argon2id: argon2id is below OWASP's minimum"},
		{global, "password {\nargon2id 4 1 1 insecure\n}", "password argon2id: argon2 needs at least"},
		{global, "recovery {\nmethods PHONE\n}", "company acme: recovery methods: PHONE needs an sms sender"},
		{global, "mail log\nrecovery {\nmethods MAIL\n}", "company acme: recovery methods: MAIL needs a link"},
		{global, "recovery {\nmethods QUESTION\n}\nhardened", "company acme: recovery methods: QUESTION is never allowed with hardened"},
		{company, "recovery {\nmethods QUESTION\n}\nhardened", "company acme: recovery methods: QUESTION is never allowed with hardened"},
		{global, "recovery {\nmethods phone\n}", `recovery methods: "phone" is unknown; choose from PHONE, MAIL and QUESTION`},
		{global, "recovery {\nmethods QUESTION QUESTION\n}", "recovery methods: QUESTION appears twice; remove one"},
		{global, "recovery {\nlink https://a.example/recover\n}", "recovery link: it has no {token}"},
		{global, "recovery {\nlink /recover#{token}\n}", "recovery link: write a URL"},
		{global, "recovery {\nlink https://{token}.a.example/\n}", "recovery link: the token is in the host's name"},
		{global, "recovery {\nlink \"https://a.example/my page#{token}\"\n}", "recovery link: it has a space or another character that no URL may have"},
		{global, "limits {\nfailures_per_address unlimited\n}", "limits failures_per_address: it can't be unlimited, because it limits how much can be guessed"},
		{global, "limits {\nlock_after unlimited\n}", "limits: lock_after: 'unlimited' is not possible here, because it limits how much can be guessed; choose a number"},
		{global, "password {\nmigrate webhook https://old.example.com {\nsecret whsec_c2VjcmV0IHNlY3JldA==\n}\n}\nhardened", "password migrate: with hardened"},
		{global, "password {\nmigrate webhook http://old.example.com {\nsecret whsec_c2VjcmV0IHNlY3JldA==\n}\n}", "password: migrate: anyone on the network path can read http"},
		{global, "password {\nmigrate webhook https://old.example.com {\nsecret whsec_c2VjcmV0IHNlY3JldA==\ntimeout 6s\n}\n}", "password migrate webhook: timeout: choose one of at most 5s"},
		{company, "mail_color teal", `company acme: mail_color: "teal" is not a color that all mail programs read; write it in quotes and six hex digits, as in "#336699", at Caddyfile:6`},
		{company, "sms_origin https://app.example.com", `company acme: sms_origin: "https://app.example.com" is not the name of a host; write it without https://, port and path, in lower case and ASCII (xn--…), as in app.example.com, at Caddyfile:6`},
		{company, "sms_origin app", `company acme: sms_origin: "app" is not the name of a host; write it without https://, port and path, in lower case and ASCII (xn--…), as in app.example.com, at Caddyfile:6`},
		{company, "sms_origin App.example.com", `company acme: sms_origin: "App.example.com" is not the name of a host; write it without https://, port and path, in lower case and ASCII (xn--…), as in app.example.com, at Caddyfile:6`},
		{company, "support {env.MNEMOGATE_TEST_KEY}", "company acme: support: placeholders are not replaced here; write it as users read it, at Caddyfile:6"},
		{company, "notices notice.new_device", `company acme: notices: "notice.new_device" is unknown; choose from password_changed, email_changed`},
		{company, "notices off email_changed", `company acme: notices: "off" is unknown`},
		{company, "notices new_device new_device", "company acme: notices: new_device appears twice; remove one"},
		{company, "notices", "company acme: notices: <type> is missing; write notices <type>...|off"},
		{company, "phone_region lt", `company acme: phone_region: "lt" is not a region that has phone numbers; write the two letters of ISO 3166-1 in upper case, as in LT, at Caddyfile:6`},
		{company, "passkeys {\norigins https://example.com\n}", "company acme: passkeys: rp_id: it is missing; write the domain of the site, such as example.com, at Caddyfile:8"},
		{company, "passkeys {\nrp_id https://example.com\n}", `company acme: passkeys: rp_id: "https://example.com" is not a domain; write it without scheme, port and path, such as example.com, at Caddyfile:7`},
		{company, "passkeys {\nrp_id example.com\norigins http://localhost:3000\n}", `company acme: passkeys: origins: "http://localhost:3000": its domain is neither rp_id (example.com) nor below it; correct one of them, at Caddyfile:8`},
		{company, "passkeys example.com", "company acme: passkeys: wrong argument count; write passkeys [off] { ... }, at Caddyfile:6"},
		// Breached passwords
		{global, "password {\nbreached http://ranges.example.com\n}", "password breached: anyone on the network path can read http"},
		{global, "password {\nbreached https://ranges.example.com atlogin\n}", "password: breached: 'atlogin' is not one of the words at_login, require and insecure, at Caddyfile:4"},
		{global, "password {\nbreached testdata/texts\n}", "password breached: testdata/texts has no range files such as 00000.txt"},
		{global, "password {\nbreached off require\n}", "password breached: it is off; remove the words after it"},
		{global, "password {\nbreached\n}", "password: breached: <url>|<dir>|off is missing; write breached <url>|<dir>|off [at_login] [require] [insecure]"},
		{global, "password {\nbreached https://ranges.example.com/range at_login at_login\n}", "password: breached: it has at_login twice; remove one, at Caddyfile:4"},
		// Devices
		{company, "devices", "company acme: devices: <duration>|off is missing; write devices <duration>|off [skip_second_factor]"},
		{company, "devices 90d skip", "company acme: devices: wrong argument count"},
		{company, "devices forever", "company acme: devices: 'forever' is not a duration like 5m"},
		{company, "devices 9000d", "company acme: devices: 9000d is out of range"},
		{company, "devices 90d\nhardened", "company acme: devices: with hardened, a device would show that an account exists"},
		// Modules
		{global, "store sqlite a.db b.db", "store: wrong argument count"},
		{global, "store sqlite {env.MNEMOGATE_TEST_EMPTY}", "store: loading module 'sqlite': provision mnemogate.accounts.sqlite: store sqlite: {env.MNEMOGATE_TEST_EMPTY} is empty"},
		{global, "sms pigeon", "sms: there is no module 'pigeon'; this Caddy has: capture, log, webhook"},
		{global, "sms webhook https://sms.example.com", "sms: secret: the gateway needs a key to know these requests by; add one, at Caddyfile:3"},
		{app, "company acme {\napi_key k\ncaptcha turnstile {env.MNEMOGATE_TEST_UNSET}\n}", "company acme: captcha: loading module 'turnstile': provision mnemogate.captcha.turnstile: captcha turnstile: secret: {env.MNEMOGATE_TEST_UNSET} is not set"},
		{company, "oauth", "company acme: oauth: <1-5> is missing; write oauth <1-5> <module>"},
		{company, "oauth 3", "company acme: oauth 3: the name of a module is missing; this Caddy has: oauth2, oidc"},
		{company, "oauth 6 oidc https://a.example", "company acme: oauth: '6' is not a provider id; choose 1 to 5"},
		{company, "oauth 03 oidc https://a.example", "company acme: oauth: '03' is not a provider id"},
		{company, "oauth 3 oidc https://a.example {\nclient_id a\nclient_secret b\nredirect_uri https://a.example\n}\noauth 3 oidc https://b.example {\nclient_id a\nclient_secret b\nredirect_uri https://a.example\n}", "company acme: oauth 3: already specified; remove one"},
		{global, "events webhook", "events: <url> is missing; write webhook <url> [insecure]"},
		{global, "events webhook https://backend.example.com/hook", "events: secret: the gateway needs a key"},
		{global, "events webhook http://backend.example.com/hook {\nsecret {env.MNEMOGATE_TEST_SECRET}\n}", "events: anyone on the network path can read http; write https"},
		{global, "events webhook https://backend.example.com/hook {\nsecret {env.MNEMOGATE_TEST_SECRET}\ntypes account.changed account.renamed\n}", `events: types: there is no event "account.renamed"; choose from account.created, account.changed`},
		{global, "events webhook https://backend.example.com/hook {\nsecret {env.MNEMOGATE_TEST_SECRET}\ntypes account.changed account.changed\n}", "events: types: account.changed already specified"},
		{global, "events webhook https://backend.example.com/hook {\nsecret {env.MNEMOGATE_TEST_SECRET}\nretry 1h\n}", "events: retry: choose 100ms to 10m, at Caddyfile:5"},
		{global, "events off please", "events: wrong argument count"},
		{global, "events webhook https://backend.example.com/hook {\nsecret {env.MNEMOGATE_TEST_EMPTY}\n}", "events webhook: secret: {env.MNEMOGATE_TEST_EMPTY} is empty"},
		{oidc, "scope profile", "oauth oidc: scope: openid is missing, without which there is no ID token; add it"},
		{oidc, `scope openid "email profile"`, `oauth oidc: scope: "email profile" is not a scope; write each one separately`},
		{oidc, "prompt none", `oauth oidc: prompt: "none" shows users nothing to log in with; write login, consent or select_account`},
		{company, "oauth 3 oidc https://appleid.apple.com {\nclient_id a\nclient_secret b\nredirect_uri https://a.example\nlink_verified_email\n}", "company acme: oauth 3: response_mode is missing, without which Apple tells no name or email; add response_mode form_post, at Caddyfile:"},
		{company, "oauth 3 oidc https://a.example {\nresponse_mode query\n}", "company acme: oauth 3: response_mode: it can only be form_post; leave it out if the provider can answer in the query, at Caddyfile:"},
		{company, "oauth 3 oidc https://a.example {\nauth_style auto\n}", `company acme: oauth 3: auth_style: "auto" is neither basic nor post, at Caddyfile:`},
		{oidc, "authorize_url https://a.example", "oauth 3: unrecognized subdirective 'authorize_url'"},
		{oauth2, "authorize_url http://b.example/x", "oauth 3: authorize_url: anyone on the network path can read http"},
		{oauth2, "authorize_url https://b.example/#x", "oauth oauth2: authorize_url: leave out what follows #"},
		{oauth2, "authorize_url javascript:alert(1)", "oauth 3: authorize_url:"},
		{app, "company acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha siteverify https://a.example b {\nsite_key c\n}\n}", "company acme: captcha: site_key: it does not belong here: write it into captcha turnstile|hcaptcha|recaptcha <secret> { ... }"},
		{app, "company acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha turnstile b {\nsite_key\n}\n}", "company acme: captcha: site_key: <key> is missing; write site_key <key>"},
		{app, "company acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha turnstile b {\nsite_key {env.MNEMOGATE_TEST_EMPTY}\n}\n}", "captcha turnstile: site_key: {env.MNEMOGATE_TEST_EMPTY}"},
		// Login pages
		{whole, "{\nmnemogate {\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha off\n}\ncompany umbra {\napi_key key-of-umbra\ncaptcha off\n}\n}\n}\n\nhttp:// {\nmnemogate {\nlogin_page\n}\nreverse_proxy localhost:9000\n}", "login_page: this site serves several companies; name those that have the page, as in login_page acme umbra (the first is for paths that name no company)"},
		{whole, "{\nmnemogate {\ncompany c1 {\napi_key key-of-c1\ncaptcha off\n}\ncompany c2 {\napi_key key-of-c2\ncaptcha off\n}\ncompany c3 {\napi_key key-of-c3\ncaptcha off\n}\ncompany c4 {\napi_key key-of-c4\ncaptcha off\n}\n}\n}\n\nhttp:// {\nmnemogate {\nlogin_page\n}\nreverse_proxy localhost:9000\n}", "login_page: this site serves several companies; name those that have the page, as in login_page c1 c2 c3 (the first is for paths that name no company)"}, // there may be thousands
		{whole, "{\nmnemogate {\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\ncaptcha off\n}\ncompany umbra {\napi_key key-of-umbra\ncaptcha off\n}\n}\n}\n\nhttp:// {\nmnemogate {\ncompany acme\nlogin_page umbra\n}\nreverse_proxy localhost:9000\n}", `login_page: this site serves no company "umbra"; name one that it does`},
		{whole, "{\nmnemogate {\ncaptcha hcaptcha {env.MNEMOGATE_TEST_SECRET}\ncompany acme {\napi_key {env.MNEMOGATE_TEST_KEY}\n}\n}\n}\n\nhttp:// {\nmnemogate {\nlogin_page\n}\nreverse_proxy localhost:9000\n}", "login_page: the page can't show the captcha of company acme without a key; set site_key in the block of captcha hcaptcha"},
		// The accounts API
		{site, "mnemogate_accounts", "parsing caddyfile tokens for 'mnemogate_accounts': key is missing: without one nobody, or everybody, could manage accounts; add at least one, at Caddyfile:11"},
		{site, "mnemogate_accounts /x*", "key is missing"},
		{site, "mnemogate_accounts a b", "wrong argument count"},
		{accounts, "lock shop", "unrecognized subdirective"},
		{accounts, `key "a shop" sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857`, "key a shop: its name must be 1 to 64 letters, digits, dots, _ and -, at Caddyfile:12"},
		{accounts, "key shop sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857\nkey shop {env.MNEMOGATE_TEST_SECRET}", "key shop: already specified; remove one, at Caddyfile:13"},
		{accounts, "key shop sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857\nkey crm sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857", "mnemogate_accounts: key shop: key crm is the same; give each its own"},
		{accounts, "key shop {env.MNEMOGATE_TEST_EMPTY}", "mnemogate_accounts: key shop: {env.MNEMOGATE_TEST_EMPTY} is empty; give the variable its value"},
		{accounts, "key shop sha256:1234", "key shop: sha256: must be followed by 64 hex digits, at Caddyfile:12"},
		{key, "may read delete", `key shop: may: "delete" is unknown; choose from read, write, create, sessions, introspect, import, export, messages, issue and act, at Caddyfile:`},
		{key, "may read read", "key shop: may: read appears twice; remove one"},
		{key, "company umbrella", "mnemogate_accounts: key shop: company: umbrella is not configured; add it, or leave it out"},
		{key, "role admin", "key shop: role: it does not belong here: write it into the directive mnemogate, in the block of a site"},
		{whole, "accounts.internal:8443 {\nmnemogate_accounts {\nkey shop sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857\n}\n}", "mnemogate_accounts: configure the companies in the global option mnemogate"},
		// Errors of a site are the app's, or of what the site needs of it
		{whole, "http:// {\nmnemogate\n}", "mnemogate: configure the companies in the global option mnemogate: app module mnemogate: module not configured, at Caddyfile:2"},
		{whole, "{\nmnemogate {\ncompany acme {\napi_key k\ncaptcha off\ntexts nowhere\n}\n}\n}\nhttp:// {\nmnemogate\n}", "loading mnemogate app module: provision mnemogate: company acme: texts: reading the directory of texts nowhere: open .: no such file or directory; correct the path, at Caddyfile:6"},
		{shared, "require_api_key", "require_api_key: company beta shares an API key with another, so a key does not say whose users may pass; give each company keys of its own, at Caddyfile:14"},
	} {
		dir := guesttest.Environment(t)
		config := strings.Replace(c.in, "OPTIONS", c.options, 1)
		_, err := adaptAndValidate(config)
		checkRefused(t, config, c.want, err)
		if entries, _ := os.ReadDir(dir); len(entries) > 0 {
			t.Errorf("%s: validating created %s", config, entries[0].Name())
		}
	}
	if _, err := adaptAndValidate(strings.Replace(shared, "OPTIONS", "", 1)); err != nil {
		t.Errorf("companies share a key, and no site needs it to tell them apart: %v", err)
	}
}
