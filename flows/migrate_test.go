package flows_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// elsewhere is a system that knows one password.
type elsewhere struct {
	mu    sync.Mutex
	right string
	down  error
	asked []tenant.PasswordQuestion
}

func (e *elsewhere) VerifyPassword(_ context.Context, q tenant.PasswordQuestion) (bool, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, q)
	return q.Password == e.right, e.down
}

func newMigrating(t *testing.T) (*harness, *elsewhere) {
	b := newHarness(t)
	e := &elsewhere{right: "flat of 50m²"}
	b.company.Migrate = e
	b.withHash(record.ExternalPassword)
	return b, e
}

func TestAPasswordIsAskedElsewhereUntilItWasRightOnce(t *testing.T) {
	b, e := newMigrating(t)
	wantError(t, b.login("flat of 50m2"), wire.ErrCredentialsInvalid)
	must(t, b.login("flat of 50m²"))
	if q := e.asked[1]; q.Company != code || q.Mnemocode == "" || !slices.Contains(q.LoginIDs, email) || q.ID == "" || q.ID == e.asked[0].ID {
		t.Errorf("asked %+v", q)
	}
	if !strings.HasPrefix(b.load().PasswordHash, "$argon2id$") {
		t.Error("the password was not kept")
	}
	if err := b.login("flat of 50m2"); err != nil { // from now on the normalized form counts
		t.Error(err)
	}
	wantError(t, b.login("wrong"), wire.ErrCredentialsInvalid)
	if len(e.asked) != 2 {
		t.Errorf("asked %d times", len(e.asked))
	}
}

// Each login of all users would log a line after password migrate was removed.
func TestAMigrationThatEndedTooEarlyFillsNoLog(t *testing.T) {
	b, _ := newMigrating(t)
	b.company.Migrate = nil
	limits := &b.company.Limits
	limits.LockAfter, limits.DisableAfter, limits.CaptchaAfter = 1000, 1000, new(1000)
	limits.LoginsPerAddress, limits.FailuresPerAddress = tenant.Unlimited, tenant.Unlimited
	var log bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&log, nil))
	began := time.Now()
	for range 100 {
		wantError(t, b.login("wrong"), wire.ErrCredentialsInvalid)
	}
	seconds := int(time.Since(began)/time.Second) + 2
	if n := strings.Count(log.String(), "password migrate is not configured"); n == 0 || n > 10*seconds {
		t.Errorf("%d lines in less than %d seconds", n, seconds)
	}
}

// The current password is refused as the new one even if the other system has just checked it.
func TestAPasswordAskedElsewhereIsNoNewOne(t *testing.T) {
	b, e := newMigrating(t)
	same := manage.PasswordChange{Current: e.right, New: e.right}
	if err := b.changeOwn(same); !errors.Is(err, wire.ErrPasswordSame) {
		t.Errorf("got %v", err)
	}
	if err := b.changeOwn(same); !errors.Is(err, wire.ErrPasswordSame) || len(e.asked) != 1 {
		t.Errorf("got %v, and asked %d times", err, len(e.asked))
	}
}

func TestAnOutageElsewhereIsNoWrongPassword(t *testing.T) {
	b, e := newMigrating(t)
	b.company.Limits.LockAfter = 2
	e.down = errors.New("down")
	for range 3 {
		wantError(t, b.login("flat of 50m²"), wire.ErrUnavailable)
	}
	e.down = nil
	wantError(t, b.login("wrong"), wire.ErrCredentialsInvalid)
	wantError(t, b.login("wrong"), wire.ErrCredentialsInvalid)
	wantError(t, b.login("flat of 50m²"), wire.ErrRestricted)
	if len(e.asked) != 5 {
		t.Errorf("a locked account's password was asked about: %d", len(e.asked))
	}
}

func TestLoginsThatRaceAreAllRight(t *testing.T) {
	b, _ := newMigrating(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if err := b.login("flat of 50m²"); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if err := b.login("flat of 50m²"); err != nil {
		t.Error(err)
	}
}

func TestWithNobodyToAskAPasswordIsWrongUntilAnotherIsSet(t *testing.T) {
	b, e := newMigrating(t)
	b.company.Migrate = nil
	wantError(t, b.login("flat of 50m²"), wire.ErrCredentialsInvalid)
	b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "another fine secret"})
	if err := b.login("another fine secret"); err != nil || len(e.asked) > 0 {
		t.Error(err, e.asked)
	}
}
