package flows_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// Events are kept for three days if their company no longer sends any, and are then
// dropped.
func TestEventsOfNobodyAreDropped(t *testing.T) {
	b := newHarness(t)
	var mu sync.Mutex
	var dropped []string
	b.Observe = func(_ context.Context, e record.Event) {
		mu.Lock()
		defer mu.Unlock()
		dropped = append(dropped, e.Name+" "+e.Company+" "+e.Mnemocode+" "+e.Reason)
	}
	tell := func(company, account string, ages ...time.Duration) {
		t.Helper()
		a := record.Account{Company: company, Mnemocode: account}
		for i, age := range ages {
			a.Outbox = append(a.Outbox, record.OutboxEvent{
				ID: fmt.Sprint(account, i), Type: record.TypeAccountChanged, At: b.Now().Add(-age), Queue: "former name of " + account,
				Body: fmt.Appendf(nil, `{"data":{"profile_mnemocode":%q}}`, account),
			})
		}
		if _, err := b.Accounts.Create(t.Context(), b.Now(), a); err != nil {
			t.Fatal(err)
		}
	}
	tell(code, "mixed", 80*time.Hour, 72*time.Hour, 71*time.Hour)
	tell(code, "new", time.Hour)
	tell("gone", "old", slices.Repeat([]time.Duration{100 * time.Hour}, record.ClaimedEvents+1)...)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ran := make(chan bool)
	go func() {
		b.Run(ctx)
		close(ran)
	}()
	left := func() []record.Backlog {
		all, err := b.Accounts.Backlogs(t.Context())
		must(t, err)
		return all
	}
	want := []record.Backlog{{Company: code, Events: 2, Oldest: b.Now().Add(-71 * time.Hour)}}
	storetest.Eventually(t, 10*time.Second, "end of what is too old", func() bool { return slices.Equal(left(), want) })
	cancel()
	<-ran
	mu.Lock()
	defer mu.Unlock()
	if len(dropped) != 2+record.ClaimedEvents+1 || !slices.Contains(dropped, "mnemogate.outbox.dropped acme mixed account.changed") {
		t.Errorf("told of %d: %v", len(dropped), dropped)
	}
}

// told returns the types of the events that wait for the backend, all of the harness's account.
func (b *harness) told() string {
	b.t.Helper()
	queues, err := b.Accounts.Claim(b.t.Context(), b.Now(), b.Now().Add(time.Minute), code, 1)
	must(b.t, err)
	var types []string
	for _, q := range queues {
		for _, e := range q.Events {
			types = append(types, e.Type)
			if !strings.Contains(string(e.Body), `"profile_mnemocode":"`+mnemocode+`"`) {
				b.t.Errorf("it is not of the account: %s", e.Body)
			}
		}
	}
	return strings.Join(types, " ")
}

// A change of an account is stored with the event for the backend, whoever makes it.
func TestAChangeIsStoredWithItsEvent(t *testing.T) {
	for name, c := range map[string]struct {
		change func(b *harness)
		want   string
	}{
		"a breached password": {func(b *harness) {
			b.company.Breached = tenant.Breached{List: &breachedList{has: "horse"}, AtLogin: true}
			b.walk("auth/checkcredentials")
		}, record.TypeAccountChanged},
		"the user's new password": {func(b *harness) {
			must(b.t, b.changeOwn(manage.PasswordChange{Current: password, New: newSecret}))
		}, record.TypePasswordChanged},
		"the user's wrong passwords": {func(b *harness) {
			for range b.company.Limits.LockAfter {
				_ = b.admin().CheckPassword(b.t.Context(), mnemocode, "wrong", "")
			}
		}, record.TypeAccountLocked},
		"a passkey": {func(b *harness) {
			d := b.device("k", 0)
			must(b.t, b.admin().RemovePasskey(b.t.Context(), mnemocode, record.Passkey{Credential: d.id}.ID(), ""))
		}, record.TypeAccountChanged + " " + record.TypeAccountChanged},
		"imported passkeys": {func(b *harness) {
			_, _, err := b.admin().Change(b.t.Context(), mnemocode, manage.Change{Passkeys: []record.Passkey{
				{Credential: []byte("one"), UserHandle: []byte("handle"), PublicKey: []byte("key")},
				{Credential: []byte("two"), UserHandle: []byte("handle"), PublicKey: []byte("key")},
			}})
			must(b.t, err)
		}, record.TypeAccountChanged + " " + record.TypeAccountChanged},
		"an app": {func(b *harness) {
			b.withApp()
			_, err := b.admin().RemoveTOTP(b.t.Context(), mnemocode, "")
			must(b.t, err)
		}, record.TypeAccountChanged + " " + record.TypeAccountChanged},
		"disclaimers that an operator enters": {func(b *harness) {
			_, _, err := b.admin().Change(b.t.Context(), mnemocode, manage.Change{Accepted: []record.Acceptance{{Code: "terms", Version: "1", At: b.Now()}}})
			must(b.t, err)
		}, record.TypeDisclaimersAccepted},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.company.Events.Receiver = struct{ tenant.EventReceiver }{}
			c.change(b)
			if got := b.told(); got != c.want {
				t.Errorf("the backend hears of %q, want %q", got, c.want)
			}
		})
	}
}
