package app

import (
	"context"
	"time"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
)

// closeWithin is how long the end of a config waits at most for a server to close its
// listeners. Normally that takes microseconds.
const closeWithin = time.Second

// closeFirst delays the end of a reload until the server that is being replaced has
// closed its listeners. Caddy by itself returns when that server is about to shut
// down. From then on, Go's server closes connections without a response (net/http,
// conn.serve), including new ones that it accepts until its listeners are closed. On
// a busy machine that took milliseconds, and clients that connected after the reload
// got no response.
func (a *App) closeFirst(server *caddyhttp.Server) {
	closed := make(chan struct{})
	server.RegisterOnShutdown(func() { close(closed) }) // net/http calls it after closing the listeners
	server.RegisterOnStop(func(context.Context) error {
		if !a.startCalled { // the server did not start either: the config was only validated
			return nil
		}
		select {
		case <-closed:
		case <-time.After(closeWithin):
		}
		return nil
	})
}
