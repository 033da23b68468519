package admin

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"golang.org/x/net/http/httpguts"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/bypass"
	"github.com/mnemogate/mnemogate/caddymodule/gate"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// explain says what would become of a request for a site. It changes and counts nothing.
func explain(c *accounts.Call) error {
	given, err := c.Texts("method", "url", "as?", "company?")
	if err != nil {
		return err
	}
	r, port, err := imagine(given["method"], given["url"])
	if err != nil {
		return err
	}
	company := c.Service.Companies[given["company"]]
	if company == nil && given["company"]+given["as"] != "" {
		return &accounts.Error{Status: http.StatusNotFound, Field: "company", Message: "no such company is configured"}
	}
	var a record.Account
	if given["as"] != "" {
		a, err = (&manage.Admin{Manager: c.Service.Manager, Company: company}).ByMnemocode(c.Context(), given["as"])
		if err != nil {
			return err
		}
	}
	running, err := caddy.ActiveContext().AppIfConfigured("http")
	if err != nil {
		return &accounts.Error{Status: http.StatusConflict, Message: "the running configuration has no sites: add one"}
	}
	ctx := context.WithValue(c.Context(), http.LocalAddrContextKey, &net.TCPAddr{Port: int(port)}) // as the server sets it
	found, err := bypass.Find(running.(*caddyhttp.App).Servers, r.WithContext(ctx), port)
	if err != nil {
		return &accounts.Error{Status: http.StatusNotFound, Field: "url", Message: "url: " + err.Error()}
	}
	explained, err := found.Gate.(*gate.Handler).Explain(found.Request, c.Service, company, a)
	if err != nil {
		return &manage.FieldError{Field: "url", Message: err.Error()}
	}
	explained.Site = found.Site
	return c.Reply(http.StatusOK, explained, nil)
}

// explainLogin says what would become of a login.
func explainLogin(c *accounts.Call) error {
	address, err := accounts.UserAddress(c.URL.Query().Get("address"))
	if err != nil {
		return &manage.FieldError{Field: "address", Message: err.Error()}
	}
	found, err := c.Admin.Explain(c.Context(), c.LoginID("login_id"), address)
	findings := make([]api.Finding, len(found))
	for i, f := range found {
		findings[i] = api.Finding{Check: "login", Result: api.OK, Message: f.Message}
		if coded, ok := errors.AsType[*wire.Error](f.Answer); ok {
			check := strings.TrimSpace(coded.Code + " " + string(wire.ReasonOf(f.Answer)))
			findings[i] = api.Finding{Check: check, Result: api.Failed, Message: f.Message, Advice: f.Advice}
		}
		if refusal, ok := errors.AsType[*wire.Refusal](f.Answer); ok && refusal.RetryAfter > 0 && refusal.Message == "" { // with a message of its own, waiting does not help
			findings[i].Message += ", for " + refusal.RetryAfter.Round(time.Second).String()
		}
	}
	return c.Reply(http.StatusOK, api.Findings{Findings: findings}, err)
}

// imagine returns a request as a server gets it from a client on this machine, and the port
// that it comes to.
func imagine(method, address string) (r *http.Request, port uint, err error) {
	if !httpguts.ValidHeaderFieldName(method) { // both are tokens
		return nil, 0, &manage.FieldError{Field: "method", Message: "it must be a method such as GET"}
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "https" && u.Scheme != "http" {
		return nil, 0, &manage.FieldError{Field: "url", Message: "it must be a whole URL as the client has it, such as https://api.example.com/orders"}
	}
	if u.Host, err = httpguts.PunycodeHostPort(u.Host); err != nil { // as clients send it
		return nil, 0, &manage.FieldError{Field: "url", Message: "its host is not a name or an address"}
	}
	r, err = http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + u.RequestURI() + " HTTP/1.1\r\nHost: " + u.Host + "\r\n\r\n")))
	if err != nil {
		return nil, 0, &manage.FieldError{Field: "url", Message: "no server accepts it: " + err.Error()}
	}
	r.RemoteAddr = "127.0.0.1:1"
	usual := "80"
	if u.Scheme == "https" {
		usual, r.TLS = "443", &tls.ConnectionState{HandshakeComplete: true, ServerName: u.Hostname()}
	}
	n, err := strconv.ParseUint(cmp.Or(u.Port(), usual), 10, 16)
	if err != nil {
		return nil, 0, &manage.FieldError{Field: "url", Message: "its port must be 1 to 65535"}
	}
	return r, uint(n), nil
}
