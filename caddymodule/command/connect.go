package command

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// A server answers commands.
type server struct {
	client  *http.Client
	address string // as the user knows it
	root    string // the URL that stands for api.Root
	key     string // of an accounts API
	absent  string // what to say if it does not answer, with places for address and reason
}

func (c *cli) connect() (*server, error) {
	switch {
	case c.api == "" && c.keyFile == "":
		return c.adminEndpoint()
	case c.api == "" || c.keyFile == "":
		return nil, errors.New("--api and --key-file go together")
	case c.address != "" || c.config != "":
		return nil, errors.New("--api takes the place of the admin endpoint: leave --address and --config out")
	default:
		return c.accountsAPI()
	}
}

// accountsAPI reads the key for an accounts API. This machine must trust its
// certificate, and no redirect is followed with the key.
func (c *cli) accountsAPI() (*server, error) {
	u, err := url.Parse(c.api)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("--api: write a URL like https://accounts.internal:8443")
	}
	if u.Scheme == "http" && !guest.Loopback(u.Hostname()) {
		return nil, errors.New("--api: over http to another machine everyone on the way can read the key; write https")
	}
	data, err := os.ReadFile(c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--key-file: %w", err)
	}
	key := strings.TrimSpace(string(data))
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("--key-file: %s must hold one key and nothing else", c.keyFile)
	}
	return &server{
		client:  &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }},
		address: c.api,
		root:    u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/") + "/",
		key:     key,
		absent:  "the accounts API at %s does not answer (%v)",
	}, nil
}

func (c *cli) adminEndpoint() (*server, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(c.address, nil, c.config, c.adapter)
	if err != nil {
		return nil, err
	}
	parsed, err := caddy.ParseNetworkAddress(address)
	if err != nil || parsed.PortRangeSize() > 1 {
		return nil, fmt.Errorf("%q is no address of an admin endpoint", address)
	}
	host := parsed.JoinHostPort(0)
	if parsed.IsUnixNetwork() {
		parsed.Host, _, _ = strings.Cut(parsed.Host, "|") // the socket's permissions
		host = "127.0.0.1"                                // as Caddy's own commands say; it is not looked at
	}
	return &server{
		client: &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, parsed.Network, parsed.JoinHostPort(0))
		}}},
		address: address,
		root:    "http://" + host + api.Root,
		absent:  "the admin endpoint at %s does not answer (%v): is Caddy running? If its admin endpoint is elsewhere, say where with --address",
	}, nil
}

// open sends a request and returns the answer if it is a success. The path begins
// with api.Root, wherever it goes.
func (c *cli) open(method, path string, body io.Reader) (response *http.Response, err error) {
	if c.server == nil {
		if c.server, err = c.connect(); err != nil {
			return nil, err
		}
	}
	r, err := http.NewRequestWithContext(c.cmd.Context(), method, c.server.root+strings.TrimPrefix(path, api.Root), body)
	if err != nil {
		return nil, err
	}
	if c.server.key != "" {
		r.Header.Set("Authorization", "Bearer "+c.server.key)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	response, err = c.server.client.Do(r)
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, c.unreachable(fmt.Sprintf(c.server.absent, c.server.address, err))
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, refusalOf(response)
}

func (c *cli) unreachable(message string) error {
	return c.orInterrupted(&cliError{exit: exitUnreachable, message: message})
}

// refusalOf makes an error of an answer that is no success.
func refusalOf(response *http.Response) error {
	var refusal api.Error
	data, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	if json.Unmarshal(data, &refusal) != nil || refusal.Error == "" {
		refusal.Error = fmt.Sprintf("the server answered %s; does this Caddy have mnemogate?", response.Status)
	}
	exits := map[int]int{
		http.StatusNotFound:           exitNotFound,
		http.StatusConflict:           exitConflict,
		http.StatusServiceUnavailable: exitUnreachable,
	}
	return &cliError{exit: cmp.Or(exits[response.StatusCode], exitFailed), field: refusal.Field, message: refusal.Error}
}

// ask sends in as JSON, if it is not nil, and returns the answer's body.
func (c *cli) ask(method, path string, in any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		b := new(bytes.Buffer)
		if err := api.WriteLine(b, in); err != nil {
			return nil, err
		}
		body = b
	}
	response, err := c.open(method, path, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, c.unreachable("the answer broke off: " + err.Error())
	}
	return data, nil
}

// get asks for what is at a path.
func get[T any](c *cli, path string) (answer T, err error) {
	data, err := c.ask(http.MethodGet, path, nil)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	return answer, err
}

// download writes what is at a path. If the answer breaks off, broken begins the error.
func (c *cli) download(w io.Writer, path, broken string) (size int64, err error) {
	response, err := c.open(http.MethodGet, path, nil)
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	size, err = io.Copy(w, response.Body)
	if _, local := errors.AsType[*fs.PathError](err); err != nil && !local {
		err = c.unreachable(broken + ": " + err.Error())
	}
	return size, err
}

// save downloads to a file, which is on the disk and closed then.
func (c *cli) save(f *os.File, path, broken string) (size int64, err error) {
	size, err = c.download(f, path, broken)
	if err == nil {
		err = f.Sync()
	}
	return size, cmp.Or(err, f.Close())
}
