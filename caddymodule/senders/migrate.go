package senders

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/flows/tenant"
)

func init() { caddy.RegisterModule(MigrateWebhook{}) }

// MigrateWebhook asks the system that the accounts were imported from to verify
// their passwords. It sends a Standard Webhooks request with the headers webhook-id,
// webhook-timestamp and webhook-signature. The body is a JSON object with type
// (password.verify), company_code, profile_mnemocode, login_ids and password. An
// answer of 200 means that the password is right, 401 and 403 that it is wrong.
// After any other answer, or a timeout, the login gets service.unavailable and does
// not count as an attempt. The timeout is at most 5s. See webhook for the options.
type MigrateWebhook struct{ webhook }

// CaddyModule returns the Caddy module information.
func (MigrateWebhook) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.migrate.webhook", New: func() caddy.Module { return new(MigrateWebhook) }}
}

// Provision resolves the placeholders.
func (w *MigrateWebhook) Provision(caddy.Context) error {
	return w.provision("password migrate webhook")
}

// Validate refuses a system that can't be asked.
func (w *MigrateWebhook) Validate() error {
	if err := w.webhook.Validate(); err != nil {
		return err
	}
	if w.Timeout > defaultSendTimeout {
		return fmt.Errorf("%s: timeout: choose one of at most 5s", w.what)
	}
	return nil
}

// passwordQuestion is the body of the request.
type passwordQuestion struct {
	// What is asked.
	Type string `json:"type"`
	// The company's code.
	Company string `json:"company_code"`
	// The account's profile_mnemocode.
	Mnemocode string `json:"profile_mnemocode"`
	// The account's phone, email and login name, as far as it has them.
	LoginIDs []string `json:"login_ids"`
	// The password, as the user typed it.
	Password string `json:"password"`
}

// VerifyPassword implements tenant.PasswordVerifier.
func (w *MigrateWebhook) VerifyPassword(ctx context.Context, q tenant.PasswordQuestion) (bool, error) {
	body, _ := json.Marshal(passwordQuestion{"password.verify", q.Company, q.Mnemocode, q.LoginIDs, q.Password}) // strings: never fails
	resp, _, err := w.ask(ctx, q.Company, false, q.ID, body)                                                     // the answer is not logged, since it may contain the password
	if err != nil {
		return false, err
	}
	switch resp.StatusCode {
	case http.StatusOK:
		return true, nil
	case http.StatusUnauthorized, http.StatusForbidden:
		return false, nil
	}
	return false, fmt.Errorf("%s: %s answered %d", w.what, w.target.Host, resp.StatusCode)
}

// Interface guards
var (
	_ tenant.PasswordVerifier = (*MigrateWebhook)(nil)
	_ caddy.Provisioner       = (*MigrateWebhook)(nil)
	_ caddy.Validator         = (*MigrateWebhook)(nil)
)
