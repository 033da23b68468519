package gate

import (
	"errors"
	"net/http"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// sessionPath is where, behind /{company_code}/, a client finds its session again:
// after a reload of its page it may have the token, or a cookie, and nothing more.
const sessionPath = "v2/session"

// serveSession tells of the session, puts it into a cookie, or ends the cookie's.
func (h *Handler) serveSession(w http.ResponseWriter, r *http.Request, t target) {
	request := flows.Request{
		Company:       t.company,
		APIKeys:       r.Header[apiKeyHeader],
		PageKey:       h.hasPage(t.company),
		Authorization: r.Header["Authorization"],
		Address:       clientAddress(r),
		UserAgent:     r.UserAgent(),
		Languages:     languagesOf(r),
	}
	w.Header().Add("Vary", h.vary())
	var reply flows.Reply
	var do func(*flows.Service) error
	switch {
	case r.Method == http.MethodGet:
		request.Authorization, _ = h.brought(r, nil)
		do = func(service *flows.Service) (err error) {
			reply, err = service.Current(r.Context(), &request)
			return err
		}
	case r.Method == http.MethodPost && h.Cookie != "":
		former := request // the session that the browser will forget
		former.Authorization = h.cookies(r, nil)
		do = func(service *flows.Service) (err error) {
			reply, err = service.ExchangeToken(r.Context(), &request)
			if err == nil && len(former.Authorization) > 0 && !crossSite(r, h.CORS) {
				_ = service.End(r.Context(), &former) // the login goes on; that a store is away is in the log
			}
			return err
		}
	case r.Method == http.MethodDelete && h.Cookie != "":
		request.Authorization = h.cookies(r, nil)
		do = func(service *flows.Service) error {
			if request.Authorization != nil && crossSite(r, nil) {
				return errCrossSite
			}
			return service.End(r.Context(), &request)
		}
	case h.Cookie == "":
		h.refuse(w, errGetOnly)
		return
	default:
		h.refuse(w, errSessionMethod)
		return
	}
	err := h.withService(r.Context(), do)
	if r.Method == http.MethodDelete && (err == nil || errors.Is(err, wire.ErrTokenInvalid) || errors.Is(err, wire.ErrTokenExpired)) {
		h.setCookie(w, "") // it is worth nothing, or no more
		// What the browser keeps of the application's pages is not for who comes next,
		// nor for the way back (W3C Clear Site Data, 3.1).
		w.Header().Set("Clear-Site-Data", `"cache"`)
	}
	if err != nil {
		h.refuse(w, err)
		return
	}
	if r.Method == http.MethodPost {
		h.setCookie(w, reply.SessionToken)
		reply.SessionToken = "" // no script is to see it
	}
	writeJSON(w, http.StatusOK, success{Status: "success", Reply: reply})
}

// errSessionMethod is ErrMethod where the session is.
var errSessionMethod = &wire.Error{
	Code:    wire.ErrMethod.Code,
	Status:  http.StatusMethodNotAllowed,
	Message: "Use GET, POST or DELETE.",
}
