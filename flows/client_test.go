package flows_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A starter is a provider that knows where its logins begin.
type starter func(context.Context) (tenant.OAuthStart, error)

func (s starter) Start(ctx context.Context) (tenant.OAuthStart, error) { return s(ctx) }

func (b *harness) clientConfig() (config tenant.ClientConfig, raw string) {
	b.t.Helper()
	config, err := b.ClientConfig(b.t.Context(), &flows.Request{Company: code})
	must(b.t, err)
	marshalled, err := json.Marshal(config)
	must(b.t, err)
	return config, string(marshalled)
}

// With hardened, the minimum length depends on the account, which is not known yet.
func TestClientConfigSaysWhatHardenedAsksFor(t *testing.T) {
	b := newHarness(t)
	b.company.Hardened = true
	for factor, want := range map[tenant.SecondFactor]struct {
		min        int
		begin, end string
	}{
		tenant.SecondFactorPerAccount: {8, "8 to 128 characters. ", " At least 15 characters for an account without a second factor."},
		tenant.SecondFactorRequired:   {8, "8 to 128 characters. ", "name."},
		tenant.SecondFactorOff:        {15, "15 to 128 characters, ", "name."},
	} {
		b.company.SecondFactor = factor
		config, _ := b.clientConfig()
		if !config.Hardened {
			t.Error("it does not say that it is hardened")
		}
		if got := config.Password; got.MinLength != want.min || !strings.HasPrefix(got.Description, want.begin) || !strings.HasSuffix(got.Description, want.end) {
			t.Errorf("%s: got %+v", factor, got)
		}
	}
}

// Providers are asked in parallel and with a timeout. If one fails, only its
// authorize_url is missing.
func TestClientConfigDoesNotWaitForProviders(t *testing.T) {
	b := newHarness(t)
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
	storetest.InQuiet(t, time.Second, func() error {
		config, _ := b.clientConfig()
		for i, o := range config.OAuth {
			if (o.AuthorizeURL != nil) != (i == 3) || o.ProviderID != i+1 {
				return fmt.Errorf("got %+v", o)
			}
		}
		return nil
	})
}
