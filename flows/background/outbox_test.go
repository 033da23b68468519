package background

import (
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

func TestOutboxEvents(t *testing.T) {
	now := time.Date(2026, 11, 22, 15, 4, 5, 123456789, time.UTC)
	const created, changed, deleted, locked, unlocked, password = "account.created ", "account.changed ", "account.deleted ", "account.locked ", "account.unlocked ", "password.changed "
	for _, c := range []struct {
		event record.Event
		want  []string // the type of each outbox event, and its data apart from the account
	}{
		{record.Event{Name: record.AccountCreated, Reason: "admin", Address: "192.0.2.1"}, []string{created}},
		{record.Event{Name: record.AccountChanged, Fields: []string{"role"}}, []string{changed + `,"fields":["role"]`}},
		{record.Event{Name: record.AccountChanged, Fields: []string{"password"}}, []string{password}},
		{record.Event{Name: record.AccountChanged, Fields: []string{"profile_mnemocode", "password", "totp"}, Previous: "bob"},
			[]string{changed + `,"previous_mnemocode":"bob","fields":["profile_mnemocode","totp"]`, password}},
		{record.Event{Name: record.AccountBackupCodes}, []string{changed + `,"fields":["backup_codes"]`}},
		{record.Event{Name: record.AccountDeleted}, []string{deleted}},
		{record.Event{Name: record.AccountUnlocked}, []string{unlocked}},
		{record.Event{Name: record.LockPassword, Until: now.Add(time.Hour)}, []string{locked + `,"reason":"lock.password","locked_until":"2026-11-22T16:04:05.123456789Z"`}},
		{record.Event{Name: record.LockDisabled, Until: now.Add(time.Hour)}, []string{locked + `,"reason":"lock.disabled"`}},
		{record.Event{Name: record.IdentityBound, Reason: "provider 3", Provider: 3}, []string{`identity.bound ,"provider_id":3`}},
		{record.Event{Name: record.TypeDisclaimersAccepted, Accepted: []record.Acceptance{{Code: "terms", Version: "1", At: now}}},
			[]string{`disclaimers.accepted ,"accepted":[{"code":"terms","version":"1"}]`}},
		{record.Event{Name: record.TypePasswordChanged}, []string{password}},
		{record.Event{Name: record.TypeRecoveryCompleted}, []string{password, "recovery.completed "}},
		{record.Event{Name: record.AccountWelcomed}, nil},
		{record.Event{Name: record.LimitAddress}, nil},
		{record.Event{}, nil},
	} {
		e := c.event
		e.Time, e.Mnemocode = now, "alice"
		for types, want := range map[string][]string{"": c.want, "test": nil} {
			company := &tenant.Company{Code: "acme", Events: tenant.Events{Receiver: &refusing{}}}
			if types != "" {
				company.Events.Types = []string{types}
			}
			got := OutboxEvents(t.Context(), company, e)
			if len(got) != len(want) {
				t.Fatalf("%s for %q: got %d events, want %d", e.Name, types, len(got), len(want))
			}
			for i, o := range got {
				kind, data, _ := strings.Cut(want[i], " ")
				body := `{"type":"` + kind + `","timestamp":"2026-11-22T15:04:05.123456Z","data":{"company_code":"acme","profile_mnemocode":"alice"` + data + `}}`
				queue := "alice"
				if e.Previous != "" && kind == "account.changed" {
					queue = e.Previous
				}
				if string(o.Body) != body || o.Type != kind || o.Queue != queue || !o.At.Equal(now.Truncate(time.Microsecond)) || o.ID == "" {
					t.Errorf("%s: got %+v with the body %s, want %s", e.Name, o, o.Body, body)
				}
			}
		}
		if n := testing.AllocsPerRun(10, func() { OutboxEvents(t.Context(), &tenant.Company{}, e) }); n > 0 {
			t.Errorf("%s costs %v allocations where there is no receiver", e.Name, n)
		}
	}
}
