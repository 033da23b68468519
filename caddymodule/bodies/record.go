package bodies

import (
	"encoding/json"
	"net/http"
	"slices"
)

// ReplayedHeader is a header of answers that were given before to the same request.
const ReplayedHeader = "Idempotent-Replayed"

// A Recorder is an answer that was not sent yet. The zero value is ready to use.
type Recorder struct {
	Status int         `json:"status"`
	Fields http.Header `json:"fields"`
	Body   []byte      `json:"body"`
}

// Header implements http.ResponseWriter.
func (r *Recorder) Header() http.Header {
	if r.Fields == nil {
		r.Fields = http.Header{}
	}
	return r.Fields
}

// WriteHeader implements http.ResponseWriter.
func (r *Recorder) WriteHeader(status int) { r.Status = status }

// Write implements http.ResponseWriter.
func (r *Recorder) Write(p []byte) (int, error) {
	r.Body = append(r.Body, p...)
	return len(p), nil
}

// Kept returns the answer as bytes, or nil if it is not kept: it was not accepted, or
// the client should try again later.
func (r *Recorder) Kept(accepted bool) []byte {
	if !accepted || r.Status >= http.StatusInternalServerError || r.Status == http.StatusTooManyRequests {
		return nil
	}
	kept, _ := json.Marshal(r) // it has only texts and bytes
	return kept
}

// Send sends the answer or, if it is replayed, the one that was kept.
func (r *Recorder) Send(w http.ResponseWriter, kept []byte, replayed bool) {
	if replayed {
		_ = json.Unmarshal(kept, r) // it comes from Kept: its seal was checked
		w.Header().Set(ReplayedHeader, "true")
	}
	for name, values := range r.Fields {
		w.Header()[name] = slices.Concat(w.Header()[name], values)
	}
	w.WriteHeader(r.Status)
	_, _ = w.Write(r.Body) // the client may be gone
}
