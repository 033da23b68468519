package app

import (
	"crypto/sha256"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// sites is what the handlers of all sites register while a config is provisioned, before Start.
type sites struct {
	servers     map[*caddyhttp.Server]bool   // the servers that have a handler of ours
	looked      bool                         // the routes were checked for weaknesses
	notedMu     sync.Mutex                   // guards noted
	noted       []Weakness                   // what the handlers found
	forwarded   []record.ProfileField        // requested by handlers
	keyNames    map[[sha256.Size]byte]string // of the keys for the accounts API, by hash
	keys        []Keys                       // of the handlers of the accounts API
	selfService []func(company string) bool  // whom the handlers with self_service serve
}

// RegisterServer registers a server that has a handler of ours.
func (a *App) RegisterServer(server *caddyhttp.Server) {
	if !a.servers[server] {
		a.servers[server] = true
		a.closeFirst(server)
	}
}

// RegisterSelfService registers a handler with self_service, by the companies that it serves.
func (a *App) RegisterSelfService(serves func(company string) bool) {
	a.selfService = append(a.selfService, serves)
}

// Forward registers a profile field that a handler forwards to the application.
// Sessions that begin under this config then carry it.
func (a *App) Forward(field record.ProfileField) {
	if !slices.Contains(a.forwarded, field) {
		a.forwarded = append(a.forwarded, field)
	}
}

// RegisterKey registers a key for the accounts API by its hash, and reports what else it opens,
// of the keys that were registered before and the companies' API keys.
func (a *App) RegisterKey(name string, key [sha256.Size]byte) (found []guest.Weakness) {
	if other, taken := a.keyNames[key]; !taken {
		a.keyNames[key] = name
	} else if other != name {
		found = append(found, guest.Weakness{
			Message: "key " + other + " of another site is the same: the audit log can't tell whose it was",
			Advice:  "give each its own",
		})
	}
	for code, c := range a.Sorted() {
		if slices.Contains(c.effective.APIKeys, key) {
			found = append(found, guest.Weakness{
				Message: "it is an API key of company " + code + ", too: anybody who has an app with it can manage accounts",
				Advice:  "give backends keys of their own",
			})
		}
	}
	return found
}

// Keys reports whether a handler of the accounts API has a key with this hash, and whether the
// key has a right for a company.
type Keys func(key [sha256.Size]byte, right, company string) bool

// RegisterKeys registers a handler of the accounts API.
func (a *App) RegisterKeys(keys Keys) { a.keys = append(a.keys, keys) }

// Allows reports whether any handler of the accounts API has such a key with such a right.
func (a *App) Allows(key [sha256.Size]byte, right, company string) bool {
	return slices.ContainsFunc(a.keys, func(allows Keys) bool { return allows(key, right, company) })
}

// CheckRoutesOnce notes the weaknesses of the routes. It calls look only the first time,
// however many handlers the routes have.
func (a *App) CheckRoutesOnce(look func() ([]Weakness, error)) error {
	if a.looked {
		return nil
	}
	a.looked = true
	found, err := look()
	a.Note(found)
	return err
}

// Note adds the weaknesses that a handler found and warns of them. If several
// handlers find the same weakness, Note warns once.
func (a *App) Note(found []Weakness) {
	a.notedMu.Lock()
	defer a.notedMu.Unlock()
	for _, w := range found {
		if !slices.Contains(a.noted, w) {
			a.noted = append(a.noted, w)
			a.warn([]Weakness{w})
		}
	}
}

// maxProxies bounds the warnings of NoteProxy, since any client can send the headers.
const maxProxies = 10

// NoteProxy warns, once for each address, if a limit of the client's address refused a
// request that seems to come from a proxy: then all users behind that proxy share the
// limit. Caddy does not trust the proxy, or trusts it and learns nothing from it.
func (a *App) NoteProxy(r *http.Request, err error) {
	if !slices.Contains(record.AddressLimits, record.EventPrefix+string(wire.ReasonOf(err))) {
		return
	}
	peer, _, _ := net.SplitHostPort(r.RemoteAddr)
	client, _ := caddyhttp.GetVar(r.Context(), caddyhttp.ClientIPVarKey).(string)
	if client != peer && client != r.RemoteAddr { // a Unix socket's is no address
		return
	}
	trust := "list it in trusted_proxies"
	if peer == "" {
		peer, trust = "a Unix socket", "set trusted_proxies_unix"
	}
	has := func(header string) bool { return r.Header.Get(header) != "" }
	trusted, _ := caddyhttp.GetVar(r.Context(), caddyhttp.TrustedProxyVarKey).(bool)
	headers := []string{"X-Forwarded-For"} // those that Caddy reads
	if server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server); ok && trusted && len(server.ClientIPHeaders) > 0 {
		headers = server.ClientIPHeaders
	}
	named := strings.Join(headers, " and ")
	var its, step string
	switch {
	case trusted && slices.ContainsFunc(headers, has):
		its = named + " that names nobody else, or only addresses that trusted_proxies lists, too"
		step = "list only proxies there, not the networks of its users"
	case trusted:
		its, step = "no "+named+", though Caddy trusts it", "let it send "+headers[0]+", or name the header that it sends in client_ip_headers"
	case has(headers[0]):
		its, step = named+", as those of a proxy do", trust+" and name its header in client_ip_headers"
	case has("Forwarded"):
		its, step = "Forwarded, as those of a proxy do", "let it send X-Forwarded-For, since Caddy can't read Forwarded, and "+trust
	default: // a client without a proxy
		return
	}
	w := Weakness{Directive: "trusted_proxies", Weakness: guest.Weakness{
		Message: peer + " reached a limit, and its requests have " + its,
		Advice: "if it is your proxy, " + step + ", in the global option servers:" +
			" until then, its users share the limits of one address; otherwise ignore this",
	}}
	seen := 0
	a.notedMu.Lock()
	for _, n := range a.noted {
		if n.Directive == w.Directive {
			seen++
		}
	}
	a.notedMu.Unlock()
	if seen < maxProxies {
		a.Note([]Weakness{w})
	}
}

// unused reports what is configured and no site uses.
func (a *App) unused() (found []Weakness) {
	if len(a.servers) == 0 && len(a.keys) == 0 {
		return []Weakness{{Directive: "mnemogate", At: a.Source.Line(""), Weakness: guest.Weakness{
			Message: "no site has the directive mnemogate: nobody can log in, and nothing is guarded",
			Advice:  "write it into the site, before its reverse_proxy",
		}}}
	}
	for code, c := range a.Sorted() {
		served := func(serves func(string) bool) bool { return serves(code) }
		if c.effective.IssuedTokens.ByUsers && !slices.ContainsFunc(a.selfService, served) {
			found = append(found, Weakness{Company: code, Directive: "issued_tokens by_users", Weakness: guest.Weakness{
				Message: "no site that serves the company has self_service, so its users can't issue tokens",
				Advice:  "write self_service into the site's mnemogate, or leave by_users out",
			}})
		}
	}
	return found
}
