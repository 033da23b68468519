package gate

import (
	"net/http"
	"slices"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"go.uber.org/zap"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/gate/identity"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// guard passes a request to the application if its token is valid.
func (h *Handler) guard(w http.ResponseWriter, r *http.Request, t target, next caddyhttp.Handler) error {
	if unusual := h.sender.Strip(r); unusual && t.asked {
		app.CountProtected(r.Context(), errSpelling, false)
		h.deny(w, r, errSpelling) // the other proxy removes only the usual ones
		return nil
	}
	v, err := h.admit(r, t)
	app.CountProtected(r.Context(), err, v.isNobody())
	if err != nil {
		err = wire.WithRef(err)
		h.app.WarnUnanswered(r.Context(), h.log, err)
		h.noteRefused(r, v.session, err)
		if h.redirectToLogin(w, r, t, v.session, err) {
			logRefusal(r, err)
		} else {
			h.deny(w, r, err)
		}
		return nil
	}
	if t.asked {
		h.answerCheck(w, r, v)
		return nil
	}
	return h.pass(w, r, v, next)
}

// A visitor is the user of a request that may pass. The zero value is nobody, who may pass on
// public paths.
type visitor struct {
	session   record.Session
	assertion string // about the user, if the site sends one
}

func (v *visitor) isNobody() bool { return v.session.State == record.None }

// logRefusal adds to the access log why a request was refused.
func logRefusal(r *http.Request, err error) {
	result, _ := wire.ResultOf(r.Context(), err)
	why := notEmpty("error_code", result, "reason", string(wire.ReasonOf(err)), "ref", wire.RefOf(err))
	if own := redactedLogOf(r); own != nil {
		own.why = why
	}
	logs.AddToAccessLog(r, why...)
}

// noteRefused adds to the access log whose request was refused, if its session is authorized.
// If the session is not enough for the request, it also emits an event.
func (h *Handler) noteRefused(r *http.Request, found record.Session, err error) {
	if found.State != record.Authorized {
		return
	}
	setUser(r, &found)
	if wire.CodeOf(err) != wire.ErrSessionInvalid {
		return
	}
	reason := wire.ReasonOf(err)
	rule := h.Pattern(map[wire.Reason]string{wire.WrongRole: "role", wire.OneFactor: "mfa", wire.TooOld: "fresh"}[reason], r.URL)
	_ = h.withService(r.Context(), func(service *flows.Service) error {
		service.RequestRefused(r.Context(), found, session.Client{Address: clientAddress(r), UserAgent: r.UserAgent()}, rule, err)
		return nil
	})
}

// deny answers a request that may not pass, or may not pass any longer.
func (h *Handler) deny(w http.ResponseWriter, r *http.Request, err error) {
	defer bodies.Limit(w, r)()
	w.Header().Add("Vary", h.vary())
	h.refuse(w, r, err)
}

// admit returns the visitor of a request that may pass.
func (h *Handler) admit(r *http.Request, t target) (visitor, error) {
	if r.Method == http.MethodTrace || r.Method == http.MethodConnect && !isExtendedWebSocket(r) {
		return visitor{}, errMethodNotAllowed
	}
	if !h.IsPublic(r.URL) {
		return h.authorize(r, t)
	}
	if lines, _ := h.sentCredentials(r); lines != nil { // without a token it asks no store: health checks must not wait for one
		v, err := h.authorize(r, t)
		if err == nil {
			return v, nil
		}
		h.app.WarnUnanswered(r.Context(), h.log, err)
	}
	return visitor{}, nil
}

// authorize returns the visitor that a request's token stands for. With an error, it has the
// session that is not enough, if there is one.
func (h *Handler) authorize(r *http.Request, t target) (v visitor, err error) {
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		company, ambiguous := h.named(t)
		if h.RequireAPIKey { // the token must belong to the key's company
			if company, err = keyOwner(service, company, r.Header[apiKeyHeader]); err != nil {
				return err
			}
			if !h.Serves(company) {
				return wire.ErrAPIKeyInvalid
			}
		}
		credentials, byCookie, err := h.credentials(r)
		if err != nil {
			return err
		}
		want := session.Requirement{Company: company, Companies: h.Companies, Whole: h.sender.Whole()}
		want.Fresh, want.RoleAllowed, want.TwoFactors = h.Needs(r.URL)
		if !byCookie {
			want.Covers = func(t *record.IssuedToken) bool { return covers(t, r) }
		}
		if v.session, err = service.Authorize(r.Context(), want, credentials); err != nil {
			return err
		}
		if ambiguous {
			return wire.ErrTokenInvalid // a token belongs to one company only
		}
		v.assertion, err = h.sender.Assert(r, &v.session)
		return err
	})
	return v, err
}

// covers reports whether an issued token opens the path and method of a request.
func covers(t *record.IssuedToken, r *http.Request) bool {
	method := r.Method
	if (method == http.MethodHead || method == http.MethodConnect) && !slices.Contains(t.Methods, method) { // CONNECT opens a WebSocket here
		method = http.MethodGet
	}
	return slices.Contains(t.Methods, method) && !identity.OverridesMethod(r.Header) && paths.Cover(t.Paths, r.URL)
}

// identify tells the application who the user is. For a request without a session it
// only removes the credentials.
func (h *Handler) identify(r *http.Request, v *visitor) {
	if !h.ForwardAuthorization || v.isNobody() || !bringsToken(r) {
		delete(r.Header, "Authorization")
	}
	delete(r.Header, apiKeyHeader)
	h.dropCookies(r)
	if v.isNobody() {
		setNobody(r)
	} else {
		h.setIdentity(r.Header, r, v)
	}
}

// setNobody makes the placeholders of the user empty: Caddy leaves those that it does not know
// as they are, and the application would get their names. It keeps the user of basic_auth.
func setNobody(r *http.Request) {
	repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer)
	if !ok {
		return
	}
	for _, name := range []string{userPlaceholder, companyPlaceholder} {
		if _, set := repl.Get(name); !set {
			repl.Set(name, "")
		}
	}
}

const (
	userPlaceholder    = "http.auth.user.id"
	companyPlaceholder = "http.auth.user.company"
)

// setIdentity sets the identity headers, and tells Caddy who the user is.
func (h *Handler) setIdentity(header http.Header, r *http.Request, v *visitor) {
	h.sender.Set(header, &v.session, v.assertion)
	setUser(r, &v.session)
}

// setUser tells Caddy's own directives and its access log who the user is, and the log with
// which session the request came, or with which issued token and who acts as the user.
func setUser(r *http.Request, session *record.Session) {
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		repl.Set(userPlaceholder, session.Mnemocode)
		repl.Set(companyPlaceholder, session.Company)
	}
	if !logs.HasAccessLog(r) { // fields that nobody reads cost as much
		return
	}
	who := []zap.Field{zap.String("session", session.ID)}
	if issued := session.Issued; issued != nil {
		who = notEmpty("token", issued.ID, "actor", issued.Actor)
	}
	if own := redactedLogOf(r); own != nil {
		own.who = who
	}
	logs.AddToAccessLog(r, who...)
}

// named returns the configured company that a path names, and whether the path can
// also be read as naming another one.
func (h *Handler) named(t target) (company string, ambiguous bool) {
	if h.app.Companies[t.company] != nil {
		company = t.company
	}
	for _, other := range t.others {
		if other == company || h.app.Companies[other] == nil {
			continue
		}
		if company != "" {
			return company, true
		}
		company = other
	}
	return company, false
}

// keyOwner returns the company that the API key belongs to. If the path names a
// company, the key must be that company's.
func keyOwner(service *flows.Service, company string, keys []string) (string, error) {
	var owner *tenant.Company
	var err error
	if company != "" {
		owner, _, err = service.Company(company, keys)
	} else {
		owner, err = service.CompanyByKey(keys)
	}
	if err != nil {
		return "", err
	}
	return owner.Code, nil
}

// errMethodNotAllowed is ErrMethod for the two methods that never pass.
var errMethodNotAllowed = wire.NotAllowed("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS", "CONNECT and TRACE are not allowed. Use another method.")
