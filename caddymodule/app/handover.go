package app

import (
	"context"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// closeWithin is how long the end of a config waits for a server to close its
// listeners, which takes microseconds where nothing holds it up.
const closeWithin = time.Second

// closeFirst makes a reload answer only once the server that it replaces accepts
// no more. Caddy by itself waits until that is about to shut down. From then on
// Go's server drops without an answer what it reads (net/http, conn.serve), also
// on connections that it accepts until its listeners are closed; on a busy
// machine that took milliseconds, and who connected when the reload was done was
// not answered.
func (a *App) closeFirst(server *caddyhttp.Server) {
	closed := make(chan struct{})
	server.RegisterOnShutdown(func() { close(closed) }) // net/http calls it once the listeners are closed
	server.RegisterOnStop(func(context.Context) error {
		if !a.begun { // nor was the server: the config was only validated
			return nil
		}
		select {
		case <-closed:
		case <-time.After(closeWithin):
		}
		return nil
	})
}
