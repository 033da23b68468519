package gate

import (
	"errors"
	"net/http"
	"slices"
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
	// The cookie lasts for the session's lifetime, not only until the browser is closed. Ignored
	// unless remember in client.json is true.
	Remember bool `json:"remember"`
	// The token of a known device. It moves into a cookie of its own, `__Host-mnemogate-device`,
	// which later logins send.
	DeviceToken string `json:"device_token" max:"128"`
}

// serveSession reports the session, moves it into a cookie, or revokes the cookie's.
func (h *Handler) serveSession(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	request := h.request(w, r, t)
	w.Header().Add("Vary", h.vary())
	var reply flows.Reply
	err = h.withService(r.Context(), func(service *flows.Service) (err error) {
		switch r.Method {
		case http.MethodGet:
			reply, err = service.Current(r.Context(), request)
		case http.MethodPost:
			reply, err = h.moveToCookie(w, r, service, request)
		case http.MethodDelete:
			err = h.endCookie(w, r, service, request)
		}
		return err
	})
	return success{Status: "success", Reply: reply}, err
}

// cookieMethods returns the methods of serveSession that need a cookie.
func (h *Handler) cookieMethods(target) string {
	if h.Cookie == "" {
		return ""
	}
	return ", POST, DELETE"
}

// moveToCookie moves a session into a cookie. It revokes the session of the cookie that the
// browser had before.
func (h *Handler) moveToCookie(w http.ResponseWriter, r *http.Request, service *flows.Service, request *flows.Request) (flows.Reply, error) {
	if slices.Contains(r.Header["Sec-Fetch-Site"], "cross-site") {
		return flows.Reply{}, errForeignPage
	}
	var wants sessionRequest
	reply, err := service.ExchangeToken(r.Context(), request, &wants)
	if err != nil {
		return flows.Reply{}, err
	}
	request.Found = nil // the log names the session that moved
	if former := cookies(r, h.Cookie); former != nil && !crossSite(r, h.CORS) {
		_ = service.End(r.Context(), request, former) // the login continues; the log shows that a store is unavailable
	}
	company := service.Companies[request.Company]
	var keep time.Duration // until the browser is closed
	if p := h.pageOf(request.Company); wants.Remember && p != nil && p.Remember {
		keep = time.Duration(company.Session.Lifetime)
	}
	setCookie(w, h.Cookie, reply.SessionToken, keep)
	reply.SessionToken = "" // hidden from scripts
	if keep := time.Duration(company.Devices.For); keep > 0 && tokens.IsWellFormed(tokens.DevicePrefix, wants.DeviceToken) {
		setCookie(w, deviceCookie, wants.DeviceToken, keep)
	}
	return reply, nil
}

// endCookie revokes the session of a cookie, and deletes the cookie unless the session
// may still be valid.
func (h *Handler) endCookie(w http.ResponseWriter, r *http.Request, service *flows.Service, request *flows.Request) error {
	sent := cookies(r, h.Cookie)
	switch {
	case sent != nil && crossSite(r, nil):
		return errForeignLogout
	case len(sent) > 1:
		return twoCookies(h.Cookie)
	}
	err := service.End(r.Context(), request, sent)
	if err == nil || service.Companies[request.Company] != nil && (errors.Is(err, wire.ErrTokenInvalid) || errors.Is(err, wire.ErrTokenExpired)) {
		h.clearCookie(w)
	}
	return err
}

// errForeignPage refuses a token that would be lost, since browsers keep no cookie with
// SameSite that a page of another site asks for (RFC 6265bis, section 5.7).
var errForeignPage = &wire.Refusal{
	Err:     wire.ErrHeaderInvalid,
	Reason:  wire.CrossSite,
	Message: "A page of another site gets no cookie, so keep the token, and send it in Authorization.",
}

// errForeignLogout is errCrossSite where cors does not help (contract, section 12).
var errForeignLogout = &wire.Refusal{
	Err:     wire.ErrHeaderInvalid,
	Reason:  wire.CrossSite,
	Message: "Only a page of this origin may end the cookie's session here. End it with DELETE me/sessions/{session_id}, or send the browser to the logout of the login page.",
}

// clearCookie deletes the cookie after a logout, if the site has one. The next user of
// the browser must not see cached pages of the application, not even with the back button
// (W3C Clear Site Data, section 3.1).
func (h *Handler) clearCookie(w http.ResponseWriter) {
	if h.Cookie != "" {
		setCookie(w, h.Cookie, "", 0)
		w.Header().Set("Clear-Site-Data", `"cache"`)
	}
}
