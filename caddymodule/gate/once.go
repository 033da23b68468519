package gate

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// keptAnswers is how long an answer is kept for a client that did not get it.
const keptAnswers = time.Minute

// An attempt is what is known of a request with an Idempotency-Key. Its methods may be
// called on a nil attempt.
type attempt struct {
	body     []byte
	err      error // of reading the body
	accepted bool  // the API key, the token and the body were
}

func (a *attempt) accept() {
	if a != nil {
		a.accepted = true
	}
}

// mayRepeat reports whether a request has an Idempotency-Key that counts.
func mayRepeat(r *http.Request, t target) bool {
	switch {
	case r.Header[flows.IdempotencyKeyHeader] == nil:
		return false
	case t.kind == authRoute:
		return r.Method == http.MethodPost && !t.route.Unkept
	case t.kind == sessionRoute: // DELETE clears the cookie each time
		return r.Method == http.MethodPost
	}
	return t.kind == selfRoute && (r.Method == http.MethodPost || r.Method == http.MethodDelete)
}

// serveOnce is respond for a request that may have been answered before.
func (h *Handler) serveOnce(w http.ResponseWriter, r *http.Request, t target) {
	began := time.Now()
	err := h.withService(r.Context(), func(service *flows.Service) error {
		request := h.request(w, r, t)
		what, ok, err := h.repeatable(w, r, service, request, &t)
		switch {
		case ok:
			err = h.respondOnce(w, r, service, what, t)
		case err == nil:
			h.respond(w, r, t)
		}
		if err != nil && t.kind == authRoute {
			err = wire.WithRef(err)
			service.Refused(r.Context(), request, err)
		}
		return err
	})
	if err != nil {
		err = wire.WithRef(err)
		if t.kind == authRoute {
			h.app.CountRequest(r.Context(), t.company, t.route, began, record.None, err)
		}
		h.app.WarnUnanswered(r.Context(), h.log, err)
		h.refuse(w, r, err)
	}
}

// repeatable returns what makes a request the same as another, and reads its body into t. It
// is not ok without an error if the request will be refused before its body counts. The request
// is then answered as without the header.
func (h *Handler) repeatable(w http.ResponseWriter, r *http.Request, service *flows.Service, request *flows.Request, t *target) (what flows.Repeatable, ok bool, err error) {
	credentials, refused := r.Header["Authorization"], error(nil)
	if t.kind == selfRoute || t.kind == authRoute && t.route.StepsUp { // which take a cookie
		credentials, _, refused = h.credentials(r)
	}
	device, foreign := "", error(nil)
	if t.kind != sessionRoute { // a lost answer may have set this cookie
		device, foreign = h.device(r)
	}
	if refused != nil || foreign != nil || !service.Admits(r.Context(), request) {
		return what, false, nil
	}
	key, ok := flows.IdempotencyKey(r.Header[flows.IdempotencyKeyHeader])
	if !ok {
		return what, false, wire.Invalid("Send one Idempotency-Key of 1 to 255 visible ASCII characters.")
	}
	t.once = &attempt{}
	if t.once.body, t.once.err = readBody(w, r, h.MaxBody, jsonBody); t.once.err != nil {
		return what, false, nil
	}
	return flows.Repeatable{
		Key:         key,
		Route:       r.Method + " " + r.URL.RequestURI(),
		Credentials: slices.Concat(request.APIKeys, []string{device, "credentials"}, credentials),
		Body:        t.once.body,
		KeepFor:     keptAnswers,
		Address:     clientAddress(r),
		Token:       t.kind != authRoute || t.route.TakesToken(),
		Later:       h.app.Later,
	}, true, nil
}

// respondOnce is respond, unless the same request was answered before: then it repeats that
// answer.
func (h *Handler) respondOnce(w http.ResponseWriter, r *http.Request, service *flows.Service, what flows.Repeatable, t target) error {
	answer := &bodies.Recorder{}
	kept, replayed, err := service.Once(r.Context(), what, func(ctx context.Context) []byte {
		h.respond(answer, r.WithContext(ctx), t)
		return answer.Kept(t.once.accepted)
	})
	if err == nil {
		app.CountReplay(replayed)
		answer.Send(w, kept, replayed)
	}
	return err
}

// body returns the body of a request, which may have been read before.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, t target) ([]byte, error) {
	if t.once != nil {
		return t.once.body, t.once.err
	}
	return readBody(w, r, h.MaxBody, jsonBody)
}
