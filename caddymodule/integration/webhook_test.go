package integration

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Webhooks contain what the contract says, and nothing else.
func TestWebhookPayloads(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: roomy +
		account("alice", "email alice@example.com\nphone +37060000001\nsecond_factor") +
		account("bob", "phone +37060000002\nquestion Cat? Whiskers")})
	begin := time.Now()
	credentials := s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": testPassword}).wantState(record.CheckOTP)
	recovery := func(loginID, method string) answer {
		return s.post("auth/recovery/recover", "", fields{"login_id": loginID, "captcha_response": "any", "method": method})
	}
	recovery("alice", "PHONE").wantState(record.RecoveryOTP)
	recovery("alice", "MAIL").wantState(record.None)
	for _, a := range []answer{
		s.post("auth/recovery/checklink", "", fields{"token": s.sms.linkToken()}),
		s.post("auth/recovery/checkquestion", recovery("bob", "QUESTION").token(), fields{"control_answer": "whiskers"}),
	} {
		s.post("auth/setpassword", a.token(), fields{"new_password": "a much better secret"}).wantState(record.None)
	}
	s.eventually("notice for each of the two", func() bool { return len(s.sms.of("notice.password_changed")) >= 2 })

	for _, c := range []struct {
		kind, account, to string
		fields            []string
		life              time.Duration
	}{
		{"otp.login", "alice", "+37060000001", []string{"code", "expires_at"}, 5 * time.Minute},
		{"otp.recovery", "alice", "+37060000001", []string{"code", "expires_at"}, 5 * time.Minute},
		{"recovery.link", "alice", "alice@example.com", []string{"link", "expires_at", "subject"}, 30 * time.Minute},
		{"notice.password_changed", "alice", "alice@example.com", []string{"subject"}, 0},
		{"notice.password_changed", "bob", "+37060000002", nil, 0},
	} {
		t.Run(c.kind+" for "+c.account, func(t *testing.T) {
			var found []map[string]any
			for _, m := range s.sms.of(c.kind) {
				if m["profile_mnemocode"] == c.account {
					found = append(found, m)
				}
			}
			if len(found) != 1 {
				t.Fatalf("%d messages, want 1", len(found))
			}
			m := found[0]
			want := append([]string{"type", "company_code", "profile_mnemocode", "to", "text"}, c.fields...)
			slices.Sort(want)
			if got := slices.Sorted(maps.Keys(m)); !slices.Equal(got, want) {
				t.Errorf("the fields are %v, want %v", got, want)
			}
			if m["company_code"] != "acme" || m["to"] != c.to {
				t.Errorf("got %v", m)
			}
			for _, field := range []string{"code", "link"} {
				if value, ok := m[field].(string); ok && !strings.Contains(m["text"].(string), value) {
					t.Errorf("the text %q does not hold the %s", m["text"], field)
				}
			}
			if expires, ok := m["expires_at"].(string); ok {
				at, err := time.Parse(time.RFC3339, expires)
				if err != nil || at.Before(begin.Add(c.life-time.Second)) || at.After(time.Now().Add(c.life)) {
					t.Errorf("expires_at is %s, %v", expires, err)
				}
			}
		})
	}
	code := s.sms.last("otp.login", "code")
	if len(code) != 6 || strings.Trim(code, "0123456789") != "" {
		t.Errorf("the code is %q, want 6 digits", code)
	}
	s.post("auth/checkotp", credentials.token(), fields{"otp": code}).want(wire.ErrTokenInvalid) // the new password revoked it
}
