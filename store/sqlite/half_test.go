package sqlite

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/sqlstore"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestYieldingCallsLeaveHalfOfTheSQLiteReaders(t *testing.T) {
	s := startStore(t, tempFile(t))
	var running atomic.Int32
	release := make(chan struct{})
	var calls sync.WaitGroup
	for range 20 {
		calls.Go(func() {
			_ = s.Reading(record.Yielding(bg), func(context.Context, sqlstore.Queries) error {
				running.Add(1)
				<-release
				return nil
			})
		})
	}
	storetest.Eventually(t, 10*time.Second, "calls that read", func() bool { return running.Load() == readConns/2 })
	time.Sleep(100 * time.Millisecond)
	wantEqual(t, "calls that read", running.Load(), int32(readConns/2))
	must(t, s.Reading(bg, func(context.Context, sqlstore.Queries) error { return nil }))
	close(release)
	calls.Wait()
	wantEqual(t, "calls that read", running.Load(), int32(20))
}
