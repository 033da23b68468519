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
	"path/filepath"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/sqlite"
)

// A server is the server that commands send requests to.
type server struct {
	client  *http.Client
	address string       // as the user knows it
	root    string       // the URL that replaces api.Root
	key     string       // for an accounts API; empty for the admin endpoint
	what    string       // what it is, with the address as the user knows it
	steps   causes.Steps // what to do if it does not answer
	check   string       // what to check if it answers as mnemogate does not
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

// accountsAPI returns the accounts API of --api, with the key from --key-file. This
// machine must trust the server's certificate.
func (c *cli) accountsAPI() (*server, error) {
	u, err := url.Parse(c.api)
	if err != nil || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http" {
		return nil, errors.New("--api: write a URL like https://accounts.internal:8443")
	}
	if u.Scheme == "http" && !guest.Loopback(u.Hostname()) {
		return nil, errors.New("--api: over http to another machine anyone on the network path can read the key; write https")
	}
	file, err := os.Open(c.keyFile)
	if err != nil {
		return nil, fmt.Errorf("--key-file: %w", err)
	}
	defer file.Close()
	data, err := io.ReadAll(decoded(file))
	if err != nil {
		return nil, fmt.Errorf("--key-file: %w", err)
	}
	key := strings.TrimSpace(string(data))
	if key == "" || strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, fmt.Errorf("--key-file: %s must hold one key and nothing else", c.keyFile)
	}
	return &server{
		client: clientOf(&http.Transport{
			Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
			DialContext: (&net.Dialer{Timeout: 30 * time.Second}).DialContext, TLSHandshakeTimeout: 10 * time.Second,
		}),
		address: c.api,
		root:    u.Scheme + "://" + u.Host + strings.TrimSuffix(u.EscapedPath(), "/") + "/",
		key:     key,
		what:    "the accounts API at " + c.api,
		check:   "is --api the URL of an accounts API, with its path?",
	}, nil
}

func clientOf(t *http.Transport) *http.Client {
	t.ResponseHeaderTimeout = 10 * time.Minute // an import may hash many passwords at its end
	return &http.Client{CheckRedirect: guest.NoRedirects, Transport: t}
}

func (c *cli) adminEndpoint() (*server, error) {
	address, err := caddycmd.DetermineAdminAPIAddress(c.address, nil, c.config, c.adapter)
	if err != nil {
		return nil, err
	}
	parsed, err := caddy.ParseNetworkAddress(address)
	if err != nil || parsed.PortRangeSize() > 1 || strings.Contains(address, "://") || strings.HasPrefix(address, "/") {
		return nil, fmt.Errorf("%q is not an address of an admin endpoint; write it like localhost:2019 or unix//run/caddy/admin.sock", address)
	}
	host := parsed.JoinHostPort(0)
	if parsed.IsUnixNetwork() {
		parsed.Host, _, _ = strings.Cut(parsed.Host, "|") // cut off the socket's permissions
		host = "127.0.0.1"                                // the host that Caddy's own commands send; it is not checked
	}
	step := "use --api"
	if c.adminOnly {
		step = "turn it on"
	}
	notRunning := "is Caddy running? If its admin endpoint is elsewhere, say where with --address; if it has none (admin off), " + step
	return &server{
		client: clientOf(&http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, parsed.Network, parsed.JoinHostPort(0))
		}}),
		address: address,
		root:    "http://" + host + api.Root,
		what:    "the admin endpoint at " + address,
		steps: causes.Steps{
			causes.Refused:   notRunning,
			causes.NoSocket:  notRunning,
			causes.Forbidden: "run this as root, or as the user that Caddy runs as",
		},
		check: "does this Caddy have mnemogate?",
	}, nil
}

// open sends a request and returns the response if it succeeded. The path begins
// with api.Root, whichever server it is sent to.
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
	if method == http.MethodGet && errors.Is(err, io.EOF) { // perhaps a reload has just replaced the admin endpoint
		response, err = c.server.client.Do(r)
	}
	if err != nil {
		if wrapped, ok := errors.AsType[*url.Error](err); ok {
			err = wrapped.Err
		}
		return nil, c.unreachable(causes.Explain(fmt.Errorf("%s does not answer: %w", c.server.what, err), c.server.steps.Step(err)).Error())
	}
	if response.StatusCode < 300 {
		return response, nil
	}
	defer response.Body.Close()
	return nil, c.server.refusalOf(response)
}

func (c *cli) unreachable(message string) error {
	return c.orInterrupted(&cliError{exit: exitUnreachable, message: message})
}

// refusalOf turns an error response into an error. A 404 that names nothing that is absent
// does not come from a route of the accounts API.
func (s *server) refusalOf(response *http.Response) error {
	var refusal api.Error
	data, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	known := json.Unmarshal(data, &refusal) == nil && refusal.Error != ""
	exit := exitFailed
	switch response.StatusCode {
	case http.StatusNotFound:
		known = known && (refusal.Field != "" || refusal.Error == api.NoAccount)
		exit = exitNotFound
	case http.StatusConflict:
		exit = exitConflict
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout: // also of a proxy
		exit = exitUnreachable
	}
	if !known {
		refusal = api.Error{Error: "the server answered " + response.Status}
		if exit != exitUnreachable {
			refusal.Error += "; " + s.check
			exit = exitFailed
		}
	}
	if response.StatusCode == http.StatusForbidden && s.key == "" { // Caddy has checked Host and Origin
		refusal.Error += "; the global option admin may have no enforce_origin, and needs this address in its origins if it has any"
	}
	if wait := response.Header.Get("Retry-After"); wait != "" {
		refusal.Error += "; Retry-After is " + wait
	}
	return &cliError{exit: exit, field: refusal.Field, message: refusal.Error}
}

// ask sends in as JSON, unless it is nil, and returns the body of the response.
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
		return nil, c.unreachable("the answer was interrupted: " + err.Error())
	}
	return data, nil
}

// get requests a path and decodes the response.
func get[T any](c *cli, path string) (T, error) { return call[T](c, http.MethodGet, path, nil) }

// call is ask, and decodes the response.
func call[T any](c *cli, method, path string, in any) (answer T, err error) {
	data, err := c.ask(method, path, in)
	if err == nil {
		err = json.Unmarshal(data, &answer)
	}
	return answer, err
}

// download writes the response of a path to w. If the response is cut off, the error
// begins with broken.
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

// save downloads into a file that only its owner may read. The file gets its name once it is
// whole, so that nothing can be mistaken for it.
func (c *cli) save(output string, replace bool, path, broken string) (size int64, err error) {
	if output == "-" {
		return 0, errors.New("name a file with --output: it appears only once it is complete, as standard output could not")
	}
	if target, err := filepath.EvalSymlinks(output); err == nil {
		output = target // replace the file, not a link to it
	}
	isFree := func() error {
		if err := sqlite.RefuseIrregular(output); err != nil {
			return err
		}
		if _, err := os.Lstat(output); replace || errors.Is(err, fs.ErrNotExist) {
			return nil
		} else if err != nil {
			return err
		}
		advice := "name another file with --output"
		if c.cmd.Flags().Lookup("force") != nil {
			advice += ", or replace it with --force"
		}
		return fmt.Errorf("%s exists: %s", output, advice)
	}
	if err := isFree(); err != nil {
		return 0, err
	}
	defer c.interruptible()()
	part, err := os.CreateTemp(filepath.Dir(output), "."+filepath.Base(output)+"-*") // mode 0600
	if err != nil {
		return 0, err
	}
	defer os.Remove(part.Name()) // no effect after the rename
	size, err = c.download(part, path, broken)
	if err == nil {
		err = part.Sync()
	}
	closing := part.Close()
	if err = cmp.Or(err, closing); err != nil {
		return 0, err
	}
	if err := isFree(); err != nil { // the download may have taken long
		return 0, err
	}
	if err := os.Rename(part.Name(), output); err != nil {
		return 0, err
	}
	return size, sqlite.SyncFile(filepath.Dir(output))
}
