package flows_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Messages and authenticator apps name the company as people call it, gateways get its
// code too, and the name alone makes no password.
func TestACompanyHasAName(t *testing.T) {
	b := newHarness(t)
	b.company.Name, b.company.MailColor = "Söhne & Co +", "#336699"
	made, err := b.admin().NewTOTP(t.Context(), mnemocode)
	must(t, err)
	if want := "otpauth://totp/S%C3%B6hne%20&%20Co%20+:"; !strings.HasPrefix(made.URI, want) || !strings.Contains(made.URI, "&issuer=S%C3%B6hne%20%26%20Co%20%2B&") {
		t.Errorf("the app gets %s", made.URI)
	}
	looksLikeIt := func(m message.Message) bool {
		return strings.Contains(m.HTML, "Söhne &amp; Co &#43;</h1>") && strings.Contains(m.HTML, `bgcolor="#336699"`)
	}
	b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
	if m := b.mail.last(t); !strings.Contains(m.Subject, b.company.Name) || !strings.Contains(m.Text, b.company.Name) || !looksLikeIt(m) || m.Company != code {
		t.Errorf("the mail of %q is %q\n%s\n%s", m.Company, m.Subject, m.Text, m.HTML)
	}
	if m, err := manage.NewTrial(b.company, email, true); err != nil || !strings.Contains(m.Subject, b.company.Name) || strings.Contains(m.HTML, "<a ") || !strings.Contains(m.HTML, "Söhne &amp; Co &#43;</h1>") {
		t.Errorf("the test mail is %q, %v", m.Subject, err)
	}
	_, err = b.serve("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "söhne&co 2026"})
	if refusal, ok := errors.AsType[*wire.Refusal](err); !ok || refusal.Reason != wire.PasswordPersonal {
		t.Errorf("the name as a password: %v", err)
	}
}

// With sms_origin, every SMS with a code ends in the line for phones, and no other
// message does.
func TestCodesAreBoundToAHost(t *testing.T) {
	b := newHarness(t)
	b.company.SMSOrigin = "app.example.com"
	login := b.sessionIn(record.CheckOTP)
	wantLine := func(kind string) {
		t.Helper()
		if m := b.sms.last(t); m.Type != kind || !strings.HasSuffix(m.Text, "\n@app.example.com #"+m.Code) {
			t.Errorf("%s: got %s %q", kind, m.Type, m.Text)
		}
	}
	wantLine(message.OTPLogin)
	b.must("auth/renewotp", login, nil)
	wantLine(message.OTPLogin)
	b.sessionIn(record.RecoveryOTP)
	wantLine(message.OTPRecovery)
	b.must("auth/recovery/recover", "", recovery(object{"method": "MAIL"}))
	if m := b.mail.last(t); strings.Contains(m.Text, "@"+b.company.SMSOrigin) {
		t.Errorf("the mail has a line for phones: %q", m.Text)
	}
}
