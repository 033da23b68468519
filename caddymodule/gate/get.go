package gate

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The GET routes next to the auth routes: captcha challenges and the client's
// configuration, which need the API key and no token, the module client.js, and the keys
// of assertions. The OpenAPI document is in openapi.go, sessions are in session.go.

// challengePath is the path of captcha pow's challenges below /{company_code}/.
const challengePath = "v2/captcha"

// clientPath is the path, below /{company_code}/, of the configuration that a client
// needs before a login.
const clientPath = "v2/client.json"

// serveChallenge answers with a challenge. The route exists only if the company uses
// captcha pow.
func (h *Handler) serveChallenge(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	var made flows.Challenge
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		made, err = service.Challenge(r.Context(), h.request(w, r, t))
		return err
	})
	return struct {
		Status string `json:"status"`
		flows.Challenge
	}{"success", made}, err
}

// modulePath and typesPath are the paths of client.js and its types below
// /{company_code}/. They need no API key, since the import of a module can't send
// one.
const (
	modulePath = "v2/client.js"
	typesPath  = "v2/client.d.ts"
)

func (h *Handler) serveModule(w http.ResponseWriter, r *http.Request, _ target) (body any, err error) {
	page.ServeModule(w, r, r.URL.Path)
	return nil, nil
}

// serveClientConfig answers with the company's configuration for clients.
func (h *Handler) serveClientConfig(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	w.Header().Add("Vary", "Accept-Language")
	err = h.withService(r.Context(), func(service *flows.Service) error {
		of := h.request(w, r, t)
		config, err := service.ClientConfig(r.Context(), of)
		if err == nil {
			body = h.clientConfig(r, config, of)
		}
		return err
	})
	return body, err
}

type configAnswer struct {
	Status string `json:"status"`
	tenant.ClientConfig
	page.Config
	// Whether logged-in users can manage their own login, with the routes below me/.
	SelfService bool `json:"self_service"`
	// Whether sessions can be raised, with the route stepup.
	StepUp bool `json:"step_up"`
}

// clientConfig returns the company's configuration for clients, which the login page
// carries, too.
func (h *Handler) clientConfig(r *http.Request, config tenant.ClientConfig, of *flows.Request) any {
	return configAnswer{"success", config, h.pageConfig(r, of, config.OAuth), h.SelfService > 0, h.stepsUp()}
}

// keySetPath is the path of the keys that verify assertions, below /{company_code}/.
const keySetPath = "v2/jwks.json"

// serveKeySet answers with a company's public keys. They are no secret, so no API key is
// needed.
func (h *Handler) serveKeySet(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	var keys []byte
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		if service.Companies[t.company] == nil {
			return wire.ErrNoRoute
		}
		keys, err = h.sender.PublishedKeys(r.Context(), t.company)
		return err
	})
	if err != nil {
		err = wire.WithRef(err)
		h.app.WarnUnanswered(h.log, err)
		return nil, err
	}
	bodies.Write(w, http.StatusOK, "public, max-age=300", keys)
	return nil, nil
}
