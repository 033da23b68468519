package bypass

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// A trap is a mistake in routes: what happens, and what to do about it.
type trap struct{ message, advice string }

// Traps that mnemogate refuses.
var (
	leftOut = trap{"requests that its matcher leaves out come to reverse_proxy, with identity headers of their own making",
		"write mnemogate without a matcher or, for a part of the site, into one block with reverse_proxy: handle /api/* { ... }"}
	behind = trap{"it stands behind %s, which lets no request through to it",
		"write it before that"}
	twice = trap{"the same requests meet it twice, and the second finds no token any more",
		"leave one of the two"}
	doubled = trap{"base_path %s is never found: handle_path or uri strip_prefix takes %s away before",
		"leave base_path out or, if the application needs the prefix, write handle instead"}
	changed = trap{"%s comes behind it and changes %s, from which the application knows the user",
		"take it out: mnemogate removes what clients send, and sets the header itself"}
)

// Traps that mnemogate warns about.
var (
	besides = trap{"requests may also come to %s without it, and with identity headers of their own making",
		"put it before each reverse_proxy to there, in one block with it; paths where everybody may come are its option public, which takes identity headers out"}
	elsewhere = trap{"requests come to %s from %s, too, where it is missing, and with identity headers of their own making",
		"put it before that reverse_proxy, too; paths where everybody may come are its option public, which takes identity headers out"}
	perhapsTwice = trap{"some requests may meet it twice, and the second finds no token any more",
		"put each into a handle block of its own, or leave one"}
	unreachable = trap{"nobody can log in: requests for /{company}/v2/auth/ do not come to it, only those for %s",
		"if the login is to be below that path, write base_path; else let /{company}/* come to it, too"}
	shields = trap{"%s with a matcher comes behind it, so it does not protect the auth routes",
		"write both into a route block, in this order: route { %[1]s ...; mnemogate; ... }"}
	plainAccounts = trap{"a site of it is plain http: everyone on the way there can read the keys and the accounts",
		"give the site a name, so that it is https, or bind it to 127.0.0.1 or a Unix socket"}
	openAccounts = trap{"everyone who can reach its site can try keys",
		"bind the site to a private address, or let only your backends in: @others not remote_ip 10.0.0.0/24, then abort @others"}
)

func (w *walk) refuse(t trap, h Handler, values ...any) {
	weak := w.weakness(t, h, values...)
	err := fmt.Errorf("%s: %s; %s", weak.Directive, weak.Message, weak.Advice)
	if weak.At != "" {
		err = fmt.Errorf("%w, at %s", err, weak.At)
	}
	w.wrong = cmp.Or(w.wrong, err)
}

func (w *walk) add(t trap, h Handler, values ...any) {
	w.found = append(w.found, w.weakness(t, h, values...))
}

// weakness describes a trap at a handler, or at the mnemogate of another site if h
// is nil.
func (w *walk) weakness(t trap, h Handler, values ...any) app.Weakness {
	weak := app.Weakness{Directive: "mnemogate", Weakness: guest.Weakness{Message: fill(t.message, values), Advice: fill(t.advice, values)}}
	if h != nil {
		weak.Directive, weak.At = h.CaddyModule().ID.Name(), h.Line()
		if w.site != "" {
			weak.Directive += " in " + w.site
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
