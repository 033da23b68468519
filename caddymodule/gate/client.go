package gate

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// clientPath is the path, below /{company_code}/, of the configuration that a client
// needs before a login.
const clientPath = "v2/client.json"

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
