package flows_test

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A starter is a provider that says where its logins begin.
type starter func(context.Context) (tenant.OAuthStart, error)

func (s starter) Start(ctx context.Context) (tenant.OAuthStart, error) { return s(ctx) }

func (b *bench) clientConfig() (config tenant.ClientConfig, raw string) {
	b.t.Helper()
	config, err := b.ClientConfig(b.t.Context(), &flows.Request{Company: code})
	if err != nil {
		b.t.Fatal(err)
	}
	marshalled, err := json.Marshal(config)
	if err != nil {
		b.t.Fatal(err)
	}
	return config, string(marshalled)
}

// Contract, 12.
func TestClientConfigTellsWhatTheCompanyAsksFor(t *testing.T) {
	b := newBench(t)
	b.company.OAuth = nil
	const bare = `{"password":{"min_length":8,"regex":null,"description":"At least 8 and at most 128 characters. None of the passwords that many people use, which are the first to be tried. ` +
		`Not made of the account's own login ids or the company's name."},"captcha":{"type":"off"},"recovery":["PHONE","MAIL","QUESTION"],"oauth":[],"disclaimers":[],"session":{"idle":3600,"lifetime":86400}}`
	if _, got := b.clientConfig(); got != bare {
		t.Errorf("got %s", got)
	}
	b.company.Recovery.Methods = nil
	b.company.Captcha, b.company.CaptchaType, b.company.SiteKey = &captcha{}, "turnstile", "site"
	b.company.Disclaimers = []wire.Disclaimer{{Code: "terms", Title: "Terms", Version: "1"}}
	b.company.Regex, b.company.Password.Regex = regexp.MustCompile("[0-9]"), "[0-9]"
	b.company.Password.RegexDescription = "a digit"
	b.company.OAuth = map[int]tenant.OAuth{
		5: {Name: "Five", ClientID: "five", RequirePKCE: true},
		1: {Name: "One", ClientID: "one", Scopes: []string{"openid", "email"}, Authorizer: starter(func(context.Context) (tenant.OAuthStart, error) {
			return tenant.OAuthStart{URL: "https://id.example/auth", PKCE: true}, nil
		})},
		2: {Name: "Two", ClientID: "two", Authorizer: starter(func(context.Context) (tenant.OAuthStart, error) { return tenant.OAuthStart{}, nil })},
	}
	_, got := b.clientConfig()
	for _, want := range []string{
		`"captcha":{"type":"turnstile","site_key":"site"},"recovery":[],`,
		`"oauth":[{"provider_id":1,"name":"One","authorize_url":"https://id.example/auth","client_id":"one","scope":"openid email","pkce":true},` +
			`{"provider_id":2,"name":"Two","authorize_url":null,"client_id":"two","scope":"","pkce":false},` +
			`{"provider_id":5,"name":"Five","authorize_url":null,"client_id":"five","scope":"","pkce":true}]`,
		`"disclaimers":[{"code":"terms","title":"Terms","description":"","link":""}]`,
		`"regex":"[0-9]","description":"At least 8`, `company's name. a digit.","regex_description":"a digit"}`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	b.company.Captcha, b.company.CaptchaType, b.company.SiteKey = work(18), "pow", ""
	if _, got := b.clientConfig(); !strings.Contains(got, `"captcha":{"type":"pow","bits":18}`) {
		t.Errorf("got %s", got)
	}
}

// With hardened, what holds depends on an account that is not known yet.
func TestClientConfigSaysWhatHardenedAsksFor(t *testing.T) {
	b := newBench(t)
	b.company.Hardened = true
	for factor, want := range map[tenant.SecondFactor]struct {
		min        int
		begin, end string
	}{
		tenant.SecondFactorPerAccount: {8, "At least 8 and at most 128 characters. ", " At least 15 characters for an account without a second factor."},
		tenant.SecondFactorRequired:   {8, "At least 8 and at most 128 characters. ", "name."},
		tenant.SecondFactorOff:        {15, "At least 15 and at most 128 characters, ", "name."},
	} {
		b.company.SecondFactor = factor
		config, _ := b.clientConfig()
		if got := config.Password; got.MinLength != want.min || !strings.HasPrefix(got.Description, want.begin) || !strings.HasSuffix(got.Description, want.end) {
			t.Errorf("%s: got %+v", factor, got)
		}
	}
}

// Providers are asked side by side, for so long; one that does not say where its
// logins begin, or is broken, takes nothing but that away.
func TestClientConfigDoesNotWaitForProviders(t *testing.T) {
	b := newBench(t)
	silent := starter(func(ctx context.Context) (tenant.OAuthStart, error) {
		if until, ok := ctx.Deadline(); !ok || time.Until(until) > 1500*time.Millisecond {
			t.Error("it may take as long as it likes")
		}
		return tenant.OAuthStart{}, context.DeadlineExceeded
	})
	b.company.OAuth = map[int]tenant.OAuth{
		1: {Authorizer: silent}, 2: {Authorizer: silent},
		3: {Authorizer: starter(func(context.Context) (tenant.OAuthStart, error) { panic("x") })},
		4: {Authorizer: starter(func(context.Context) (tenant.OAuthStart, error) {
			return tenant.OAuthStart{URL: "https://id.example"}, nil
		})},
	}
	config, _ := b.clientConfig()
	for i, o := range config.OAuth {
		if (o.AuthorizeURL != nil) != (i == 3) || o.ProviderID != i+1 {
			t.Errorf("got %+v", o)
		}
	}
}

func TestClientConfigNeedsTheKey(t *testing.T) {
	b := newBench(t)
	b.company.NoAPIKey, b.company.APIKeys = false, [][sha256.Size]byte{sha256.Sum256([]byte("key"))}
	key, err := b.PageKey(t.Context(), code)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		company string
		keys    []string
		want    error
	}{
		{code, []string{"key"}, nil}, {code, []string{key}, nil}, {code, nil, wire.ErrAPIKeyMissing}, {code, []string{"other"}, wire.ErrAPIKeyInvalid}, {"nobody", []string{"key"}, wire.ErrAPIKeyInvalid},
	} {
		if _, err := b.ClientConfig(t.Context(), &flows.Request{Company: c.company, APIKeys: c.keys, PageKey: true}); !errors.Is(err, c.want) {
			t.Errorf("%s with %q: %v", c.company, c.keys, err)
		}
	}
}
