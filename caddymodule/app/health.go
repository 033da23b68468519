package app

import (
	"context"
	"crypto/rand"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

const (
	healthWithin = 2 * time.Second // as long as a request may wait for a store
	healthFor    = time.Second     // how long the last answer counts
)

// health is the last known health of this node.
type health struct {
	mu   sync.Mutex
	at   time.Time
	good bool
}

// Healthy reports whether this node has started, its stores answer within 2 s, and its logs
// take their lines. With the query `ready` it reports only whether the node has started. It
// asks the stores at most once a second, however many requests there are.
func (a *App) Healthy(r *http.Request) bool {
	if r.URL.Query().Has("ready") {
		_, err := a.Service(r.Context())
		return err == nil
	}
	h := &a.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.at) >= healthFor {
		h.good = a.answers()
		h.at = time.Now()
	}
	return h.good && !logs.Stuck()
}

// answers reports whether the stores answer within 2 s.
func (a *App) answers() bool {
	looked := make(chan error, 1)
	go func() { looked <- panics.ContainLogged(a.log, "looking at the stores", a.readStores) }()
	select {
	case err := <-looked:
		return err == nil
	case <-time.After(healthWithin): // SQLite gives up no read that a stuck disk holds
		return false
	}
}

// readStores reads from each store a record that does not exist.
func (a *App) readStores() error {
	ctx, cancel := context.WithTimeout(context.Background(), healthWithin)
	defer cancel()
	service, err := a.Service(ctx)
	if err != nil {
		return err
	}
	if _, err := service.Accounts.FailureCounts(ctx, record.FailureKey{Company: "/health", LoginID: "health"}); err != nil {
		return err
	}
	_, err = service.Sessions.Get(ctx, record.HashToken(rand.Text()))
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	return err
}
