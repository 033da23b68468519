package gate

import (
	"net/http"

	"github.com/mnemogate/mnemogate/flows"
)

// challengePath is the path of captcha pow's challenges below /{company_code}/.
const challengePath = "v2/captcha"

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
