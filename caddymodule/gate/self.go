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
	route, id, err := selfservice.Find(r.Method, strings.TrimPrefix(t.rest, selfPrefix))
	if err != nil {
		return nil, err
	}
	w.Header().Add("Vary", h.vary())
	r = r.WithContext(record.WithStoreTime(r.Context()))
	request := h.request(w, r, t)
	var found record.Session
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		defer func() {
			if err == nil {
				return
			}
			if err = wire.WithRef(err); r.Method != http.MethodGet {
				service.ChangeFailed(r.Context(), route.Name(), request.Client, found, err)
			}
		}()
		defer h.contain(&err)
		var company *tenant.Company
		if company, found, err = service.User(r.Context(), request, 0); err != nil {
			return err
		}
		setUser(r, &found)
		user, err := manage.NewSelf(r.Context(), service.Manager, company, found, request.Client)
		if err != nil {
			return err
		}
		missing := h.SelfServiceMFA && user.LacksFactor()
		if missing && route.ChangesFactors() {
			return session.ErrOneFactor
		}
		var fresh time.Duration // how old the login may be; 0 for any age
		change := route.IsChange(user, id)
		if change {
			fresh = time.Duration(h.SelfService)
			if _, _, err = service.Quiet().User(r.Context(), request, fresh); err != nil {
				return err
			}
		}
		body, err = route.Serve(selfservice.Call{
			Request:    r,
			Self:       user,
			ID:         id,
			Change:     change,
			FreshFor:   time.Duration(h.SelfService),
			MFAMissing: missing,
			ReadBody: func() ([]byte, error) {
				body, err := h.body(w, r, t)
				if err == nil { // it may have come slowly, and the session ended meanwhile
					_, _, err = service.Quiet().User(r.Context(), request, fresh)
				}
				return body, err
			},
			Accepted: t.once.accept,
			LoggedOut: func() {
				if _, byCookie, _ := h.credentials(r); byCookie {
					h.clearCookie(w)
				}
			},
		})
		return err
	})
	if err != nil {
		err = wire.WithRef(err) // before Serve was called, it has none
		h.app.WarnUnanswered(r.Context(), h.log, err)
	}
	return body, err
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
