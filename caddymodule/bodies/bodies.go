// Package bodies limits the time that a client may take to send a body to mnemogate
// itself, and writes JSON answers. By default Caddy lets a client send as slowly as
// it likes, if a byte arrives now and then. Each such client uses memory and keeps
// Caddy from exiting.
package bodies

import (
	"bytes"
	"encoding/json"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Within is how long a client may take to send a body.
const Within = 10 * time.Second

// linger is how long a connection stays open after an answer that did not wait for the
// body. A connection that is closed while the client sends is reset, and a client that
// sees the reset never reads the answer.
const linger = time.Second

// IsEarly reports whether a request came in early data (QUIC's 0-RTT, RFC 8470). It may be a
// copy of another request, and its address may be forged.
func IsEarly(r *http.Request) bool { return r.TLS != nil && !r.TLS.HandshakeComplete }

// Limit limits the time for the body to Within from now. Call it first for every
// request that mnemogate answers itself. It also closes the connection after the
// answer, since the server would otherwise read the body before it sends the answer.
// Unlimit undoes both.
//
// Call the function that Limit returns after you have written the answer. It sends
// the answer, and reads what the client still sends until linger has passed.
func Limit(w http.ResponseWriter, r *http.Request) (answered func()) {
	if r.ContentLength == 0 {
		return func() {}
	}
	setDeadline(w, r, time.Now().Add(Within))
	if r.ProtoMajor != 1 {
		return func() {}
	}
	w.Header().Set("Connection", "close")
	return func() {
		if w.Header().Get("Connection") != "close" {
			return // Unlimit was called
		}
		Linger(w, r, r.Body)
	}
}

// Linger sends an answer over HTTP/1 that did not wait for the end of the body, reads what
// the client still sends until linger has passed, and closes the connection.
func Linger(w http.ResponseWriter, r *http.Request, body io.Reader) {
	err := panics.Contain(func() error { // a hijacked connection panics, and a body that another handler has wrapped may
		if err := http.NewResponseController(w).Flush(); err != nil {
			return err
		}
		setDeadline(w, r, time.Now().Add(linger))
		_, err := io.Copy(io.Discard, body)
		return err
	})
	if err != nil {
		HangUp(w)
	}
}

// HangUp closes the connection after the answer, whatever other handlers make of the header
// Connection. Call it for a request over HTTP/1 whose body may not have ended. The server
// can't see who has closed the body, and would read the rest as further requests.
func HangUp(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	for {
		outer, ok := w.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		w = outer.Unwrap()
	}
	// Only a MaxBytesReader whose limit is exceeded can tell the server.
	_, _ = http.MaxBytesReader(w, io.NopCloser(strings.NewReader("x")), 0).Read(make([]byte, 1))
}

// Unlimit removes the limits of Limit. Call it if the body was read completely, or if
// you set other deadlines.
func Unlimit(w http.ResponseWriter, r *http.Request) {
	w.Header().Del("Connection")
	setDeadline(w, r, time.Time{}) // the deadline would otherwise end the request
}

// End makes reading the body fail from now on. Closing it does not: over HTTP/1 the
// server then reads the rest, for as long as the client takes to send it.
func End(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength != 0 && r.ProtoMajor == 1 {
		setDeadline(w, r, time.Now())
	}
}

// Streamed returns the body of a request that may take long. Instead of the time of Limit,
// the client may pause for up to stall.
func Streamed(w http.ResponseWriter, r *http.Request, stall time.Duration) io.Reader {
	setDeadline(w, r, time.Time{})
	return readerFunc(func(p []byte) (int, error) {
		control := http.NewResponseController(w)
		_ = control.SetReadDeadline(time.Now().Add(stall))
		n, err := r.Body.Read(p)
		if err == io.EOF { // a deadline that is set after the end of the body ends the request
			_ = control.SetReadDeadline(time.Time{})
		}
		return n, err
	})
}

// piece is how much of an answer a client must read within stall.
const piece = 64 << 10

// Streaming returns a writer for an answer that may take long. The client may take up to
// stall to read each piece.
func Streaming(w http.ResponseWriter, r *http.Request, stall time.Duration) io.Writer {
	control := http.NewResponseController(w)
	return writerFunc(func(p []byte) (n int, err error) {
		if r.ProtoMajor > 1 { // there a deadline ends the request, even if nothing is written
			defer func() { _ = control.SetWriteDeadline(time.Time{}) }()
		}
		for part := range slices.Chunk(p, piece) {
			_ = control.SetWriteDeadline(time.Now().Add(stall))
			wrote, err := w.Write(part)
			if n += wrote; err != nil {
				return n, err
			}
		}
		return n, nil
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// setDeadline keeps a stricter limit of the server (timeouts read_body).
func setDeadline(w http.ResponseWriter, r *http.Request, until time.Time) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && 0 < s.ReadTimeout && s.ReadTimeout < Within {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(until) // without support by the server there is no limit
}

// IsEmpty reports whether a body is fit for a route that takes none: some clients send
// an empty object or null there.
func IsEmpty(body []byte) bool {
	switch string(bytes.TrimSpace(body)) {
	case "", "{}", "null":
		return true
	}
	return false
}

// Challenge is a WWW-Authenticate, or its beginning (RFC 6750, section 3).
const Challenge = `Bearer realm="mnemogate"`

// retrySpread is the time over which clients that got 503 at once come back.
const retrySpread = 3 * time.Second

// SetRetryAfter sets the header Retry-After of an answer. With 503 it adds up to retrySpread
// to a time of at most wire.RetrySoon, since many clients may have got the same.
func SetRetryAfter(header http.Header, status int, after time.Duration) {
	if status == http.StatusServiceUnavailable && after <= wire.RetrySoon {
		after += rand.N(retrySpread)
	}
	header.Set("Retry-After", strconv.Itoa(int(math.Ceil(after.Seconds()))))
}

// WriteJSON answers with JSON that nobody may keep.
func WriteJSON(w http.ResponseWriter, status int, body any) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false) // the body is not HTML, and people read it
	_ = encoder.Encode(body)     // plain structs; a buffer accepts every write
	Write(w, status, "no-store", b.Bytes())
}

// Write answers with JSON. caching is the Cache-Control.
func Write(w http.ResponseWriter, status int, caching string, body []byte) {
	header := w.Header()
	header.Set("Content-Type", "application/json")
	header.Set("Cache-Control", caching)
	header.Set("X-Content-Type-Options", "nosniff")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body) // the client may be gone
}
