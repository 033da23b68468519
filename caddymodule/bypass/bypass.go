// Package bypass finds requests that a server's routes let past mnemogate. walk.go follows the
// routes and yields, for each gate, upstream and other handler, the ways that lead there
// (way.go). traps.go judges these. The tests are in package gate, in bypass_test.go and
// bypass_traps_test.go, because those of gate link all of Caddy anyway.
package bypass

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// A Handler is one of mnemogate's handlers in the routes: mnemogate or
// mnemogate_accounts. It may not be provisioned yet.
type Handler interface {
	caddy.Module
	// Line returns its position in the Caddyfile, or "" for JSON.
	Line() string
}

// A Gate is the handler mnemogate.
type Gate interface {
	Handler
	// Base returns its base_path.
	Base() string
	// Serves reports whether it answers the auth routes of a company.
	Serves(company string) bool
	// IdentityHeaders returns the names of the headers that it removes and sets.
	IdentityHeaders() []string
	// Patterns returns the paths of its options that have some, by the option's name.
	Patterns() map[string][]string
	// Asserts reports whether it sends assertions, and whether their issuer depends on
	// the host of the request.
	Asserts() (sends, byHost bool)
	// WithoutPasskeys returns login_page or self_service if a company's passkeys
	// don't work there on these hosts, else nothing.
	WithoutPasskeys(a *app.App, hosts []string) (option, company, rpID string)
}

// Check follows the requests of all servers through their routes, once. It refuses routes
// that certainly let requests past mnemogate to an application, since the application
// would trust identity headers from anyone. It reports as weaknesses what may be
// intended. It runs while the first of our handlers is provisioned, so some routes may
// already be modules and others still JSON. The context is that of the handler.
func Check(ctx caddy.Context, a *app.App) error {
	for _, module := range ctx.Modules() {
		if http, ok := module.(*caddyhttp.App); ok {
			return a.CheckRoutesOnce(func() ([]app.Weakness, error) { return judge(follow(http.Servers, a), a) })
		}
	}
	return nil
}

// judge looks for all traps at each company, then at each visit.
func judge(visits []*visit, a *app.App) (found []app.Weakness, err error) {
	var all []*visit
	for _, company := range slices.Sorted(maps.Keys(a.Companies)) {
		all = append(all, &visit{site: &site{app: a}, company: company})
	}
	f := factsOf(visits)
	for _, v := range append(all, visits...) {
		for _, t := range Traps {
			for _, y := range t.at(f, v) {
				if v.wider && (y.gate.wider || y.gate.site != v.site) {
					continue // it is found at the site of all these hosts
				}
				for _, values := range t.find(f, v, y) {
					weak := t.weakness(y.gate, values)
					if found = append(found, weak); t.Refused {
						return nil, refusal(weak)
					}
				}
			}
		}
	}
	return found, nil
}

func refusal(weak app.Weakness) error {
	err := fmt.Errorf("%s: %s; %s", weak.Directive, weak.Message, weak.Advice)
	if weak.At != "" {
		err = fmt.Errorf("%w, at %s", err, weak.At)
	}
	return err
}

func (t *Trap) weakness(at *visit, values []any) app.Weakness {
	weak := app.Weakness{Weakness: guest.Weakness{Message: fill(t.Message, values), Advice: fill(t.Advice, values)}}
	switch h, isOurs := at.handler.(Handler); {
	case at.company != "":
		weak.Company, weak.Directive, weak.At = at.company, "company", at.app.Source.Line("company "+at.company)
	case isOurs:
		weak.Directive, weak.At = h.CaddyModule().ID.Name(), h.Line()
		if at.hosts != "" {
			weak.Directive += " in " + at.hosts
		}
	}
	return weak
}

// fill formats a text that may have no verbs.
func fill(text string, values []any) string {
	if !strings.Contains(text, "%") {
		return text
	}
	return fmt.Sprintf(text, values...)
}
