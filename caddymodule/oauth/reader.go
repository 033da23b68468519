package oauth

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"time"

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
	flight singleflight.Group // guards what follows
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
			r.asked = r.of.now()
			r.last = r.read(req.Clone(context.WithoutCancel(req.Context())))
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
		return err
	})
	return got
}
