package admin

import (
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows/record"
)

// backupStall is how long a client may take to read each piece. While it reads, the
// store's log grows.
const backupStall = 10 * time.Second

// backup answers with a copy of the store. The Content-Length lets clients notice a
// response that was cut off.
func backup(c *accounts.Call) error {
	if c.Method == http.MethodHead { // nobody would have this backup, but it would count as the last one
		c.W.Header().Set("Allow", http.MethodGet)
		return &accounts.Error{Status: http.StatusMethodNotAllowed, Message: "a backup has no HEAD; use GET"}
	}
	began, size := time.Now(), int64(0)
	err := c.App.Backup(c.Context(), func(n int64) io.Writer {
		size = n
		c.Service.Emit(c.Context(), record.Event{Name: record.StoreBackedUp, Address: c.Address, Actor: record.ActorAdmin})
		header := c.W.Header()
		header.Set("Content-Type", "application/vnd.sqlite3")
		header.Set("Content-Length", strconv.FormatInt(n, 10))
		header.Set("Cache-Control", "no-store")
		return bodies.Streaming(c.W, c.Request, backupStall)
	})
	switch {
	case err != nil && size == 0:
		return err
	case err != nil:
		c.App.Log().Warn("a backup was interrupted", "address", c.Address, "error", err)
		return accounts.ErrBroken
	}
	c.App.Log().Info("a backup was taken", "address", c.Address, "bytes", size, "took", time.Since(began))
	return nil
}
