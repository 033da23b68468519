package app

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"
	"github.com/caddyserver/certmagic"
	"github.com/google/go-cmp/cmp"

	_ "github.com/mnemogate/mnemogate/caddymodule/captcha"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	_ "github.com/mnemogate/mnemogate/caddymodule/oauth"
	"github.com/mnemogate/mnemogate/caddymodule/policy"
	_ "github.com/mnemogate/mnemogate/caddymodule/senders"
	_ "github.com/mnemogate/mnemogate/caddymodule/stores"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// provisioned returns the app that the lines of a global option make, as far
// as Provision brings it, and what cleans it up.
func provisioned(t *testing.T, lines string) (*App, error) {
	t.Helper()
	parsed := new(App)
	must(t, parsed.UnmarshalCaddyfile(caddyfile.NewTestDispenser("mnemogate {\n"+lines+"\n}")))
	adapted, err := json.Marshal(parsed)
	must(t, err)
	return fromJSON(t, string(adapted))
}

func fromJSON(t *testing.T, config string) (*App, error) {
	t.Helper()
	storage := &certmagic.FileStorage{Path: t.TempDir()}
	app := new(App)
	if err := caddy.StrictUnmarshalJSON([]byte(config), app); err != nil {
		return nil, err
	}
	ctx, cancel := caddy.NewContext(caddy.Context{Context: context.Background()})
	t.Cleanup(func() {
		cancel()
		if err := app.Cleanup(); err != nil {
			t.Error(err)
		}
	})
	err := app.Provision(ctx)
	app.storage = func() certmagic.Storage { return storage } // the context of a whole Caddy has one
	if err == nil {
		err = app.Validate()
	}
	return app, err
}

// A leaf is one option of a policy: what the app says, what the company says,
// and where it shows.
type leaf struct {
	app, company string
	read         func(*tenant.Company) any
}

func in(block, lines string) string { return block + " {\n" + lines + "\n}\n" }

func (l leaf) String() string { return strings.Join(strings.Fields(strings.Trim(l.app, "}\n")), " ") }

// Senders and a captcha that warn of nothing.
const (
	smsOption     = "sms webhook https://sms.example.com {\nsecret " + guesttest.Secret + "\n}\n"
	mailOption    = "mail webhook https://mail.example.com {\nsecret " + guesttest.Secret + "\n}\n"
	captchaOption = "captcha siteverify https://captcha.example.com secret\n"
)

func migrateOption(host string) string {
	return in("password", in("migrate webhook https://"+host+".example.com", "secret "+guesttest.Secret))
}

var leaves = append(boundedLeaves(), []leaf{
	{in("otp", "fixed 123456 +37060000001"), in("otp", "fixed 123456 +37060000002"), func(c *tenant.Company) any { return c.OTP.Fixed }},
	{in("password", "regex a"), in("password", "regex b"), func(c *tenant.Company) any { return c.Password.Regex }},
	{in("password", "argon2id 19456 3 1"), in("password", "argon2id 19456 4 1"), func(c *tenant.Company) any { return c.Password.Argon2id }},
	{in("password", "required"), in("password", "required off"), func(c *tenant.Company) any { return *c.Password.Required }},
	{migrateOption("one"), migrateOption("two"), func(c *tenant.Company) any {
		asked, _ := c.Migrate.(guest.Remote)
		if asked == nil {
			return ""
		}
		return asked.Endpoint()
	}},
	{"second_factor off", "second_factor per_account", func(c *tenant.Company) any { return c.SecondFactor }},
	{captchaOption, "captcha off", func(c *tenant.Company) any { return c.Captcha != nil }},
	{smsOption, "sms log", func(c *tenant.Company) any { return gatewayNames(c.SMS) }},
	{mailOption, "mail log", func(c *tenant.Company) any { return gatewayNames(c.Mail) }},
	{in("recovery", "methods QUESTION"), in("recovery", "methods off"), func(c *tenant.Company) any { return fmt.Sprint(c.Recovery.Methods) }},
	{in("recovery", "link https://one.example/#{token}"), in("recovery", "link https://two.example/#{token}"), func(c *tenant.Company) any { return c.Recovery.Link }},
	{in("limits", "sms_countries +370 +371"), in("limits", "sms_countries +372"), func(c *tenant.Company) any { return fmt.Sprint(c.Limits.SMSCountries) }},
	{"hardened", "hardened off", func(c *tenant.Company) any { return c.Hardened }},
	{in("password", "blocklist ../integration/testdata/blocklist"), in("password", "blocklist ../integration/testdata/texts/otp.login.sms.txt"), func(c *tenant.Company) any { return c.Blocklist != nil && c.Blocklist.Contains("our-company-2026") }},
	{"devices 90d skip_second_factor", "devices 90d", func(c *tenant.Company) any { return c.Devices }},
	{in("issued_tokens", "lifetime 1d"), "issued_tokens off", func(c *tenant.Company) any { return c.IssuedTokens }},
	{`mail_color "#336699"`, `mail_color "#FFffff"`, func(c *tenant.Company) any { return c.MailColor }},
	{"locale lt", "locale de-at", func(c *tenant.Company) any { return c.Locale }},
	{"notices off", "notices email_changed", func(c *tenant.Company) any { return c.Notices }},
	{"support one.example", "support two.example", func(c *tenant.Company) any { return c.Support }},
	{"phone_region LT", "phone_region DE", func(c *tenant.Company) any { return c.PhoneRegion }},
	{"sms_origin one.example", "sms_origin two.example", func(c *tenant.Company) any { return c.SMSOrigin }},
	{"texts ../integration/testdata/texts", "texts .", func(c *tenant.Company) any { return fmt.Sprintf("%p", c.Texts) }},
}...)

// boundedLeaves are those of policy.Options, with two values that each standard allows.
func boundedLeaves() (leaves []leaf) {
	for _, o := range policy.Options {
		if o.Block == "devices" || o.Block == "issued_tokens" {
			continue // a company replaces these as a whole
		}
		most := o.Works.Most
		if o.Source != "" {
			most = o.Bound.Most
		}
		leaves = append(leaves, leaf{in(o.Block, written(o, most-1)), in(o.Block, written(o, most-2)), func(c *tenant.Company) any {
			p := policy.Policy{Session: c.Session, OTP: c.OTP, Password: policy.Passwords{Passwords: c.Password}, Recovery: c.Recovery, Limits: c.Limits}
			return reflect.Indirect(reflect.ValueOf(o.Of(&p))).Interface()
		}})
	}
	return leaves
}

// written returns the line of an option with a number of nanoseconds, or another one.
func written(o policy.Option, n int64) string {
	line := fmt.Sprint(o.Name(), " ", n)
	switch o.Of(new(policy.Policy)).(type) {
	case *tenant.Duration:
		return line + "ns"
	case *tenant.Rate:
		return line + "/1m"
	}
	return line
}

func TestOptionsKeepTheirBounds(t *testing.T) {
	for _, o := range policy.Options {
		if o.Block == "devices" {
			continue // it is no block: see mistakes_global_test.go of caddymodule/integration
		}
		try := func(n int64, more, want string) {
			t.Helper()
			text := in("mnemogate", in(o.Block, written(o, n)+more)+in("company acme", "api_key k\ncaptcha off"))
			err := new(App).UnmarshalCaddyfile(caddyfile.NewTestDispenser(text))
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s %d%s: got %v, want %q", o.Directive(), n, more, err, want)
			}
		}
		insecure := ""
		if o.Source != "" {
			insecure = " insecure"
			try(o.Bound.Most, "", "")
			if forbidden := o.Bound.Most + 1; o.Works.Most > o.Bound.Most {
				try(forbidden, "", o.Directive()+": ")
				try(forbidden, "", "is against "+o.Source+"; choose "+o.Rule())
			}
			if forbidden := o.Bound.Least - 1; o.Bound.Least > o.Works.Least {
				try(forbidden, "", "is against "+o.Source+"; choose "+o.Rule())
			}
		}
		try(o.Works.Most, insecure, "")
		try(o.Works.Most+1, insecure, " at Testfile:3")
		try(o.Works.Least-1, insecure, " at Testfile:3")
	}
}

// policyOf returns what applies to a company of an app.
func policyOf(t *testing.T, app, company string) *tenant.Company {
	t.Helper()
	captcha := "captcha off\n"
	if strings.Contains(app+company, "captcha ") {
		captcha = ""
	}
	a, err := provisioned(t, app+"\n"+in("company acme", "api_key k\n"+captcha+company))
	must(t, err)
	return &a.Companies["acme"].effective
}

func TestPolicyIsInheritedLeafByLeaf(t *testing.T) {
	guesttest.Environment(t)
	unset := policyOf(t, "", "")
	for _, l := range leaves {
		t.Run(l.String(), func(t *testing.T) {
			if strings.Contains(l.app, "captcha ") {
				// There is no default, so one that shows nothing stands for it.
				unset = policyOf(t, "", "captcha off")
			}
			withIt := policyOf(t, l.app, "")
			inherited := l.read(withIt)
			if def := l.read(unset); reflect.DeepEqual(inherited, def) {
				t.Errorf("the app's option changes nothing: %v", def)
			}
			own := l.read(policyOf(t, "", l.company))
			over := l.read(policyOf(t, l.app, l.company))
			if strings.HasPrefix(l.app, "texts") {
				own = over // a pointer, which is another each time
			}
			if !reflect.DeepEqual(over, own) || reflect.DeepEqual(over, inherited) {
				t.Errorf("the app says %v, the company alone %v, both %v", inherited, own, over)
			}
			for _, other := range leaves {
				same := other.app == l.app || strings.HasPrefix(other.app, "texts")
				depends := strings.HasPrefix(l.app, "sms") && strings.Contains(other.app, "methods")
				if same || depends {
					continue
				}
				if got, want := other.read(withIt), other.read(unset); !reflect.DeepEqual(got, want) {
					t.Errorf("%s makes %v of %v for %s", l, got, want, other)
				}
			}
		})
	}
}

// TestLeavesAreComplete: an option that is added to a policy needs a leaf above.
func TestLeavesAreComplete(t *testing.T) {
	const (
		apart  = 5 // the leaves migrate, captcha, sms, mail and texts, whose modules and files a company has beside its Policy
		joined = 5 // RegexDescription, which goes with Regex, SkipSecondFactor, with the duration of devices, and three of issued_tokens, which is one block
	)
	want := apart - joined
	for field := range reflect.TypeFor[tenant.Policy]().Fields() {
		if field.Type.Kind() == reflect.Struct {
			want += field.Type.NumField()
		} else {
			want++
		}
	}
	if got := len(leaves); got != want {
		t.Errorf("%d leaves are tested, but there are %d", got, want)
	}
}

func TestRegexBringsItsOwnDescription(t *testing.T) {
	for _, c := range []struct{ app, company, regex, description string }{
		{"regex a described", "", "a", "described"},
		{"regex a described", "regex b", "b", ""},
		{"regex a described", "regex b other", "b", "other"},
		{"", "regex b other", "b", "other"},
	} {
		company := policyOf(t, in("password", c.app), in("password", c.company))
		got := company.Password
		if got.Regex != c.regex || got.RegexDescription != c.description || !company.Regex.MatchString(c.regex) {
			t.Errorf("%q and %q: got %q %q", c.app, c.company, got.Regex, got.RegexDescription)
		}
	}
}

func TestMethodsOfRecovery(t *testing.T) {
	const link = "link https://app.example.com/#{token}"
	for _, c := range []struct {
		name, app, company string
		want               []tenant.Method
	}{
		{"no sender", "", "", nil},
		{"sms", smsOption, "", []tenant.Method{tenant.ByPhone}},
		{"mail without a link", smsOption + mailOption, "", []tenant.Method{tenant.ByPhone}},
		{"the app's mail, the company's link", smsOption + mailOption, in("recovery", link), []tenant.Method{tenant.ByPhone, tenant.ByMail}},
		{"named", smsOption + in("recovery", "methods QUESTION PHONE"), "", []tenant.Method{tenant.ByQuestion, tenant.ByPhone}},
		{"off", smsOption, in("recovery", "methods off"), []tenant.Method{}},
		{"hardened leaves out an inherited QUESTION", smsOption + in("recovery", "methods QUESTION PHONE"), "hardened", []tenant.Method{tenant.ByPhone}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := policyOf(t, c.app, c.company).Recovery.Methods
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOffUndoesTheDefaultForACompany(t *testing.T) {
	defaults := in("passkeys", "rp_id example.com") + "phone_region LT\nsms_origin app.example.com\nsupport help@example.com\n"
	if got := policyOf(t, defaults, ""); got.Passkeys == nil || got.PhoneRegion != "LT" || got.SMSOrigin != "app.example.com" {
		t.Errorf("got the defaults %v, %q, %q", got.Passkeys, got.PhoneRegion, got.SMSOrigin)
	}
	if got := policyOf(t, defaults, "passkeys off\nphone_region off\nsms_origin off\nsupport off"); got.Passkeys != nil || got.PhoneRegion+got.SMSOrigin+got.Support != "" {
		t.Errorf("got %v, %q, %q, %q", got.Passkeys, got.PhoneRegion, got.SMSOrigin, got.Support)
	}
}

func gatewayNames(s message.Sender) (names []string) {
	gateways, _ := s.(message.Gateways)
	for _, g := range gateways {
		names = append(names, g.Name)
	}
	return names
}

// TestJSONIsRefused has the mistakes that a Caddyfile can't even make.
func TestJSONIsRefused(t *testing.T) {
	const acme = `"companies":{"acme":{"api_key_off":true,"captcha":{"module":"off"}`
	for config, want := range map[string]string{
		`{}`:                                     "company is missing",
		`{"companies":{"acme":null}}`:            "company acme: it is null",
		`{"companies":{"acme":{}}}`:              "company acme: api_key is missing",
		`{` + acme + `,"api_keys":["k"]}}}`:      "company acme: api_key: there are keys and it is off",
		`{` + acme + `,"accounts":{"a":null}}}}`: "company acme: account a: it is null",
		`{` + acme + `,"accounts":{"a":{"question":"Who?"}}}}}`: "company acme: account a: question: a question and its answer go together",
		`{` + acme + `,"accounts":{"a":{"answer":"I"}}}}}`:      "company acme: account a: question: a question and its answer go together",
		`{` + acme + `,"oauth":{"9":{"module":"oidc","issuer":"https://a.example","client_id":"a","client_secret":"b","redirect_uri":["https://a.example"]}}}}}`: "company acme: oauth 9: a provider's id is 1 to 5",
		`{` + acme + `,"disclaimers":[{"code":"a","title":"A"},{"code":"a"}]}}}`:                                                                                 "company acme: disclaimer a appears twice",
		`{` + acme + `}},"session":{"idle":-1}}`:                                                                                                            "session idle: -1ns is out of range",
		`{` + acme + `}},"limits":{"lock_for":900}}`:                                                                                                        "limits lock_for: 900ns is out of range; choose 1ms to ", // who means seconds
		`{` + acme + `}},"limits":{"lock_after":-1}}`:                                                                                                       "limits lock_after: -1 is out of range",
		`{` + acme + `}},"otp":{"fixed":[{"code":"123456","phones":[]}]}}`:                                                                                  "otp fixed: a code has no phone",
		`{` + acme + `}},"insecure":["otp.renewals"]}`:                                                                                                      `insecure: no standard bounds "otp.renewals"`,
		`{` + acme + `,"accounts":{"a":{"email":"{env.ADMIN}@example.com"}}}}}`:                                                                             "company acme: account a: email: placeholders are not replaced here; write the address itself",
		`{` + acme + `,"accounts":{"a":{"identities":[{"provider":2,"subject":"{env.X}"}]}}}}}`:                                                             "company acme: account a: identity: placeholders are not replaced here; write the subject itself",
		`{` + acme + `}},"texts":"/no/such/directory"}`:                                                                                                     "; correct the path",
		`{` + acme + `,"limits":{"failures_per_address":"30 per 5m"}}}}`:                                                                                    `cannot unmarshal "30 per 5m" (write a number and a time, as in 5/10m) into Go struct field Limits.companies.Policy.limits.failures_per_address`,
		`{` + acme + `,"session":{"idle":"1x"}}}}`:                                                                                                          `cannot unmarshal "1x" (write a number and its unit, as in 10m) into Go struct field Session`,
		`{` + acme + `}},"sms":[{"sender":{"module":"pigeon"}}]}`:                                                                                           "sms: ",
		`{` + acme + `,"limits":{"sms_countries":[]}}},"limits":{"sms_countries":["+370"]}}`:                                                                "company acme: limits sms_countries: the list is empty",
		`{` + acme + `}},"sms":[{"countries":[],"sender":{"module":"log"}}]}`:                                                                               "sms: countries: the list is empty",
		`{` + acme + `,"events":{"module":"webhook","url":"https://a.example","secrets":["c2VjcmV0c2VjcmV0"],"types":[]}}}}`:                                "company acme: events: types: the list is empty",
		`{"companies":{"acme":{"api_key_off":true,"captcha":{"module":"turnstile","secret":"s","hostname":[]}}}}`:                                           "captcha turnstile: hostname: the list is empty",
		`{` + acme + `}},"sms":[{"sender":{"module":"webhook","url":"https://a.example","secrets":["c2VjcmV0c2VjcmV0"],"headers":{"X-A":"1","x-a":"2"}}}]}`: "sms webhook: header x-a already specified",
	} {
		_, err := fromJSON(t, config)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", config, err, want)
		}
	}
}
