package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestAdminSetsPasswordsAndUnlocks(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{global: "limits {\nlock_after 2\ndisable_after 3\nlock_for 4s\nfailures_per_address 1000/1h\n}"})
	s.admin("POST", "accounts", with(alice, fields{"must_set_password": true})).wantStatus(201)
	wrong := func() answer {
		return s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": "wrong"})
	}
	lock := func(n int) {
		s.t.Helper()
		for range n {
			for wrong().Status == http.StatusTooManyRequests {
				time.Sleep(100 * time.Millisecond)
			}
		}
	}
	s.run("a lock is seen and cleared", func(t *testing.T) {
		lock(2)
		until, err := time.Parse(time.RFC3339, s.admin("GET", "accounts/alice", nil).str("locked_until"))
		if err != nil || time.Until(until) > 5*time.Second {
			t.Errorf("locked until %v, %v", until, err)
		}
		if got := s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200); got.JSON["locked_until"] != nil {
			t.Errorf("got %s", got.Body)
		}
		wrong().want(wire.ErrCredentialsInvalid)
		s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
	})
	s.run("a disabled password is unlocked", func(t *testing.T) {
		lock(3)
		time.Sleep(4100 * time.Millisecond)
		wrong().want(wire.ErrRestricted)
		if got := s.admin("GET", "accounts/alice", nil); got.str("locked_until") != "9999-12-31T23:59:59Z" {
			t.Errorf("got %s", got.Body)
		}
		s.admin("POST", "accounts/alice/unlock", nil).wantStatus(200)
		wrong().want(wire.ErrCredentialsInvalid)
	})
	s.run("a new password clears the lock and what it was for", func(t *testing.T) {
		lock(2)
		sent := len(s.sms.of("notice.password_changed"))
		got := s.admin("PATCH", "accounts/alice", fields{"password": "new", "primary_email": "other@example.com"}).wantStatus(200)
		if got.JSON["locked_until"] != nil || got.JSON["must_set_password"] != false {
			t.Errorf("got %s", got.Body)
		}
		s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": "new"}).wantState(record.Authorized)
		s.eventually("notice", func() bool { return len(s.sms.of("notice.password_changed")) > sent })
		if to := s.sms.last("notice.password_changed", "to"); to != "Alice@Example.com" {
			t.Errorf("the notice went to %q", to)
		}
		s.admin("PATCH", "accounts/alice", fields{"password": "new", "must_set_password": true}).wantStatus(200)
		s.post("auth/checkcredentials", "", fields{"login_id": "alice", "password": "new"}).wantState(record.SetPassword)
	})
}
