package gate

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
)

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
		h.app.WarnUnanswered(r.Context(), h.log, err)
		return nil, err
	}
	bodies.Write(w, http.StatusOK, "public, max-age=300", keys)
	return nil, nil
}
