package gate

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/gate/paths"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Explain says what would become of a request without credentials. It adds those of the
// account (ID 0 for none) and, if the site requires it, an API key of the company (nil for
// none). It takes the steps of guard and pass with an imagined session, and passes nothing
// on. It changes r. An error means that the request is not for the upstream.
func (h *Handler) Explain(r *http.Request, service *flows.Service, company *tenant.Company, a record.Account) (api.Explanation, error) {
	var barred error
	if a.ID != 0 {
		if barred = session.CheckOwner(company, a); barred != nil {
			a = record.Account{} // has no session
		}
	}
	manager, token, key := service.Imagine(company, a)
	so := *h
	so.imagined = &flows.Service{Manager: manager}
	so.sender = h.sender.Imagined()

	t := so.find(r)
	switch {
	case t.kind == authRoute:
		return api.Explanation{}, fmt.Errorf("%s is a route of the auth API, which mnemogate answers; 'account explain' says what becomes of a login", r.URL.EscapedPath())
	case kinds[t.kind].serve != nil && t.kind != noAuthRoute, isAt(r, h.Check):
		return api.Explanation{}, fmt.Errorf("mnemogate answers %s itself; write a URL that is for the application", r.URL.EscapedPath())
	}
	if token != "" {
		r.Header["Authorization"] = []string{bearerScheme + token}
	}
	if key != "" && h.RequireAPIKey {
		r.Header[apiKeyHeader] = []string{key}
	}
	found := api.Explanation{Rules: h.rulesFor(r)}
	so.sender.Strip(r)
	var v visitor
	var err error
	if t.kind == noAuthRoute {
		err = wire.ErrNoRoute
	} else if v, err = so.admit(r, t); err == wire.ErrHeaderMissing && barred != nil {
		err = barred
	}
	if err != nil {
		code := wire.CodeOf(err)
		found.Status, found.Code, found.Reason = code.Status, code.Code, string(wire.ReasonOf(err))
		return found, nil
	}
	so.identify(r, &v)
	if r.Header["Authorization"] != nil {
		r.Header["Authorization"] = []string{bearerScheme + "(the token)"}
	}
	found.Passes, found.Headers = true, map[string]string{}
	for name, values := range r.Header {
		found.Headers[name] = strings.Join(values, ", ")
	}
	return found, nil
}

// rulesFor returns the options that matter for a request, with their lines.
func (h *Handler) rulesFor(r *http.Request) []api.Rule {
	matches := h.Matching(r.URL)
	if h.Companies != nil {
		matches = append(matches, paths.Match{Option: "company", Value: strings.Join(h.Companies, " ")})
	}
	if h.RequireAPIKey {
		matches = append(matches, paths.Match{Option: "require_api_key"})
	}
	rules := []api.Rule{}
	for _, m := range matches {
		at := h.Source[guest.Nth(m.Option, m.Nth)]
		colon := max(0, strings.LastIndexByte(at, ':'))
		line, _ := strconv.Atoi(strings.TrimPrefix(at[colon:], ":"))
		rules = append(rules, api.Rule{Rule: m.Option, Value: m.Value, File: at[:colon], Line: line})
	}
	return rules
}
