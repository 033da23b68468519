package gate

import (
	"errors"
	"fmt"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type success struct {
	Status string `json:"status"`
	flows.Reply
}

type failure struct {
	Status string `json:"status"`
	// The code to decide by.
	ErrorCode string `json:"error_code"`
	// What is wrong and what to do, for the client's developer.
	Message string `json:"message"`
	// The cause, if an error_code has several.
	Reason wire.Reason `json:"reason,omitempty"`
	// The next attempt needs a captcha_response.
	CaptchaRequired bool `json:"captcha_required,omitempty"`
	// Names this refusal in the server's log, the account's history and the trace: 10 random
	// characters of Crockford's base32. Show it to the user where you offer support.
	Ref string `json:"ref"`
	// The disclaimers that the user must accept.
	DisclaimersRequired []wire.Disclaimer `json:"disclaimers_required,omitzero"`
}

// refuse answers every error.
func (h *Handler) refuse(w http.ResponseWriter, r *http.Request, err error) {
	err = wire.WithRef(err)
	logRefusal(r, err)
	trace.SpanFromContext(r.Context()).SetAttributes(refOf(err)) // of Caddy's tracing, if there is one
	code, ok := errors.AsType[*wire.Error](err)
	if !ok {
		h.log.Error("internal error; please report it", "error", err, "ref", wire.RefOf(err))
		code = wire.ErrService
	}
	if code == wire.ErrService {
		app.CountDefect()
	}
	body := failure{Status: "error", ErrorCode: code.Code, Message: code.Message, Ref: wire.RefOf(err)}
	header := w.Header()
	var lacks string
	if code == wire.ErrMethod {
		header.Set("Allow", http.MethodPost)
	}
	if refusal, ok := errors.AsType[*wire.Refusal](err); ok {
		if refusal.Message != "" {
			body.Message = refusal.Message
		}
		body.Reason = refusal.Reason
		lacks = lackOf(refusal)
		body.CaptchaRequired = refusal.Captcha
		body.DisclaimersRequired = refusal.Disclaimers
		if refusal.Allow != "" {
			header.Set("Allow", refusal.Allow)
		}
		if refusal.RetryAfter > 0 {
			bodies.SetRetryAfter(header, code.Status, refusal.RetryAfter)
		}
	}
	if challenge := challengeFor(code, lacks); challenge != "" {
		header.Set("WWW-Authenticate", challenge)
	}
	_, status := wire.ResultOf(r.Context(), err)
	bodies.WriteJSON(w, status, body)
}

// refOf returns the attribute of a span that has the ref of an error.
func refOf(err error) attribute.KeyValue { return attribute.String("mnemogate.ref", wire.RefOf(err)) }

// lackOf returns what the login of a session lacks, as a parameter of the challenge, or "".
func lackOf(refusal *wire.Refusal) string {
	switch {
	case refusal.Reason == wire.OneFactor:
		return `acr_values="mfa"`
	case refusal.MaxAge > 0:
		return fmt.Sprintf(`max_age="%d"`, refusal.MaxAge/time.Second)
	}
	return ""
}

// challengeFor returns the WWW-Authenticate header (RFC 6750, section 3). It is set
// on every 401, and on the other answers about a token. The realm is the same for
// all companies: a company's code would tell strangers which companies exist. If
// the login lacks something, the header says so as in RFC 9470, section 3.
func challengeFor(code *wire.Error, lacks string) string {
	challenge := bodies.Challenge
	if lacks != "" {
		return challenge + `, error="insufficient_user_authentication", ` + lacks
	}
	switch code {
	case wire.ErrHeaderInvalid:
		challenge += `, error="invalid_request"`
	case wire.ErrTokenInvalid, wire.ErrTokenExpired:
		challenge += `, error="invalid_token"`
	case wire.ErrSessionInvalid:
		challenge += `, error="insufficient_scope"`
	default:
		if code.Status != http.StatusUnauthorized {
			return ""
		}
	}
	return challenge
}
