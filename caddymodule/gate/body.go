package gate

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// bodyWithin is how long a client may take to send a body that goes no further
// than here. Caddy by itself lets it take any time, as long as a byte comes now
// and then, and each such client costs memory.
const bodyWithin = 10 * time.Second

// readUntil bounds the time for reading what is left of the body, unless the
// server has a stricter bound (timeouts read_body). The zero time lifts it.
func readUntil(w http.ResponseWriter, r *http.Request, until time.Time) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && 0 < s.ReadTimeout && s.ReadTimeout < bodyWithin {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(until) // where a server can't, there is no bound
}

// readBody reads a JSON body, unless its headers say that it won't do. An empty
// one needs no Content-Type: whether it will do is the route's to say.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, until time.Time) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, wire.ErrTooLarge
	}
	if r.ContentLength > 0 && !isJSON(r.Header) {
		return nil, wire.ErrMediaType
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	readUntil(w, r, until)
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(len(body)) <= limit {
		readUntil(w, r, time.Time{}) // it would else end the request
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errBodySlow
	case err != nil:
		return nil, wire.ErrValidation // the client broke off
	case int64(len(body)) > limit:
		return nil, wire.ErrTooLarge
	case len(body) > 0 && !isJSON(r.Header):
		return nil, wire.ErrMediaType
	}
	return body, nil
}

var errBodySlow = &wire.Refusal{Err: wire.ErrValidation, Message: "The body did not come in time; send it at once."}

func isJSON(header http.Header) bool {
	types := header["Content-Type"]
	if len(types) != 1 || len(header["Content-Encoding"]) > 0 {
		return false
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	charset, given := params["charset"]
	return err == nil && mediaType == "application/json" && (!given || strings.EqualFold(charset, "utf-8"))
}

// leaveUnread makes the server close the connection behind the answer: it would
// else first read what it can of the body. Once it has answered it still does,
// so that the client gets to see the answer, but only until then.
func leaveUnread(w http.ResponseWriter, r *http.Request, until time.Time) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
		readUntil(w, r, until)
	}
}

// A chunkedBody notes that it is malformed: what then follows on the connection
// is no request, and Caddy's server, which can't see how a wrapped body ended,
// would take it for one.
type chunkedBody struct {
	io.ReadCloser
	broken atomic.Bool
}

func (b *chunkedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF && !errors.Is(err, http.ErrBodyReadAfterClose) {
		b.broken.Store(true)
	}
	return n, err
}

// Close reads what is left, up to a limit.
func (b *chunkedBody) Close() error {
	err := b.ReadCloser.Close()
	if err != nil {
		b.broken.Store(true)
	}
	return err
}
