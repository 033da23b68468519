package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

// connect finds whom to ask.
func (c *cli) connect() error {
	switch {
	case c.client != nil:
		return nil
	case c.api == "" && c.keyFile == "":
		return c.connectAdmin()
	case c.api == "" || c.keyFile == "":
		return errors.New("--api and --key-file go together")
	case c.address != "" || c.config != "":
		return errors.New("--api takes the place of the admin endpoint: leave --address and --config out")
	default:
		return c.connectAPI()
	}
}

// connectAPI reads the key for an accounts API. Its certificate must be one that
// this machine trusts, and no redirect is followed with the key.
func (c *cli) connectAPI() error {
	u, err := url.Parse(c.api)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return errors.New("--api: write a URL like https://accounts.internal:8443")
	}
	if u.Scheme == "http" && !isLoopback(u.Hostname()) {
		return errors.New("--api: over http to another machine everyone on the way can read the key; write https")
	}
	data, err := os.ReadFile(c.keyFile)
	if err != nil {
		return fmt.Errorf("--key-file: %w", err)
	}
	c.key = strings.TrimSpace(string(data))
	if c.key == "" || strings.ContainsFunc(c.key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return fmt.Errorf("--key-file: %s must hold one key and nothing else", c.keyFile)
	}
	c.address = c.api
	c.origin = u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/")
	c.root = "/"
	c.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return nil
}

func isLoopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.Unmap().IsLoopback()
}

// connectAdmin finds the admin endpoint.
func (c *cli) connectAdmin() error {
	address, err := caddycmd.DetermineAdminAPIAddress(c.address, nil, c.config, c.adapter)
	if err != nil {
		return err
	}
	parsed, err := caddy.ParseNetworkAddress(address)
	if err != nil || parsed.PortRangeSize() > 1 {
		return fmt.Errorf("%q is no address of an admin endpoint", address)
	}
	c.address = address
	c.root = api.Root
	c.origin = "http://" + parsed.JoinHostPort(0)
	if parsed.IsUnixNetwork() {
		parsed.Host, _, _ = strings.Cut(parsed.Host, "|") // the socket's permissions
		c.origin = "http://127.0.0.1"                     // as Caddy's own commands say; it is not looked at
	}
	c.client = &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, parsed.Network, parsed.JoinHostPort(0))
		},
	}}
	return nil
}

// open sends a request and returns the answer if it is a success. The path begins
// with api.Root, wherever it goes.
func (c *cli) open(ctx context.Context, method, path string, body io.Reader) (*http.Response, error) {
	if err := c.connect(); err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, c.origin+c.root+strings.TrimPrefix(path, api.Root), body)
	if err != nil {
		return nil, err
	}
	if c.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.key)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err := c.client.Do(r)
	if err != nil {
		if ctx.Err() != nil {
			return nil, errors.New("interrupted")
		}
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		if c.api != "" {
			return nil, &cliError{exit: exitUnreachable, message: fmt.Sprintf("the accounts API at %s does not answer (%v)", c.api, err)}
		}
		return nil, &cliError{exit: exitUnreachable, message: fmt.Sprintf(
			"the admin endpoint at %s does not answer (%v): is Caddy running? If its admin endpoint is elsewhere, say where with --address", c.address, err)}
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusalOf(response)
}

// refusalOf makes an error of an answer that is no success.
func refusalOf(response *http.Response) error {
	var refusal struct{ Error, Field string }
	data, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if json.Unmarshal(data, &refusal) != nil || refusal.Error == "" {
		refusal.Error = fmt.Sprintf("the server answered %s; does this Caddy have mnemogate?", response.Status)
	}
	e := &cliError{exit: exitFailed, field: refusal.Field, message: refusal.Error}
	switch response.StatusCode {
	case http.StatusNotFound:
		e.exit = exitNotFound
	case http.StatusConflict:
		e.exit = exitConflict
	case http.StatusServiceUnavailable:
		e.exit = exitUnreachable
	}
	return e
}
