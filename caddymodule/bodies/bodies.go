// Package bodies bounds the time that a client takes to send the body of a request
// that goes no further than mnemogate. Caddy by itself lets it take any time, as long
// as a byte comes now and then, and each such client costs memory and keeps Caddy from
// exiting.
package bodies

import (
	"io"
	"net/http"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
)

// Within is how long a client may take to send a body.
const Within = 10 * time.Second

// linger is how long a connection stays open after an answer that did not wait for the
// body. A connection that is closed while the client sends is reset, and a client that
// sees the reset never reads the answer.
const linger = time.Second

// Limit is for every request that mnemogate answers itself, before anything else. The
// client has Within from now to send the body. The connection closes after the answer:
// the server would otherwise read the body first. Read undoes both.
//
// Call the function that Limit returns once the answer is written. It sends the answer,
// and reads what the client still sends until linger is over.
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
			return // Read was called
		}
		_ = http.NewResponseController(w).Flush()
		setDeadline(w, r, time.Now().Add(linger))
		_ = panics.Contain(func() error { // a body that another handler has wrapped may panic
			_, err := io.Copy(io.Discard, r.Body)
			return err
		})
	}
}

// Read is for a request whose body was read to its end, or is read with deadlines of
// its own.
func Read(w http.ResponseWriter, r *http.Request) {
	w.Header().Del("Connection")
	setDeadline(w, r, time.Time{}) // it would else end the request
}

// setDeadline leaves a stricter bound of the server (timeouts read_body) alone.
func setDeadline(w http.ResponseWriter, r *http.Request, until time.Time) {
	if s, ok := r.Context().Value(http.ServerContextKey).(*http.Server); ok && 0 < s.ReadTimeout && s.ReadTimeout < Within {
		return
	}
	_ = http.NewResponseController(w).SetReadDeadline(until) // where a server can't, there is no bound
}
