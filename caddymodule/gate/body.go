package gate

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A bodyType is a media type, and the error for a body of any other.
type bodyType struct {
	name  string
	other error
}

var (
	jsonBody = bodyType{"application/json", wire.ErrMediaType}
	formBody = bodyType{"application/x-www-form-urlencoded", &wire.Refusal{Err: wire.ErrMediaType, Message: "Send the body as application/x-www-form-urlencoded."}}
)

// readBody reads a body of a type, unless the headers already show that it is not valid.
// An empty body needs no Content-Type: the route decides whether it accepts one.
func readBody(w http.ResponseWriter, r *http.Request, limit int64, want bodyType) ([]byte, error) {
	if r.ContentLength > limit {
		return nil, wire.ErrTooLarge
	}
	if r.ContentLength > 0 && !want.is(r.Header) {
		return nil, want.other
	}
	if r.ContentLength == 0 {
		return nil, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, limit+1))
	if err == nil && int64(len(body)) <= limit {
		bodies.Unlimit(w, r)
	}
	switch _, cut := errors.AsType[*http.MaxBytesError](err); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errBodySlow
	case cut: // by Caddy's request_body
		return nil, wire.ErrTooLarge
	case err != nil:
		return nil, wire.ErrValidation // the client closed the connection
	case int64(len(body)) > limit:
		return nil, wire.ErrTooLarge
	case len(body) > 0 && !want.is(r.Header):
		return nil, want.other
	}
	return body, nil
}

var errBodySlow = &wire.Refusal{Err: wire.ErrValidation, Message: "The body did not arrive in time. Send it at once."}

func (b bodyType) is(header http.Header) bool {
	types := header["Content-Type"]
	if len(types) != 1 || len(header["Content-Encoding"]) > 0 || strings.Contains(types[0], "İ") { // which ParseMediaType takes for an i
		return false
	}
	mediaType, params, err := mime.ParseMediaType(types[0])
	charset, given := params["charset"]
	return err == nil && mediaType == b.name && (!given || strings.EqualFold(charset, "utf-8"))
}

// A clientBody is the body of a request over HTTP/1. It records whether it has ended: what
// follows a body that has not is no request, but Caddy's server would read it as one.
type clientBody struct {
	io.Reader
	reading sync.Mutex // held by one of the reverse proxy, which may read beyond the answer, and Linger
	ended   atomic.Bool
}

func (b *clientBody) Read(p []byte) (int, error) {
	b.reading.Lock()
	defer b.reading.Unlock()
	n, err := b.Reader.Read(p)
	if err == io.EOF {
		b.ended.Store(true)
	}
	return n, err
}

// remains reports whether there is a body that has not ended.
func (b *clientBody) remains() bool { return b.Reader != nil && !b.ended.Load() }

// A passedBody is a clientBody that is passed on.
type passedBody struct {
	clientBody
	closed atomic.Bool
}

func (b *passedBody) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, http.ErrBodyReadAfterClose
	}
	return b.clientBody.Read(p)
}

// Close only ends Read. To close the server's body would read the rest, for as long as the
// client takes to send it, and the server would then take it for read completely.
func (b *passedBody) Close() error {
	b.closed.Store(true)
	return nil
}
