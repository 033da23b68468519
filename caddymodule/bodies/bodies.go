// Package bodies bounds the time that a client takes to send the body of a request
// that goes no further than mnemogate. Caddy by itself lets it take any time, as long
// as a byte comes now and then, and each such client costs memory and keeps Caddy from
// exiting.
package bodies

import (
	"net/http"
	"time"
)

// Within is how long a client may take to send a body.
const Within = 10 * time.Second

// Await is for every request that is answered here, before anything else. The client
// has Within from now to send the body. The server closes the connection behind the
// answer: it would else first read what it can of the body. Read undoes both.
func Await(w http.ResponseWriter, r *http.Request) {
	if r.ContentLength == 0 {
		return
	}
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	setDeadline(w, r, time.Now().Add(Within))
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
