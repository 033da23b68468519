package command

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

func (c *cli) sandboxCommand() *cobra.Command {
	var listen, backend string
	cmd := c.command("sandbox [--listen <host:port>] [--backend <url>]", "Runs mnemogate for a trial or the tests of an app",
		`Runs a Caddy with mnemogate, the company acme and three accounts, and prints
their passwords, the API key and the addresses. It sends nothing: it prints each
SMS and mail with its code or link. No captcha is asked for, and addresses have
no limits.

Requests of users who have logged in reach --backend or, without it, a page that
shows the headers it gets.

It needs no configuration, and begins anew at each start. Stop it with Ctrl-C:
nothing is left of it. Several can run at once, each with its own --listen.
Passwords and keys are the same for everybody: use it for tests only.`,
		cobra.NoArgs, func([]string) error { return c.sandbox(listen, backend) })
	cmd.Flags().StringVar(&listen, "listen", "localhost:8080", "The address of the sandbox; port 0 chooses a free one")
	cmd.Flags().StringVar(&backend, "backend", "", "The URL of your backend, such as http://localhost:9000")
	return cmd
}

// What everybody knows of each sandbox.
const (
	sandboxAPIKey      = "try-this-key"
	sandboxAccountsKey = "try-this-accounts-key"
)

type sandboxAccount struct {
	Mnemocode string `json:"profile_mnemocode"`
	LoginID   string `json:"login_id"`
	Password  string `json:"password,omitempty"`
	Phone     string `json:"phone"`
	LogsIn    string `json:"logs_in_with"`
}

var sandboxAccounts = []sandboxAccount{
	{"alice-0001", "alice@example.com", "correct horse battery", "+37060012345", "password"},
	{"bob-0002", "bob@example.com", "staple gun tuesday", "+37060054321", "password and code"},
	{"carol-0003", "carol@example.com", "", "+37060067890", "code"},
}

// sandboxCaddyfile has the directory for all files, the listener's IP address and port,
// the sandbox's URL, the accounts, the API key, the accounts API's key and the upstream.
// The limits on wrong attempts are as high as they can be set.
const sandboxCaddyfile = `{
	admin "unix/%[1]s/admin.sock"
	persist_config off
	storage file_system "%[1]s"
	storage_check off
	storage_clean_interval off
	auto_https off
	grace_period 1s
	log {
		level ERROR
	}
	mnemogate {
		store sqlite "%[1]s/mnemogate.db"
		company acme {
			api_key %[6]s
			captcha off
			sms capture
			mail capture
			recovery {
				methods PHONE MAIL
				link %[4]s/acme/login#{token}
			}
			limits {
				failures_per_address 1000000/1s
				logins_per_address unlimited
				lock_after 100
				wrong_codes 100/1s
				sms_per_account unlimited
				sms_per_phone unlimited
				sms_per_address unlimited
				mails_per_account unlimited
			}
%[5]s		}
	}
}

http://:%[3]s {
	bind %[2]s
	handle_path /mnemogate/* {
		mnemogate_accounts {
			key sandbox %[7]s {
				may read write sessions introspect import export messages
			}
		}
	}
	handle {
		mnemogate {
			login_page {
				title Sandbox
			}
			self_service
		}
		reverse_proxy "%[8]s"
	}
}
`

func (c *cli) sandbox(listen, backend string) (err error) {
	defer c.interruptible(syscall.SIGPIPE)()
	if backend != "" {
		u, err := url.Parse(backend)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/")+u.RawQuery+u.Fragment != "" {
			return errors.New("--backend: write a URL without a path, like http://localhost:9000")
		}
		backend = u.Scheme + "://" + u.Host
	}
	ip, at, err := freeAddress(listen)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "mnemogate-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	slashed := filepath.ToSlash(dir)
	if backend == "" {
		page, err := serveHeaders(filepath.Join(dir, "headers.sock"))
		if err != nil {
			return err
		}
		defer page.Close()
		backend = "unix/" + slashed + "/headers.sock"
	}
	if err := runSandbox(slashed, ip, at, backend); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, caddy.Stop()) }()
	c.api, c.keyFile, c.companyCode, c.address = "", "", "acme", "unix/"+slashed+"/admin.sock"
	if err := c.untilReady(); err != nil {
		return err
	}
	if err := c.printSandbox(ip, at); err != nil {
		return err
	}
	if err := c.showMessages("", true); c.cmd.Context().Err() == nil {
		return err
	}
	return nil
}

// freeAddress returns the IP address of --listen, and the address for people, with the
// port. Caddy itself would share the port with another process, and each would get some of
// the requests.
func freeAddress(listen string) (ip, at string, err error) {
	host, _, err := net.SplitHostPort(listen)
	if err != nil {
		return "", "", errors.New("--listen: write a host and a port, like localhost:8080")
	}
	listener, err := net.Listen("tcp", listen)
	if err != nil {
		return "", "", cannotListen(err)
	}
	defer listener.Close()
	ip, port, err := net.SplitHostPort(listener.Addr().String())
	if parsed := net.ParseIP(host); host == "" || parsed != nil && parsed.IsUnspecified() {
		host = "localhost"
	}
	return ip, net.JoinHostPort(host, port), err
}

// cannotListen says what to do if --listen names an address that can't be used.
func cannotListen(err error) error {
	_, noName := errors.AsType[*net.DNSError](err)
	if noName || errors.Is(err, syscall.EADDRNOTAVAIL) {
		return fmt.Errorf("--listen: %w; write localhost, or an address of this machine", err)
	}
	return fmt.Errorf("--listen: %w; choose another port, such as --listen localhost:8081, or let --listen localhost:0 choose one", err)
}

// serveHeaders starts a backend at a socket. It shows the headers of each request.
func serveHeaders(socket string) (*http.Server, error) {
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := &http.Server{ReadHeaderTimeout: 10 * time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprintf(w, "%s %s\n", r.Method, r.URL)
		for _, name := range slices.Sorted(maps.Keys(r.Header)) {
			fmt.Fprintf(w, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
		}
	})}
	go func() { _ = server.Serve(listener) }()
	return server, nil
}

// runSandbox starts Caddy in this process, with its files in dir.
func runSandbox(dir, ip, at, upstream string) error {
	accounts := ""
	for _, a := range sandboxAccounts {
		accounts += fmt.Sprintf("\t\t\taccount %s {\n\t\t\t\temail %s\n\t\t\t\tphone %s\n", a.Mnemocode, a.LoginID, a.Phone)
		if a.Password != "" {
			accounts += fmt.Sprintf("\t\t\t\tpassword %q\n", a.Password)
		}
		if a.Password != "" && a.LogsIn != "password" {
			accounts += "\t\t\t\tsecond_factor\n"
		}
		accounts += "\t\t\t}\n"
	}
	_, port, _ := net.SplitHostPort(at)
	adapter := caddyconfig.GetAdapter("caddyfile")
	if adapter == nil {
		return errors.New("this Caddy can't read a Caddyfile; build it with the standard modules")
	}
	config, _, err := adapter.Adapt(fmt.Appendf(nil, sandboxCaddyfile, dir, ip, port, "http://"+at, accounts, sandboxAPIKey, sandboxAccountsKey, upstream), nil)
	if err != nil {
		return err
	}
	var parsed *caddy.Config
	if err := caddy.StrictUnmarshalJSON(config, &parsed); err != nil {
		return err
	}
	return caddy.Run(parsed)
}

// untilReady waits until the sandbox has its last account: the store is opened, and
// passwords are hashed, while Caddy already answers.
func (c *cli) untilReady() error {
	last := sandboxAccounts[len(sandboxAccounts)-1].Mnemocode
	for tries := 0; ; tries++ {
		_, err := c.ask(http.MethodGet, api.Root+"acme/accounts/"+last, nil)
		if err == nil || tries == 300 {
			return err
		}
		select {
		case <-c.cmd.Context().Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (c *cli) printSandbox(ip, at string) error {
	site := "http://" + at
	if c.json {
		return c.report(map[string]any{
			"url": site, "login_page": site + "/acme/login", "company": "acme", "api_key": sandboxAPIKey,
			"accounts_api": site + "/mnemogate/", "accounts_key": sandboxAccountsKey, "admin": c.address, "accounts": sandboxAccounts,
		}, "")
	}
	rows := [][]string{
		{"Login page", site + "/acme/login"},
		{"Security page", site + "/acme/security"},
		{"Your backend", site + "/"},
		{"Login API", site + "/acme/v2/auth/"},
		{"X-Api-Key", sandboxAPIKey},
		{"Accounts API", site + "/mnemogate/"},
		{"Its key", sandboxAccountsKey},
		{"Other commands", "--address " + c.address},
	}
	fmt.Fprintln(c.cmd.OutOrStdout(), "A sandbox of mnemogate. Everybody knows its passwords and keys. Stop it with Ctrl-C.")
	if !guest.Loopback(ip) {
		fmt.Fprintln(c.cmd.OutOrStdout(), "Other machines can reach it: let only those of a test do so.")
	}
	fmt.Fprintln(c.cmd.OutOrStdout())
	if err := c.table(rows...); err != nil {
		return err
	}
	fmt.Fprintln(c.cmd.OutOrStdout())
	accounts := [][]string{{"LOGS IN WITH", "LOGIN ID", "PASSWORD", "PHONE"}}
	for _, a := range sandboxAccounts {
		accounts = append(accounts, []string{a.LogsIn, a.LoginID, cmp.Or(a.Password, "-"), a.Phone})
	}
	if err := c.table(accounts...); err != nil {
		return err
	}
	_, err := fmt.Fprint(c.cmd.OutOrStdout(), "\nSMS and mails that were not sent:\n\n")
	return err
}
