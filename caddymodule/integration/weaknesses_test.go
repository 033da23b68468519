package integration

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A weakSender is a third-party gateway that does not exist anywhere.
type weakSender struct{}

func init() {
	if os.Getenv("MNEMOGATE_TEST_CADDY") != "" { // only in the Caddy under test
		caddy.RegisterModule(new(weakSender))
	}
}

func (*weakSender) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.sms.weak", New: func() caddy.Module { return new(weakSender) }}
}

func (*weakSender) UnmarshalCaddyfile(d *caddyfile.Dispenser) error { d.Next(); return nil }

func (*weakSender) Send(context.Context, message.Message) error { return nil }

func (*weakSender) Endpoint() string { return "127.0.0.1:1" }

func (*weakSender) Weaknesses() []guest.Weakness {
	return []guest.Weakness{{Message: "pigeons carry the codes", Advice: "use a gateway without feathers"}}
}

// Every company and every module reports its own weaknesses, third-party modules too.
// They appear in the log at each start and in the doctor's findings. Those of inherited
// options are reported once, except for limits: a company may override them.
func TestWeaknessesAreToldAtEachStartAndByDoctor(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{env: []string{"MNEMOGATE_TEST_SHORT_KEY=elevenchars"}, global: strings.Replace(realHashing, "argon2id", "regex [[:digit:]]\nargon2id", 1) + "\nlimits {\nsms_per_address unlimited\n}",
		handler: "login_page acme {\ncolor \"#111111\"\n}",
		company: "name \"Žemaitijos šilumos tinklai\"\ncaptcha static tea-time\nsms weak\noauth 3 oauth2 {\nauthorize_url http://127.0.0.1:2/a\ntoken_url http://127.0.0.1:2/t\nuserinfo_url http://127.0.0.1:2/u\nsubject id\nclient_id x\nclient_secret x\nredirect_uri https://app.example.com/callback\n}\nlimits {\nsms_per_company 2000/24h\nlogins_per_address unlimited\n}\npassword {\nregex `(?i)[a-z]`\n}\nsession {\nidle 366d insecure\ntemporary 1m insecure\n}",
		more: "company umbrella {\nname \"Ümbrėlla and Company\"\nsms_origin app.umbrella.example\napi_key off\ncaptcha off\nmail log\nsms webhook http://gateway.invalid insecure {\nsecret whsec_c2VjcmV0\ncountries +370 +3712\n}\nlimits {\nsms_countries +3706 +371 +372\nlock_after 50\ndisable_after 49\n}\notp {\nfixed 123456 +37060012345\n}\nrecovery {\nlink https://a.example/?{token}\n}\n}\n" +
			"company zeta {\naccount zoe@example.com\nnotices new_device\napi_key {env.MNEMOGATE_TEST_SHORT_KEY} only-to-try-it-0001 " + testKey + "\ncaptcha off\nlimits {\nsms_per_address 30/1h\nsms_per_company 2000/24h\n}\nrecovery {\nmethods off\n}\nmail webhook http://127.0.0.1:1 {\nsecret c2VjcmV0\n}\n}"})
	doctor := s.cli("", "doctor").out
	for _, weak := range []struct{ directive, company, message, advice string }{
		{"sms", "acme", "pigeons carry the codes", "use a gateway without feathers"},
		{"oauth 3", "acme", "with neither a nonce nor PKCE, anyone who gets hold of a code of 127.0.0.1 can log in", "add require_pkce"},
		{"login_page", "acme", "the button of provider 3 fails", "list https://<host>/acme/login as a redirect_uri"},
		{"login_page", "", "in dark mode, #111111 has a contrast of only 1.2 to 1 to the card", "set color_dark"},
		{"password regex", "", "JavaScript can't read [:digit:]", "[A-Za-z] for (?i)[a-z]"},
		{"password regex", "acme", "JavaScript can't read (?i)", "[A-Za-z] for (?i)[a-z]"},
		{"password regex", "", "it refuses even 64 small letters and spaces", "raise min_length"},
		{"password regex", "acme", "it refuses even 64 digits", "raise min_length"},
		{"password min_length", "acme", "passwords of 8 characters can be all that protects an account", "set min_length 15"},
		{"recovery methods", "acme", "QUESTION is among them", "leave QUESTION out"},
		{"captcha", "acme", "anybody who knows the response passes", "choose turnstile"},
		{"insecure", "acme", "beyond what standards allow: session.idle", "see what is refused"},
		{"session idle", "acme", "it is longer than lifetime, which ends a session first", "shorten idle"},
		{"otp ttl", "acme", "it is longer than session temporary, with which the code of a login ends", "shorten ttl"},
		{"limits lock_after", "umbrella", "it is above disable_after, so passwords are disabled before they are locked", "lower lock_after"},
		{"account zoe@example.com", "zeta", "nobody can log in to it", "add one of them"},
		{"limits", "acme", "unlimited: logins_per_address, sms_per_address", "as high as your users need"},
		{"limits", "umbrella", "unlimited: sms_per_address", "as high as your users need"},
		{"recovery", "zeta", "no method is possible", "name PHONE or MAIL"},
		{"notices", "zeta", "new_device is never sent", "add devices 90d"},
		{"api_key", "umbrella", "anyone may call the auth routes", "set one"},
		{"captcha", "umbrella", "only rate limits and locks slow down programs that guess", "choose turnstile"},
		{"api_key", "zeta", "it has fewer than 12 characters", "generate a random one"},
		{"api_key", "zeta", "it is a key of the examples", "generate a random one"},
		{"api_key", "zeta", "company acme has the same", "give each company keys of its own"},
		{"mail", "zeta", "the secret has no whsec_ before it, so its characters are the key", "the base64 of the key"},
		{"mail", "umbrella", "links go to the log", "configure mail smtp"},
		{"sms", "acme", "the longest SMS with a code takes", "shorten the name"},
		{"sms", "umbrella", "the secret: it has fewer than 24 bytes", "generate a random one"},
		{"sms_origin", "umbrella", "the longest SMS with a code takes", "shorten the name"},
		{"sms", "umbrella", "anyone on the network path to gateway.invalid can read", "remove the word insecure"},
		{"otp fixed", "umbrella", "anybody who knows the code needs no SMS to +37060012345", "when the review or test is over"},
		{"limits sms_countries", "umbrella", "no gateway serves +372, so its phones get no SMS", "add it to countries of an sms gateway"},
		{"limits sms_per_company", "umbrella", "strangers who pump SMS can run up any bill", "what your busiest hour needs"},
		{"recovery link", "umbrella", "the token is not in the fragment", "behind #"},
	} {
		warned, company, has := false, `"company":"`+weak.company+`"`, true
		if weak.company == "" {
			company, has = `"company":`, false
		}
		for line := range strings.Lines(s.log()) {
			warned = warned || strings.Contains(line, `"warn"`) && strings.Contains(line, company) == has &&
				strings.Contains(line, `"msg":"`+weak.directive+": ") && strings.Contains(line, `"directive":"`+weak.directive+`"`) && strings.Contains(line, weak.message) && strings.Contains(line, weak.advice)
		}
		if !warned {
			t.Errorf("%s %s: the log does not say %q", weak.company, weak.directive, weak.message)
		}
		told := false
		for line := range strings.Lines(doctor) {
			told = told || strings.HasPrefix(line, "warning") && strings.Contains(line, strings.TrimPrefix(weak.company+": "+weak.directive, ": ")) && strings.Contains(line, weak.message)
		}
		if !told || !strings.Contains(doctor, weak.advice) {
			t.Errorf("%s %s: doctor does not say %q", weak.company, weak.directive, weak.message)
		}
	}
	if strings.Contains(doctor, "no gateway serves +3706") || strings.Contains(doctor, "no gateway serves +371") {
		t.Error("doctor warns of phones that a gateway serves")
	}
	if strings.Contains(doctor, "acme: limits sms_per_company") || strings.Contains(doctor, "zeta: limits ") {
		t.Error("doctor warns of a budget that is limited")
	}
	if strings.Contains(doctor, "session.temporary") || strings.Contains(s.log(), "session.temporary") {
		t.Error("it warns of the word insecure where no standard forbids the value")
	}
	for _, secret := range []string{"elevenchars", "tea-time", "123456 "} {
		if strings.Contains(s.log(), secret) || strings.Contains(doctor, secret) {
			t.Errorf("%q is told", secret)
		}
	}
	if !strings.Contains(doctor, "127.0.0.1:1 can't be reached") {
		t.Error("doctor does not knock at the gateway")
	}
}

// Accounts that nobody can log in to are reported: those of companies that were
// removed from the configuration, and those whose required second factor is not
// possible.
func TestAccountsThatNobodyCanLogInToAreTold(t *testing.T) {
	t.Parallel()
	account := func(name, more string) string { return "account " + name + " {\nlogin " + name + "\n" + more + "\n}\n" }
	umbrella := "company umbrella {\napi_key off\ncaptcha off\n" + account("zoe", "second_factor") + account("zach", "") + "}\n"
	acme := "captcha off\nsecond_factor required\n" + account("alice", "") + account("bob", "") + account("carol", "phone +37060012345") + account("dave", "identity 1 d")
	s := startSite(t, siteConfig{company: acme, more: umbrella})
	ask := func() string { return strings.Join(strings.Fields(s.cli("", "doctor").out), " ") }
	doctor := ask()
	for _, want := range []string{
		"acme: second_factor accounts that can't log in, since they have neither a phone for the code nor an authenticator app nor backup codes: 2, at ",
		"umbrella: second_factor accounts that can't log in, since they have neither a phone for the code nor an authenticator app nor backup codes: 1, at ",
		"--status active --company umbrella' lists them, with those that need no second factor",
		"one without a password needs a phone",
	} {
		if !strings.Contains(doctor, want) {
			t.Errorf("doctor does not say %q:\n%s", want, doctor)
		}
	}
	if strings.Contains(s.log()+doctor, "nobody can log in to them") {
		t.Error("a company is said to have left that has not")
	}
	must(t, s.reload(siteConfig{company: acme}))
	if doctor := ask(); !strings.Contains(doctor, "umbrella: company it has accounts and is not configured: nobody can log in to them") || !strings.Contains(doctor, "company rename umbrella <new code>") {
		t.Errorf("doctor does not say that umbrella is gone:\n%s", doctor)
	}
	s.eventually("a warning of the company that left", func() bool {
		return strings.Contains(s.log(), `"msg":"company: it has accounts and is not configured: nobody can log in to them","directive":"company"`) && strings.Contains(s.log(), `"company":"umbrella"`)
	})
}

// Keys of the accounts API grant more than any others. Their weaknesses are reported
// like all others.
func TestWeakKeysOfTheAccountsAPIAreTold(t *testing.T) {
	t.Parallel()
	const shared = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857"
	port := fmt.Sprint(storetest.FreePorts(t, 1)[0])
	s := startSite(t, siteConfig{
		env:     []string{"MNEMOGATE_TEST_SHORT_KEY=elevenchars"},
		company: "captcha off",
		site: "mnemogate_accounts {\nkey short {env.MNEMOGATE_TEST_SHORT_KEY}\nkey of_acme " + testKey + "\nkey one " + shared + "\nkey good sha256:" +
			strings.Repeat("0a", 32) + "\n}\n}\n" +
			"http://accounts.test:" + port + " {\nmnemogate_accounts {\nkey other " + shared + "\n}\n}\n" +
			"http:// {\nbind unix/{env.HOME}/a.sock\nmnemogate_accounts {\nkey one " + shared + "\n}\n",
	})
	doctor := s.cli("", "doctor").out
	weak := 0
	for _, w := range []struct{ directive, message, advice string }{
		{"mnemogate_accounts key short", "it has fewer than 12 characters", "generate a random one"},
		{"mnemogate_accounts key of_acme", "it is an API key of company acme, too", "give backends keys of their own"},
		{"mnemogate_accounts key of_acme", "the key stands in the configuration", "its sha256:<hex>"},
		{"mnemogate_accounts key o", "of another site is the same", "give each its own"},
		{"mnemogate_accounts", "a site of it is plain http", "bind it to 127.0.0.1"},
		{"mnemogate_accounts", "its site is on a Unix socket", "write trusted_proxies_unix"},
	} {
		if !strings.Contains(s.log(), `"msg":"`+w.directive) || !strings.Contains(s.log(), w.message) {
			t.Errorf("the log does not say %q", w.message)
		}
		if !strings.Contains(doctor, w.directive) || !strings.Contains(doctor, w.message) || !strings.Contains(doctor, w.advice) {
			t.Errorf("doctor does not say %q", w.message)
		}
	}
	for line := range strings.Lines(doctor) {
		if strings.Contains(line, "mnemogate_accounts") {
			weak++
		}
	}
	if weak < 6 || weak > 7 || // of two equal keys, the one that is provisioned later is reported, on each of its sites
		strings.Contains(s.log()+doctor, "elevenchars") {
		t.Errorf("doctor says\n%s", doctor)
	}
}
