package gate

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/gate/selfservice"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// selfPrefix begins the paths of package selfservice below /{company_code}/.
const selfPrefix = "v2/me/"

// serveSelf answers a request to a route of self_service.
func (h *Handler) serveSelf(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	_, rest := split(h.BasePath, r.URL.EscapedPath())
	route, id, err := selfservice.Find(r.Method, strings.TrimPrefix(rest, selfPrefix))
	if err != nil {
		return nil, err
	}
	w.Header().Add("Vary", h.vary())
	r = r.WithContext(record.WithStoreTime(r.Context()))
	var found record.Session
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		defer func() {
			if err == nil {
				return
			}
			if err = wire.WithRef(err); r.Method != http.MethodGet {
				service.ChangeFailed(r.Context(), route.Name(), clientAddress(r), found, err)
			}
		}()
		var user *manage.Self
		if user, found, err = h.userOf(service, w, r, t); err != nil {
			return err
		}
		missing := h.SelfServiceMFA && user.LacksFactor()
		if missing && route.ChangesFactors() {
			return session.ErrOneFactor
		}
		fresh := route.IsChange(user, id)
		if fresh {
			if _, _, err = h.sessionOf(service, w, r, t, fresh); err != nil {
				return err
			}
		}
		body, err = route.Serve(selfservice.Call{
			Request:  r,
			Self:     user,
			ID:       id,
			FreshFor: time.Duration(h.SelfService), MFAMissing: missing,
			ReadBody: func() ([]byte, error) {
				body, err := h.body(w, r, t)
				if err == nil { // it may have come slowly, and the session ended meanwhile
					_, _, err = h.sessionOf(service, w, r, t, fresh)
				}
				return body, err
			},
			LoggedOut: func() {
				if _, byCookie := h.sentCredentials(r); byCookie {
					h.clearCookie(w)
				}
			},
		})
		if !isEarly(err) {
			t.once.accept()
		}
		return err
	})
	h.app.WarnUnanswered(h.log, err)
	return body, err
}

// sessionOf returns the company and the session of a request's logged-in user. It returns
// the session with the error if its login is too old.
func (h *Handler) sessionOf(service *flows.Service, w http.ResponseWriter, r *http.Request, t target, fresh bool) (*tenant.Company, record.Session, error) {
	var within time.Duration
	if fresh {
		within = time.Duration(h.SelfService)
	}
	return service.User(r.Context(), h.request(w, r, t), within, func() ([]string, error) { return h.credentials(r) })
}

// userOf returns the logged-in user of a request, and what sessionOf returns.
func (h *Handler) userOf(service *flows.Service, w http.ResponseWriter, r *http.Request, t target) (*manage.Self, record.Session, error) {
	company, found, err := h.sessionOf(service, w, r, t, false)
	if err != nil {
		return nil, found, err
	}
	self, err := manage.NewSelf(r.Context(), service.Manager, company, found, session.Client{Address: clientAddress(r), UserAgent: r.UserAgent()})
	return self, found, err
}

// Configuration

const (
	defaultSelfService = caddy.Duration(10 * time.Minute)
	minSelfService     = caddy.Duration(time.Second)
	maxSelfService     = caddy.Duration(24 * time.Hour)
)

func (h *Handler) checkSelfService() error {
	if s := h.SelfService; s != 0 && (s < minSelfService || s > maxSelfService) {
		return errors.New("self_service: choose 1s to 24h for how old a login may be for a change")
	}
	if h.SelfServiceMFA && h.SelfService == 0 {
		return errors.New("self_service_mfa: it needs self_service")
	}
	return nil
}

// parseSelfService parses an optional duration and the optional word mfa.
func (h *Handler) parseSelfService(d *caddyfile.Dispenser) error {
	h.SelfService = defaultSelfService
	args := d.RemainingArgs()
	if n := len(args); n > 0 && args[n-1] == "mfa" {
		h.SelfServiceMFA, args = true, args[:n-1]
	}
	if len(args) > 1 {
		return guest.ErrArguments
	}
	if len(args) == 1 {
		return guest.Duration(&h.SelfService).Parse(d, args[0])
	}
	return nil
}
