package gate

import (
	"net/http"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/page"
	"github.com/mnemogate/mnemogate/flows"
)

// loginPath and logoutPath are the paths of the pages below /{company_code}/. Their
// files are below page.Prefix.
const (
	loginPath  = "login"
	logoutPath = "logout"
)

// pageKind returns the kind of a path of the login page. Every server reads such a
// path in the same way.
func pageKind(rest string) (targetKind, bool) {
	switch {
	case rest == loginPath:
		return loginPage, true
	case rest == logoutPath:
		return logoutPage, true
	case strings.HasPrefix(rest, page.Prefix):
		return pageFile, true
	}
	return 0, false
}

// hasPage reports whether the site has a login page for the company.
func (h *Handler) hasPage(company string) bool {
	return h.LoginPage != nil && slices.Contains(h.LoginPage.Companies, company)
}

func (h *Handler) servePage(w http.ResponseWriter, r *http.Request, t target) {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.refuse(w, errGetOnly)
		return
	}
	if t.kind == pageFile {
		_, rest := split(h.BasePath, r.URL.EscapedPath())
		h.page.ServeFile(w, r, strings.TrimPrefix(rest, page.Prefix))
		return
	}
	view := page.View{Company: t.company, Name: h.app.Companies[t.company].DisplayName(), Base: h.base(r), Cookie: h.cookies(r, nil) != nil, Languages: languagesOf(r)}
	err := h.withService(r.Context(), func(service *flows.Service) (err error) {
		view.Captcha = service.Companies[t.company].CaptchaType
		view.Key, err = service.PageKey(r.Context(), t.company)
		return err
	})
	if err != nil {
		h.refuse(w, err)
		return
	}
	serve := h.page.ServeLogin
	if t.kind == logoutPage {
		serve = h.page.ServeLogout
	}
	serve(w, r, view)
}
