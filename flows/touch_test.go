package flows_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store"
)

// A readOnly is a session store that can't write activity.
type readOnly struct {
	record.Sessions
	full bool
}

func (r *readOnly) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) error {
	if r.full {
		return errors.New("no space left on device")
	}
	return r.Sessions.Touch(ctx, now, hash, expires)
}

// Users who are logged in stay so while the store takes no writes, but no longer
// than the session lives. The log says why.
func TestActivityThatCannotBeWrittenLocksNobodyOut(t *testing.T) {
	for name, remembered := range map[string]bool{"asked for": false, "remembered": true} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			var log bytes.Buffer
			b.Log = slog.New(slog.NewTextHandler(&log, nil))
			held := &readOnly{Sessions: b.Sessions}
			b.Sessions = held
			settled := func() {}
			if remembered {
				memory := store.NewMemory(held, 1000)
				memory.SetLease(time.Now().Add(time.Hour))
				memory.Untouched = func(err error) { b.Log.Warn("a session could not be prolonged", "error", err) }
				b.Sessions, settled = memory, memory.Wait
			}
			token, ended, healed := b.sessionIn(record.Authorized), b.sessionIn(record.Authorized), b.sessionIn(record.Authorized)
			for _, token := range []string{token, ended, healed} {
				b.wantLive(token, nil)
			}
			held.full = true
			for range 59 {
				b.clock.advance(time.Minute)
				b.wantLive(token, nil)
				settled()
			}
			b.must("auth/logout", ended, nil)
			b.wantLive(ended, wire.ErrTokenInvalid)
			held.full = false
			b.wantLive(healed, nil)
			b.clock.advance(time.Minute)
			b.wantLive(token, wire.ErrTokenExpired)
			b.wantLive(healed, nil)
			if !strings.Contains(log.String(), "could not be prolonged") || !strings.Contains(log.String(), "no space left") {
				t.Errorf("the log is %q", log.String())
			}
		})
	}
}
