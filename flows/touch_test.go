package flows_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/memory"
)

// Users who are logged in stay so while the store takes no writes, but no longer
// than the session lives. The log says why.
func TestActivityThatCannotBeWrittenLocksNobodyOut(t *testing.T) {
	for name, remembered := range map[string]bool{"asked for": false, "remembered": true} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			var log bytes.Buffer
			b.Log = slog.New(slog.NewTextHandler(&log, nil))
			full := b.fails("Touch")
			settled := func() {}
			if remembered {
				memory := memory.New(b.Sessions, 1000)
				memory.SetLease(time.Now().Add(time.Hour))
				memory.Untouched = func(err error) { b.Log.Warn("a session could not be extended", "error", err) }
				b.Sessions, settled = memory, memory.Wait
			}
			token, ended, healed := b.sessionIn(record.Authorized), b.sessionIn(record.Authorized), b.sessionIn(record.Authorized)
			for _, token := range []string{token, ended, healed} {
				b.wantLive(token, nil)
			}
			full.Store(true)
			for range 59 {
				b.clock.advance(time.Minute)
				b.wantLive(token, nil)
				settled()
			}
			b.must("auth/logout", ended, nil)
			b.wantLive(ended, wire.ErrTokenInvalid)
			full.Store(false)
			b.wantLive(healed, nil)
			b.clock.advance(time.Minute)
			b.wantLive(token, wire.ErrTokenExpired)
			b.wantLive(healed, nil)
			if !strings.Contains(log.String(), "could not be extended") || !strings.Contains(log.String(), errDown.Error()) {
				t.Errorf("the log is %q", log.String())
			}
		})
	}
}
