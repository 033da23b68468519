package flows_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// Events are kept for three days if their company no longer sends any, and are then
// dropped.
func TestEventsOfNobodyAreDropped(t *testing.T) {
	b := newHarness(t)
	b.Outbox = b.Accounts.(record.Outbox)
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
		all, err := background.Backlogs(t.Context(), b.Outbox)
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
