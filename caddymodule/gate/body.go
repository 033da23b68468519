package gate

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"os"
	"strings"
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

// A chunkedBody records whether the body is malformed. The bytes that follow a
// malformed body are not a request, but Caddy's server would read them as one, since
// it can't see how a wrapped body ended.
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

// Close reads the rest of the body, up to a limit.
func (b *chunkedBody) Close() error {
	err := b.ReadCloser.Close()
	if err != nil {
		b.broken.Store(true)
	}
	return err
}
