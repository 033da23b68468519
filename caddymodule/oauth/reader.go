package oauth

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"
	"golang.org/x/sync/singleflight"

	"github.com/mnemogate/mnemogate/flows/panics"
)

// askAgain is how long a reader repeats an answer before it asks again.
const askAgain = 3 * time.Second

// A reader is a RoundTripper for one document that anybody may read. However many callers
// there are, and whatever the answer was, it asks at most once in askAgain: users can make
// it ask, for example by ID tokens with unknown keys.
type reader struct {
	of     *OIDC
	tidy   func([]byte) []byte // what callers get of a body; nil: all of it
	flight singleflight.Group  // guards what follows
	asked  time.Time
	last   reading
}

type reading struct {
	resp http.Response
	body []byte
	err  error
}

// RoundTrip implements http.RoundTripper. Each caller waits no longer than its own context
// allows.
func (r *reader) RoundTrip(req *http.Request) (*http.Response, error) {
	answer := r.flight.DoChan("", func() (any, error) {
		if r.of.now().Sub(r.asked) >= askAgain {
			r.last = r.read(req.Clone(context.WithoutCancel(req.Context())))
			r.asked = r.of.now() // later, or those who left before a slow answer would not find it
		}
		return r.last, r.last.err
	})
	select {
	case <-req.Context().Done():
		return nil, req.Context().Err()
	case result := <-answer:
		if result.Err != nil {
			return nil, result.Err
		}
		last := result.Val.(reading)
		last.resp.Body = io.NopCloser(bytes.NewReader(last.body))
		return &last.resp, nil
	}
}

func (r *reader) read(req *http.Request) (got reading) {
	got.err = panics.Contain(func() error { // no caller would recover a panic in this goroutine
		resp, err := r.of.client.Do(req)
		if err != nil {
			return err
		}
		got.resp = *resp
		got.body, err = io.ReadAll(resp.Body)
		got.body = withoutBOM(got.body)
		if r.tidy != nil {
			got.body = r.tidy(got.body)
		}
		return err
	})
	return got
}

// withoutBOM removes the byte order mark that some servers write before JSON.
func withoutBOM(text []byte) []byte { return bytes.TrimPrefix(text, []byte("\ufeff")) }

// keyMembers are the members of a public key that count here. What a certificate or its
// thumbprint says does not: the keys come from the provider itself. Nor does alg, for which
// some have names of their own: the document says which algorithms a token may have.
var keyMembers = []string{"kty", "kid", "use", "crv", "x", "y", "n", "e"}

// maxKeys bounds the work for a signature, which is tried with each key that has its kid.
const maxKeys = 100

// usable leaves the first keys that can be read, as RFC 7517, section 5, wants. Otherwise
// go-oidc would refuse all for one that a provider has for others.
func (s *keySet) usable(text []byte) []byte {
	var set, usable struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if json.Unmarshal(text, &set) != nil {
		return text
	}
	var found []issuerKey
	for _, raw := range set.Keys {
		if len(found) == maxKeys {
			break
		}
		var all map[string]json.RawMessage
		if json.Unmarshal(raw, &all) != nil {
			continue
		}
		made := pick(all, keyMembers)
		var read jose.JSONWebKey
		if json.Unmarshal(made, &read) == nil {
			usable.Keys = append(usable.Keys, made)
			of := issuerKey{key: read.Key}
			_ = json.Unmarshal(all["issuer"], &of.issuer)
			found = append(found, of)
		}
	}
	if len(found) > 0 { // otherwise it may be an error, after which go-oidc keeps the keys it has
		s.last.Store(&found)
	}
	made, _ := json.Marshal(usable) // it was JSON before: never fails
	return made
}

// pick leaves members of a JSON object, by their exact names: encoding/json takes Sub for sub,
// too, and the last of both counts.
func pick(object map[string]json.RawMessage, names []string) []byte {
	picked := map[string]json.RawMessage{}
	for name, value := range object {
		if slices.Contains(names, name) {
			picked[name] = value
		}
	}
	text, _ := json.Marshal(picked) // it was JSON before: never fails
	return text
}
