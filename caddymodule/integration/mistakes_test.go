package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// handled returns a Caddyfile with options of the directive. The first one is on line 11.
func handled(options string) string {
	return "{\nmnemogate {\ncompany acme {\napi_key off\ncaptcha off\n}\n}\n}\nhttp:// {\nmnemogate {\n" + options + "\n}\n}"
}

// checkRefused checks that an error has these words, and ends with them if they are a line.
// It names one line at most, and no secret, and says that no company is configured only if
// that is what is wanted.
func checkRefused(t *testing.T, config, want string, err error) {
	t.Helper()
	switch has := strings.Contains; {
	case err == nil:
		t.Errorf("%s\n\tno error, want %q", config, want)
	case want == "" || !has(err.Error(), want) || endsInLine.MatchString(want) && !strings.HasSuffix(err.Error(), want):
		t.Errorf("%s\n\tgot %q, want it to contain %q", config, err, want)
	case strings.Count(err.Error(), ", at Caddyfile:") > 1 || has(err.Error(), guesttest.Secret):
		t.Errorf("%s\n\tthe error names several lines, or tells a secret: %q", config, err)
	case has(err.Error(), "configure the companies") != has(want, "configure the companies"):
		t.Errorf("%s\n\tthe error takes the app's error for none: %q", config, err)
	}
}

var endsInLine = regexp.MustCompile(`, at Caddyfile:\d+$`)

// Wrong uses of the directive's options are refused with their line.
func TestMistakesAreRefusedWithTheirLine(t *testing.T) {
	guesttest.Environment(t)
	texts := func(german string) string {
		dir := t.TempDir()
		writeFile(t, dir+"/de.json", german)
		return "login_page {\nlink de Impressum https://example.com/\ntexts " + dir + "\n}"
	}
	for options, want := range map[string]string{
		texts("no JSON"):                       "login_page: texts: de.json: ",
		texts(`{"login.headline": "Los"}`):     `login_page: texts: de.json: there is no text "login.headline"`,
		"forward":                              "forward: role|email|phone|session|auth_time|auth_methods|token is missing; write forward role|email|phone|session|auth_time|auth_methods|token..., at Caddyfile:11",
		"forward role role":                    "forward: it has role twice; remove one, at Caddyfile:11",
		"forward role\nforward email":          "forward already specified; remove one, at Caddyfile:12",
		"forward Role":                         `forward: "Role" is unknown; choose any of auth_methods, auth_time, email, phone, role, session, token, at Caddyfile:11`,
		"header X-Profile-Role\nforward role":  "forward: X-Profile-Role is header or company_header already; give that another name, at Caddyfile:12",
		"check":                                "check: <path> is missing; write check <path>, at Caddyfile:11",
		"check /a /b":                          "check: wrong argument count; write check <path>, with quotes around a value that has spaces, at Caddyfile:11",
		"check /check/*":                       `check: "/check/*" is not a path; begin with a slash, and write it without escapes, .. or // in it, at Caddyfile:11`,
		"check /acme/login":                    "check: mnemogate answers /acme/login already; choose another path, at Caddyfile:11",
		"check /up\nhealth /up":                "check: /up is the path of health; choose another, at Caddyfile:12",
		"check /up\npublic /up":                "check: public covers /up; choose a path that is not public, at Caddyfile:12",
		`assertion ""`:                         "assertion: name the application that it is for, as in assertion profile-api, at Caddyfile:11",
		"assertion app {\nttl 60s\nttl 30s\n}": "assertion: ttl already specified; remove one, at Caddyfile:13",
		"header X-Proof\nassertion app {\nheader x-proof\n}": "assertion: header: X-Proof is header or company_header already; choose another name, at Caddyfile:",
		"header X_Profile":                            `header: "X_profile" cannot be the name of a header here; use letters, digits and dashes, at Caddyfile:11`,
		"company_header X-Profile-Mnemocode":          "company_header: it must differ from header, at Caddyfile:11",
		"base_path api":                               `base_path: "api" must begin with a slash, not end with one, and need no escapes, at Caddyfile:11`,
		"base_path /api/":                             `base_path: "/api/" must begin with a slash, not end with one, and need no escapes, at Caddyfile:11`,
		"base_path /a/../b":                           `base_path: "/a/../b" must begin with a slash, not end with one, and need no escapes, at Caddyfile:11`,
		"base_path /%61":                              `base_path: "/%61" must begin with a slash, not end with one, and need no escapes, at Caddyfile:11`,
		"max_body 1GB":                                "max_body: it must be from 1KiB to 1MiB, at Caddyfile:11",
		"cors app.example.com":                        `cors: "app.example.com" is not an origin; write it as browsers do: scheme and host in lower case, as in https://app.example.com, at Caddyfile:11`,
		"cors https://App.example.com":                `cors: "https://App.example.com" is not an origin; write it as browsers do: scheme and host in lower case, as in https://app.example.com, at Caddyfile:11`,
		"cors https://app.example.com/":               `cors: "https://app.example.com/" is not an origin; write it as browsers do: scheme and host in lower case, as in https://app.example.com, at Caddyfile:11`,
		"max_body 0":                                  "max_body: '0' is not a size like 16KiB, at Caddyfile:11",
		"cors https://*.a.com":                        `cors: "https://*.a.com": wildcards and placeholders are not replaced here; write each origin, as in https://app.example.com, at Caddyfile:11`,
		"cors https://{env.HOST}":                     `cors: "https://{env.HOST}": wildcards and placeholders are not replaced here; write each origin, as in https://app.example.com, at Caddyfile:11`,
		"cors https://a.com https://a.com:443":        `cors: "https://a.com:443": browsers write it as https://a.com; write that, at Caddyfile:11`,
		"cors https://a.com:80 http://a.com:443":      "",
		"role admin":                                  "role: <path> is missing; write role <role> <path>..., at Caddyfile:11",
		`role "" /adm`:                                `role: "" is not a role; write the role before its paths, as in role admin /admin/*, at Caddyfile:11`,
		"role /admin/* /adm":                          `role: "/admin/*" is not a role; write the role before its paths, as in role admin /admin/*, at Caddyfile:11`,
		"role {env.ADMIN} /adm":                       "role: placeholders are not replaced here; write the role as the accounts have it, at Caddyfile:11",
		"role admin adm":                              `role: "adm" is not a path to match; begin with / or *, and write letters as they are read, without escapes, placeholders, .. or // in them, at Caddyfile:11`,
		"role admin /[a":                              `role: "/[a": syntax error in pattern; close the bracket, at Caddyfile:11`,
		"role admin /x /x":                            "role: admin has /x twice; remove one, at Caddyfile:11",
		"role admin /x\nrole editor /x":               "",
		"role admin /a /a.* /a/*":                     "",
		"role admin /y /x\nrole admin /x":             "role: admin has /x twice; remove one, at Caddyfile:12",
		"public health":                               `public: "health" is not a path to match; begin with / or *, and write letters as they are read, without escapes, placeholders, .. or // in them, at Caddyfile:11`,
		"public /docs/%20":                            `public: "/docs/%20" is not a path to match`,
		"public /docs/../x":                           `public: "/docs/../x" is not a path to match`,
		"public /docs//x":                             `public: "/docs//x" is not a path to match`,
		"public /docs;x":                              `public: "/docs;x" is not a path to match`,
		"public /docs/**":                             `public: "/docs/**": one star is enough; write /docs/* for everything below /docs, at Caddyfile:11`,
		"public {path}":                               `public: "{http.request.uri.path}" is not a path to match`,
		"company":                                     "company: <code> is missing; write company <code>..., at Caddyfile:11",
		"fresh 5m":                                    "fresh: <path> is missing; write fresh <duration> <path>..., at Caddyfile:11",
		"fresh soon /account/*":                       "fresh: 'soon' is not a duration like 5m, at Caddyfile:11",
		"fresh 5ms /account/*":                        "fresh: give a duration of at least 1s, as in fresh 5m /account/*, at Caddyfile:11",
		"mfa pay":                                     `mfa: "pay" is not a path to match`,
		"fresh 5m account":                            `fresh: "account" is not a path to match`,
		"health ready":                                `health: "ready" is not a path; begin with a slash, and write it without escapes, .. or // in it`,
		"health /acme/v2/auth/login":                  "health: /acme/v2/auth/login is a path of the auth API; choose another",
		`cookie "my cookie"`:                          `cookie: "my cookie" is not a name for a cookie; use letters, digits, dashes and underscores, at Caddyfile:11`,
		"cookie __host-session":                       `cookie: "__host-session": write the prefix as __Host-, followed by a name, at Caddyfile:11`,
		"cookie off":                                  "cookie: 'off' would be its name; write cookie alone to have one, or leave it out, at Caddyfile:11",
		"cookie a b":                                  "cookie: wrong argument count; write cookie [<name>], at Caddyfile:11",
		"login_page acme umbra":                       `login_page: this site serves no company "umbra"; name one that it does`,
		"login_page acme acme":                        `login_page: it names the company "acme" twice; remove one`,
		"login_page\nlogin_page acme":                 "login_page: there are several; name the companies of each, as in login_page acme, at Caddyfile:12",
		"login_page acme\nlogin_page acme":            `login_page: it names the company "acme" twice; remove one, at Caddyfile:12`,
		"login_page {\ntitle off\n}":                  "login_page: title: off leaves the logo alone, and there is none; set logo, too",
		"login_page {\ncolor_dark transparent\n}":     `login_page: color_dark: "transparent" is not a color that the page can use`,
		"login_page {\ncolour blue\n}":                "login_page: unrecognized subdirective 'colour': did you mean color?, at Caddyfile:12",
		"self_service soon":                           "self_service: 'soon' is not a duration like 5m, at Caddyfile:11",
		"self_service 25h":                            "self_service: choose 1s to 24h for how old a login may be for a change, at Caddyfile:11",
		"self_service 5m 10m":                         "self_service: wrong argument count; write self_service [<duration>] [mfa], at Caddyfile:11",
		"self_service mfa 10m":                        "self_service: wrong argument count; write self_service [<duration>] [mfa], at Caddyfile:11",
		"websocket_token on":                          "websocket_token: wrong argument count; write websocket_token, at Caddyfile:11",
		"login_page {\ncolor \"url(//elsewhere)\"\n}": `login_page: color: "url(//elsewhere)" is not a color that the page can use; write it in quotes, as "#336699", "rgb(51, 102, 153)" or "hsl(210, 50%, 40%)", or by its name in CSS`,
		"login_page {\nlogo testdata/minimal.caddyfiletest\n}":                                        "login_page: logo: testdata/minimal.caddyfiletest is not an image that browsers can show; use SVG, PNG, JPEG, WebP, GIF or ICO",
		"login_page {\ntexts testdata/blocklist\n}":                                                   "login_page: texts: testdata/blocklist is not a directory",
		"company umbrella {\napi_key k\n}":                                                            "company: here it only names companies: write their blocks into the global option mnemogate, in the block at the top of the Caddyfile, at Caddyfile:12",
		"api_key k":                                                                                   "api_key: it does not belong here: write it into the block of a company, company <code> { ... }, in the global option mnemogate, at Caddyfile:11",
		"header X-User\ncompany umbrella":                                                             `company: there is no company "umbrella"; name one that the global option mnemogate has, at Caddyfile:12`,
		"login_page {\nlink \"Imprint\" javascript:alert(1)\n}":                                       `login_page: link: "javascript:alert(1)" is not an address for a link; write https://…, mailto:…, tel:… or a path of this site, such as /imprint, at Caddyfile:12`,
		"login_page {\nlink \"Imprint\"\n}":                                                           "login_page: link: <url> is missing; write link [<language>] <text> <url> [support], at Caddyfile:12",
		"login_page {\nlink klingon \"qepHom\" /q\n}":                                                 `login_page: link: "klingon" is not a language tag; write one like de or pt-BR, at Caddyfile:12`,
		"login_page {\nlink pl \"Prywatność\" /p\n}":                                                  `login_page: link: the page has no texts in "pl", so nobody would see "Prywatność"; add pl.json to texts, or leave the language out`,
		"login_page {\nsignup \"Join\" /a\nsignup \"Register\" /b\n}":                                 "login_page: signup: there are two for the same language; remove one, or name its language before the text",
		"login_page {\nlogo_dark testdata/logo.svg\n}":                                                "login_page: logo_dark: there is no logo that it could replace; set logo, too",
		"login_page {\nfavicon testdata/style.css\n}":                                                 "login_page: favicon: testdata/style.css is not an image that browsers can show; use SVG, PNG, JPEG, WebP, GIF or ICO",
		"login_page {\nstyle testdata/none.css\n}":                                                    "login_page: style: open testdata/none.css: no such file or directory",
		"login_page acme {\nlogo testdata/logo.svg\n}\nlogin_page umbra {\nlogo testdata/none.svg\n}": "login_page 2: logo: open testdata/none.svg: no such file or directory; correct the path, at Caddyfile:15",
		"login_page {\ntitle {env.X}\n}":                                                              "login_page: title: placeholders are not replaced here; write it as users read it",
		"login_page {\nlink {env.X} /i\n}":                                                            "login_page: link: placeholders are not replaced here; write the text as users read it, at Caddyfile:12",
		"login_page {\nlink DE Impressum /i\nlink de-at Impressum /i\n}":                              "",
		"assertion {env.AUD}":                                                                         "assertion: placeholders are not replaced here; write the audience as the application checks it, at Caddyfile:11",
		"assertion app {\nissuer https://a.example/{env.TENANT}\n}":                                   "assertion: issuer: placeholders are not replaced here; write the URL as the application checks it, at Caddyfile:12",
		"assertion app {\nheader Set-Cookie\n}":                                                       "assertion: header: Set-Cookie has another meaning; choose another name, at Caddyfile:12",
		"assertion app {\nheader sec-websocket-protocol\n}":                                           "assertion: header: Sec-Websocket-Protocol has another meaning; choose another name, at Caddyfile:12",
		"assertion":     "assertion: <audience> is missing; write assertion <audience> { ... }, at Caddyfile:11",
		"assertion a b": "assertion: wrong argument count; write assertion <audience> { ... }, with quotes around a value that has spaces, at Caddyfile:11",
		"assertion app {\nissuer https://a.example\nttl 5s\n}": "assertion: ttl: choose 10s to 10m, at Caddyfile:13",
		"assertion app {\nttl 11m\n}":                          "assertion: ttl: choose 10s to 10m, at Caddyfile:12",
		"assertion app {\nheader X-Profile-Mnemocode\n}":       "assertion: header: X-Profile-Mnemocode is header or company_header already; choose another name, at Caddyfile:12",
		"assertion app {\nheader x-profile-role\n}":            "assertion: header: X-Profile-Role is the header of forward role; choose another name, at Caddyfile:12",
		"assertion app {\nissuer api.example.com\n}":           `assertion: issuer: "api.example.com" is not a URL; write one like https://api.example.com, at Caddyfile:12`,
		"assertion app {\naudience other\n}":                   "assertion: unrecognized subdirective 'audience'; choose any of header, issuer, key, ttl, at Caddyfile:12",
		"assertion app {\nkey {env.MNEMOGATE_TEST_KEY}\n}":     "assertion: key: key 1 of 1: it is not a private key in PEM; make one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256, and name its file as {file.PATH}, at Caddyfile:12",
		"assertion app {\nkey {env.NOT_SET}\n}":                "assertion: key: {env.NOT_SET} is not set; set the variable, also for caddy validate, at Caddyfile:12",
		`assertion app {
key "-----BEGIN PRIVATE KEY-----
MIG2AgEAMBAGByqGSM49AgEGBSuBBAAiBIGeMIGbAgEBBDC5Zv/Q8aPyH8CDrrH0
/6hLJxiihI/Aux+H8rUjf9Qzom7hKD/95RI4OpkQBD1ZY3OhZANiAAQlk6H+QNbk
Z8Jdj1DbddnVXWFOa3qAuzwR0OnRYSH9RX/2+g5CeEBHGmey5O263jfGVvg836u2
UqW7GYZ8e2wh/gdd9QC6fvwX9vg4ZA5yQIesCrwFFTsKTA39E76+zgU=
-----END PRIVATE KEY-----"
}`: "assertion: key: key 1 of 1: the private key is not on the curve P-256, which ES256 needs; make one with openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256, at Caddyfile:12",
		`assertion app {
key "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGEL2G/j4uV96wQr1
beSFtHZscr8WKq4Iytgs4Cpg/qehRANCAAS2YuLMzNaE3TKO78WNkjXAM6Rc432g
nnuqsS8Ba2qBmq7Z4IVsewAIUMYBcG3JYoboGwlPB113MUCVZE37H5b5
-----END PRIVATE KEY-----" "-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgGEL2G/j4uV96wQr1
beSFtHZscr8WKq4Iytgs4Cpg/qehRANCAAS2YuLMzNaE3TKO78WNkjXAM6Rc432g
nnuqsS8Ba2qBmq7Z4IVsewAIUMYBcG3JYoboGwlPB113MUCVZE37H5b5
-----END PRIVATE KEY-----"
}`: "assertion: key: key 2 of 2 appears twice; remove one, at Caddyfile:12",
		`assertion app {
key "-----BEGIN EC PRIVATE KEY-----
MHcCAQEE
-----END EC PRIVATE KEY-----"
}`: "assertion: key: key 1 of 1: the private key can't be read: its PEM is damaged or holds another kind of key; use a key on the curve P-256, at Caddyfile:12",
	} {
		t.Run(options, func(t *testing.T) {
			_, err := adaptAndValidate(handled(options))
			if want != "" {
				checkRefused(t, options, want, err)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	for option, names := range map[string]string{
		"header":         "Authorization X-Forwarded-For Location Range X-Forwarded-Uri X-Forwarded-Host",
		"company_header": "Te Accept User-Agent X-Forwarded-Method Www-Authenticate",
	} {
		for _, name := range strings.Fields(names) {
			options := option + " " + strings.ToLower(name)
			_, err := adaptAndValidate(handled(options))
			checkRefused(t, options, option+": "+name+" has another meaning; choose another name, at Caddyfile:11", err)
		}
	}
}

// What operators get wrong most often: each error names the line, the cause and the next
// step, and no secret.
func TestMistakesAreExplained(t *testing.T) {
	guesttest.Environment(t)
	t.Chdir(t.TempDir())
	t.Setenv("EMPTY", "")
	const global, company, snippet, of = "1", "2", "2, after a snippet", "it does not belong here: write it into "
	begins := map[string]string{global: "{\nmnemogate {\n\n", company: "{\nmnemogate {\ncompany acme {\n"}
	begins[snippet] = "(key) {\napi_key {args[0]}\n}\n" + begins[company]
	for _, c := range []struct{ in, options, want string }{ // the first option is on line 4
		{company, "captha off", "unrecognized subdirective 'captha': did you mean captcha?, at Caddyfile:4"},
		{company, "API-KEY x", "unrecognized subdirective 'API-KEY': did you mean api_key?, at Caddyfile:4"},
		{company, "api_key: x", "unrecognized subdirective 'api_key:': did you mean api_key?, at Caddyfile:4"},
		{company, "otp {\ndigits 6\n}", "otp: unrecognized subdirective 'digits'; choose any of fixed, length, renewals, ttl, at Caddyfile:5"},
		{company, "captcha off {\nx\n}", "captcha: unrecognized subdirective 'x'; nothing can be set here, so remove the block, at Caddyfile:5"},
		{company, "api_key = " + guesttest.Secret, "api_key: remove the =; write api_key <key>...|off, and double quotes around a value that has spaces, at Caddyfile:4"},
		{company, "api_key=" + guesttest.Secret, "api_key: write a space in place of the =, at Caddyfile:4"},
		{company, "name 'Acme Ltd'", "name: remove the '; write name <text>, and double quotes around a value that has spaces, at Caddyfile:4"},
		{company, "name Acme Ltd", "name: wrong argument count; write name <text>, with quotes around a value that has spaces, at Caddyfile:4"},
		{company, "session {\nidle 1h }", "session: idle: write the } on a line of its own, at Caddyfile:5"},
		{company, "session idle 1h", "session: wrong argument count; write session { ... }, at Caddyfile:4"},
		{company, "hardened on", "hardened: wrong argument count; write hardened [off], at Caddyfile:4"},
		{company, "api_key {$EMPTY}", "api_key: <key> is missing; write api_key <key>...|off, and set the variable EMPTY, which is empty, at Caddyfile:4"},
		{snippet, "import key \"\"", "api_key: the value is empty; write api_key <key>...|off, at Caddyfile:2 import chain ['Caddyfile:7 (import key)']"},
		{company, "api_key \"{$EMPTY}\"", "api_key: the value is empty; write api_key <key>...|off, and set the variable EMPTY, which is empty, at Caddyfile:4"},
		{company, "limits {\nsms_per_company {$EMPTY}/24h\n}", "limits: sms_per_company: '/24h' is not a rate; write a number and a time, as in 5/10m, and set the variable EMPTY, which is empty, at Caddyfile:5"},
		{company, "sms webhook {$EMPTY:}", "sms: <url> is missing; write webhook <url> [insecure], and set the variable EMPTY, which is empty, at Caddyfile:4"},
		{global, "store sqlite {$EMPTY}", "store: <file> is missing; write sqlite [<file>], and set the variable EMPTY, which is empty, at Caddyfile:4"},
		{global, "store sqlite {\nx\n} # {$EMPTY}", "store: unrecognized subdirective 'x'"},
		{company, "disclaimer terms {$EMPTY} {\ntitle Terms\n}", "disclaimer: <version> is missing; write disclaimer <code> [<version>] { ... }, and set the variable EMPTY, which is empty, at Caddyfile:4"},
		{company, "captcha pow {$EMPTY} # x", "captcha: <bits> is missing; write pow [<bits>], and set the variable EMPTY, which is empty, at Caddyfile:4"},
		{company, "password {\nregex ^{$EMPTY}[a-z]+$\nx\n}", "password: unrecognized subdirective 'x'"},
		{company, "support #help", "support: <text>|off is missing; write support <text>|off, with the value in quotes, because # begins a comment, at Caddyfile:4"},
		{company, "support # help", "support: <text>|off is missing; write support <text>|off, at Caddyfile:4"},
		{company, "captcha turnstile", "captcha: <secret> is missing; write turnstile <secret>, at Caddyfile:4"},
		{company, "captcha turnstile s\nsite_key k", "site_key: " + of + "captcha turnstile|hcaptcha|recaptcha <secret> { ... }, at Caddyfile:5"},
		{company, "turnstile s", "turnstile: it belongs to another option: write captcha turnstile, at Caddyfile:4"},
		{company, "oauth 1 oidc", "oauth 1: <issuer> is missing; write oidc <issuer> [insecure], at Caddyfile:4"},
		{company, "account a {\nidentity 1\n}", "account a: identity: <subject> is missing; write identity <1-5> <subject>, at Caddyfile:5"},
		{company, "password {\nregex \"\"\n}", "password: regex: the value is empty; write regex <re2> [<description>], at Caddyfile:5"},
		{company, "account a {\nquestion Cat? \"\"\n}", "account a: question: the value is empty; write question <text> <answer>, at Caddyfile:5"},
		{company, "account \"\" {\n}", "account: the value is empty; write account <profile_mnemocode> { ... }, at Caddyfile:4"},
		{company, "mail log {\nname a b\n}", "mail: name: wrong argument count; write name <name>, with quotes around a value that has spaces, at Caddyfile:5"},
		{company, "sms webhook https://h/ {\nsecret k\ncountries\n}", "sms: countries: <prefix> is missing; write countries <prefix>..., at Caddyfile:6"},
		{company, "api_key off\ncaptcha off\nsms log\nsms webhook https://h/ {\nsecret {env.EMPTY}\n}", "sms 2: loading module 'webhook': provision mnemogate.sms.webhook: sms webhook: secret: {env.EMPTY} is empty; give the variable its value, at Caddyfile:8"},
		{company, "api_key off\ncaptcha off\nmail webhook https://h/ {\nsecret k\nheader A a\nheader B {env.EMPTY}\n}", "mail: loading module 'webhook': provision mnemogate.mail.webhook: mail webhook: header B: {env.EMPTY} is empty; give the variable its value, at Caddyfile:9"},
		{global, "store sqlite x {\nmax_conns 3\n}", "store: max_conns: " + of + "mail smtp <host:port> { ... }, or into the block of a webhook, or into store postgres <dsn> { ... }, at Caddyfile:5"},
		{global, "sessions redis redis://127.0.0.1\nwait_replicas 1", "wait_replicas: " + of + "sessions redis <url>... { ... }, at Caddyfile:5"},
		{company, "idle 1h", "idle: " + of + "session { ... }, at Caddyfile:4"},
		{company, "session {\nlock_after 5\n}", "session: lock_after: " + of + "limits { ... }, at Caddyfile:5"},
		{company, "title Acme", "title: " + of + "login_page { ... }, at Caddyfile:4"},
		{company, "from a@example.com", "from: " + of + "mail smtp <host:port> { ... }, at Caddyfile:4"},
		{company, "cache 5000", "cache: " + of + "the global option mnemogate, in the block at the top of the Caddyfile, at Caddyfile:4"},
		{company, "api_key off\ncaptcha off\ntexts texts", "texts: reading the directory of texts texts: open .: no such file or directory; correct the path, at Caddyfile:6"},
		{company, "api_key %ACME_KEY%", "api_key: it looks like a shell variable, which Caddy does not replace; write {env.NAME} for the value of NAME, at Caddyfile:4"},
		{global, "api_key x", "api_key: " + of + "the block of a company, company <code> { ... }, in the global option mnemogate, at Caddyfile:4"},
		{global, "cookie", "cookie: " + of + "the directive mnemogate, in the block of a site, at Caddyfile:4"},
		{global, "trusted_proxies private_ranges", "trusted_proxies: " + of + "the global option servers { ... }, in the block at the top of the Caddyfile, at Caddyfile:4"},
		{global, "reverse_proxy localhost", "reverse_proxy: it is a directive of Caddy: write it into a site, after the directive mnemogate, at Caddyfile:4"},
		{global, "redis rediss://r", "redis: it belongs to another option: write sessions redis, at Caddyfile:4"},
		{global, "postgres dsn", "postgres: it belongs to another option: write store postgres, at Caddyfile:4"},
		{global, "store postgres", "store: <dsn> is missing; write postgres <dsn>, at Caddyfile:4"},
		{global, "company {\n}", "company: <code> is missing; write company <code> { ... }, at Caddyfile:4"},
	} {
		config := begins[c.in] + c.options + strings.Repeat("\n}", strings.Count(begins[c.in], "{")-strings.Count(begins[c.in], "}"))
		writeFile(t, "Caddyfile", config)
		_, err := adaptAndValidate(config)
		checkRefused(t, config, strings.Repeat("company acme: ", strings.Count(c.in, company))+c.want, err)
	}
}

// JSON has no lines, but the same mistakes are refused, by the name of the option.
func TestMistakesInJSONAreRefused(t *testing.T) {
	t.Parallel()
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(handled("")), nil)
	must(t, err)
	const handler = `"handler":"mnemogate"`
	if strings.Count(string(adapted), handler) != 1 {
		t.Fatalf("%s", adapted)
	}
	check := func(with, want string) {
		t.Helper()
		err := validate([]byte(strings.Replace(string(adapted), handler, with, 1)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n\tgot  %v\n\twant %s", with, err, want)
		}
	}
	for options, want := range map[string]string{
		`"companies":[]`:                                  "company: the list is empty; name a company, or leave it out to serve all",
		`"role":[{"role":"admin"}]`:                       "role: name at least one path",
		`"login_page":{"title":"A"}`:                      "",
		`"login_page":{"titel":"A"}`:                      `unknown field "titel"`,
		`"login_page":[null],"self_service":600000000000`: "",
		`"assertion":{"audience":"app","ttl":60}`:         "assertion: ttl: choose 10s to 10m",
		`"assertion":{"audience":"app","keys":[]}`:        "assertion: key: the list is empty; add a key, or leave it out to use those of the store",
		`"cookie":"off"`:                                  "cookie: 'off' would be its name; write cookie alone to have one, or leave it out",
	} {
		check(handler+","+options, want)
	}
	const key = `"handler":"mnemogate_accounts","keys":{"shop":{"keys":["` + testKey + `"],%s}}`
	for options, want := range map[string]string{
		`"companies":["acme"],"may":["read"]`: "",
		`"companies":[]`:                      "key shop: companies: the list is empty; name a company, or leave it out to allow all",
		`"may":[]`:                            "key shop: may: the list is empty; name a right, or leave it out to allow read",
	} {
		check(fmt.Sprintf(key, options), want)
	}
}
