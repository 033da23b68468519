package gate

import (
	"errors"
	"net/http"
	"time"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// sessionPath is the path of the session below /{company_code}/. After a page reload
// a client may have only the token or the cookie, and finds its session again here.
const sessionPath = "v2/session"

// sessionRequest is the body with which a session moves into a cookie. Clients may
// leave it out.
type sessionRequest struct {
	// Remember asks for a cookie that outlives the browser. Sites whose login page
	// does not offer that ignore it.
	Remember bool `json:"remember"`
	// DeviceToken is the token of a known device to move into a cookie of its own.
	DeviceToken string `json:"device_token" max:"128"`
}

// serveSession reports the session, moves it into a cookie, or revokes the cookie's.
func (h *Handler) serveSession(w http.ResponseWriter, r *http.Request, t target) {
	request := flows.Request{
		Company:       t.company,
		APIKeys:       r.Header[apiKeyHeader],
		PageKey:       h.hasPage(t.company),
		Authorization: r.Header["Authorization"],
		Address:       clientAddress(r),
		UserAgent:     r.UserAgent(),
		Languages:     languagesOf(r),
		Device:        func() (string, error) { return h.device(r) },
	}
	w.Header().Add("Vary", h.vary())
	var reply flows.Reply
	var keep time.Duration // how long the browser keeps the cookie
	var device string
	var keepDevice time.Duration
	var do func(*flows.Service) error
	switch {
	case r.Method == http.MethodGet:
		request.Authorization, _ = h.brought(r, nil)
		do = func(service *flows.Service) (err error) {
			reply, err = service.Current(r.Context(), &request)
			return err
		}
	case r.Method == http.MethodPost && h.Cookie != "":
		former := request // the session that the browser is about to forget
		former.Authorization = h.cookies(r, nil)
		request.Body = func() ([]byte, error) { return readBody(w, r, h.MaxBody) }
		do = func(service *flows.Service) (err error) {
			var wants sessionRequest
			reply, err = service.ExchangeToken(r.Context(), &request, &wants)
			if err == nil && tokens.Shaped(tokens.DevicePrefix, wants.DeviceToken) {
				device, keepDevice = wants.DeviceToken, time.Duration(service.Companies[t.company].Devices.For)
			}
			if wants.Remember && h.remembers(t.company) {
				keep = time.Duration(service.Companies[t.company].Session.Lifetime)
			}
			if err == nil && len(former.Authorization) > 0 && !crossSite(r, h.CORS) {
				_ = service.End(r.Context(), &former) // the login continues; the log shows that a store is unavailable
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
		h.clearCookie(w) // it is no longer valid
	}
	if err != nil {
		h.refuse(w, err)
		return
	}
	if r.Method == http.MethodPost {
		setCookie(w, h.Cookie, reply.SessionToken, keep)
		reply.SessionToken = "" // hidden from scripts
		if keepDevice > 0 {
			setCookie(w, deviceCookie, device, keepDevice)
		}
	}
	writeJSON(w, http.StatusOK, success{Status: "success", Reply: reply})
}

// clearCookie deletes the cookie after a logout. The next user of the browser must not
// see cached pages of the application, not even with the back button (W3C Clear Site
// Data, section 3.1).
func (h *Handler) clearCookie(w http.ResponseWriter) {
	setCookie(w, h.Cookie, "", 0)
	w.Header().Set("Clear-Site-Data", `"cache"`)
}

// errSessionMethod is ErrMethod for the session's path.
var errSessionMethod = &wire.Error{
	Code:    wire.ErrMethod.Code,
	Status:  http.StatusMethodNotAllowed,
	Message: "Use GET, POST or DELETE.",
}
