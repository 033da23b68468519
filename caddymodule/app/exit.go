package app

import (
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/caddymodule/logs"
)

// lookAfter is how long after a signal the log is looked at, and how often from then on.
const lookAfter = 3 * time.Second

// exitDespiteLogs ends the process after a signal if Caddy's default log has stalled. Caddy
// writes lines while it stops, and waits for them without limit. By then, requests have had
// lookAfter to end, and a store loses nothing that was acknowledged.
var exitDespiteLogs = sync.OnceFunc(func() {
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		for gate := logs.NewGate(); ; {
			time.Sleep(lookAfter)
			zap.New(gate.Bound(caddy.Log().Core())).Named("mnemogate").Info("Caddy is stopping")
			if gate.Stuck() {
				os.Exit(caddy.ExitCodeForceQuit)
			}
		}
	}()
})
