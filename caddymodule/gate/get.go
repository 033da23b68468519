package gate

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// What is answered here beside the auth routes: the OpenAPI document, see
// openapi.go, challenges, and what clients must know, with the API key and no token,
// and the module client.js; sessions, see session.go.

// challengePath is where, behind /{company_code}/, challenges of captcha pow are.
const challengePath = "v2/captcha"

// clientPath is where, behind /{company_code}/, a client learns what it must know
// before a login.
const clientPath = "v2/client.json"

// serveChallenge answers with a challenge. Where the company has another captcha,
// there is no such route.
func (h *Handler) serveChallenge(w http.ResponseWriter, r *http.Request, t target) {
	var made flows.Challenge
	err := h.get(r, func(service *flows.Service) (err error) {
		made, err = service.Challenge(r.Context(), &flows.Request{Company: t.company, APIKeys: r.Header[apiKeyHeader], PageKey: h.hasPage(t.company)})
		return err
	})
	if err != nil {
		h.refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Status string `json:"status"`
		flows.Challenge
	}{"success", made})
}

// modulePath and typesPath are where, behind /{company_code}/, client.js and its types
// are: without an API key, which what imports a module can't send.
const (
	modulePath = "v2/client.js"
	typesPath  = "v2/client.d.ts"
)

func (h *Handler) serveModule(w http.ResponseWriter, r *http.Request, _ target) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.refuse(w, errGetOnly)
		return
	}
	page.ServeModule(w, r, r.URL.Path)
}

// serveClientConfig answers with what clients must know of the company.
func (h *Handler) serveClientConfig(w http.ResponseWriter, r *http.Request, t target) {
	w.Header().Add("Vary", "Accept-Language")
	var config tenant.ClientConfig
	err := h.get(r, func(service *flows.Service) (err error) {
		config, err = service.ClientConfig(r.Context(), &flows.Request{
			Company: t.company, APIKeys: r.Header[apiKeyHeader], PageKey: h.hasPage(t.company), Languages: languagesOf(r),
		})
		return err
	})
	if err != nil {
		h.refuse(w, err)
		return
	}
	writeJSON(w, http.StatusOK, struct {
		Status string `json:"status"`
		tenant.ClientConfig
	}{"success", config})
}

// get calls f with the service, if the method is GET.
func (h *Handler) get(r *http.Request, f func(*flows.Service) error) error {
	if r.Method != http.MethodGet {
		return errGetOnly
	}
	return h.withService(r.Context(), f)
}

// errGetOnly is ErrMethod where only GET will do.
var errGetOnly = &wire.Error{
	Code:    wire.ErrMethod.Code,
	Status:  http.StatusMethodNotAllowed,
	Message: "Use GET.",
}
