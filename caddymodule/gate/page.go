package gate

import (
	"net/http"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// loginPath and logoutPath are the paths of the pages below /{company_code}/. Their
// files are below page.Prefix.
const (
	loginPath  = "login"
	logoutPath = "logout"
	// securityPath is the page for self_service.
	securityPath = "security"
)

// passwordURLPath is that of W3C's "A Well-Known URL for Changing Passwords".
const passwordURLPath = "/.well-known/change-password"

// pageOf returns the login page that the site has for the company, or nil.
func (h *Handler) pageOf(company string) *LoginPage {
	for _, p := range h.LoginPages {
		if slices.Contains(p.Companies, company) {
			return p
		}
	}
	return nil
}

// hasPage reports whether the site has a login page for the company.
func (h *Handler) hasPage(company string) bool { return h.pageOf(company) != nil }

// pageConfig returns what clients of the company must know of the site's login page.
// It adds the addresses of the providers' icons.
func (h *Handler) pageConfig(r *http.Request, of *flows.Request, providers []tenant.ClientOAuth) page.Config {
	p := h.pageOf(of.Company)
	if p == nil {
		return page.NoConfig
	}
	for i, provider := range providers {
		providers[i].Icon = p.page.IconURL(h.base(r), of.Company, provider.ProviderID)
	}
	return p.page.Config(of.Languages())
}

func (h *Handler) servePage(w http.ResponseWriter, r *http.Request, t target) (body any, err error) {
	if r.Method == http.MethodPost {
		return nil, h.takeForm(w, r, t)
	}
	p := h.pageOf(t.company).page
	if t.kind == pageFile {
		if !p.ServeFile(w, r, strings.TrimPrefix(t.rest, page.Prefix)) {
			return nil, wire.ErrNoRoute
		}
		return nil, nil
	}
	h.warnRefused(r, t)
	view := page.View{Kind: t.rest, Company: t.company, Name: h.app.Companies[t.company].Effective().DisplayName(), Base: h.base(r), Cookie: cookies(r, h.Cookie) != nil}
	view.Language = p.Language(page.LanguageOf(r), languagesOf(r)())
	ctx := record.WithStoreTime(r.Context())
	err = h.withService(ctx, func(service *flows.Service) (err error) {
		if t.kind == securityPage {
			if _, err := service.Authorize(ctx, session.Requirement{Company: t.company}, cookies(r, h.Cookie)); err != nil {
				return err
			}
		} else {
			view.Captcha = service.Companies[t.company].CaptchaType
		}
		if view.Key, err = service.PageKey(ctx, t.company); err != nil {
			return err
		}
		of := h.request(w, r, t)
		of.Languages = func() []language.Tag { return []language.Tag{view.Language} }
		view.Config = h.clientConfig(r, service.ConfigOf(ctx, service.Companies[t.company], of.Languages), of)
		return nil
	})
	if t.kind == securityPage && needsLogin(err) {
		h.redirect(w, h.loginURL(r, t.company, err))
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.Serve(w, r, view)
	return nil, nil
}

// refusals are the errors with which a provider refuses all logins, because of what the page
// asks for or a fault of its own: those of RFC 6749, section 4.1.2.1, and of some providers. A
// user who does not log in there causes others, such as access_denied.
var refusals = []string{
	"invalid_request", "unauthorized_client", "unsupported_response_type", "invalid_scope", "server_error", "temporarily_unavailable",
	"invalid_client", "unsupported_response_mode", "redirect_uri_mismatch", "application_suspended", // GitHub's are the last two
	"unauthorized_scope_error", // LinkedIn
}

// warnRefused logs what a provider says to the browser alone. Strangers can make such an
// address, so the line has nothing else of it.
func (h *Handler) warnRefused(r *http.Request, t target) {
	said := r.URL.Query().Get("error")
	if t.kind == loginPage && slices.Contains(refusals, said) && len(h.app.Companies[t.company].Effective().OAuth) > 0 {
		h.app.WarnOfStrangers(h.log, "a browser came back with a provider's error instead of a login", "company", t.company, "error", said,
			"advice", "if nobody can log in with the provider, check scope, prompt, client_id and redirect_uri, and its registration of this client; its log may say more")
	}
}

// formMethods returns the method of takeForm, if one of the company's providers answers so.
func (h *Handler) formMethods(t target) string {
	for _, provider := range h.app.Companies[t.company].Effective().OAuth {
		if provider.ResponseMode == tenant.FormPost {
			return ", POST"
		}
	}
	return ""
}

// takeForm leads a provider's answer to the page, which reads it from its address. The form
// comes from the provider's site, as strangers' forms may. It is worth no more than a link
// to the page.
func (h *Handler) takeForm(w http.ResponseWriter, r *http.Request, t target) error {
	body, err := readBody(w, r, h.MaxBody, formBody)
	if err != nil {
		return err
	}
	query, err := answerIn(string(body))
	if err != nil {
		return err
	}
	w.Header().Set("Referrer-Policy", "no-referrer")
	h.redirect(w, h.base(r)+"/"+t.company+"/"+loginPath+"?"+query)
	return nil
}

// answerIn returns a query with what the page reads of a provider's form (OAuth 2.0 Form
// Post Response Mode; RFC 6749, section 4.1.2; RFC 9207), and nothing else. It is no longer
// than an address may be.
func answerIn(form string) (string, error) {
	sent, err := url.ParseQuery(form)
	answer := url.Values{}
	for _, name := range []string{"code", "error", "iss", "state"} {
		if values := sent[name]; len(values) == 1 {
			answer[name] = values
		} else if len(values) > 1 {
			err = wire.ErrValidation
		}
	}
	query := answer.Encode()
	if err != nil || !answer.Has("code") && !answer.Has("error") || len(query) > maxReturnTo {
		return "", wire.Invalid("The form has neither code nor error, or has one twice or too long. Begin the login again.")
	}
	return query, nil
}

// servePasswordURL leads to where users change their password.
func (h *Handler) servePasswordURL(w http.ResponseWriter, r *http.Request, _ target) (body any, err error) {
	h.redirect(w, h.base(r)+"/"+h.LoginPages[0].Companies[0]+"/"+securityPath+"#password")
	return nil, nil
}
