// Package command is caddy mnemogate …: a client of the accounts API over HTTP,
// which knows nothing of the server, but that restore puts a store's file where
// one will find it. connect.go finds where to ask; a file for each group of
// commands follows.
package command

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "mnemogate",
		Usage: "<command>",
		Short: "Manages the accounts and sessions of a running mnemogate",
		Long: `Manages the accounts and sessions of a running mnemogate, through the admin
endpoint of its Caddy. What is done holds at once, on all nodes: a change of
status, password, role, phone, email, second factor or authenticator app ends
the account's sessions before the command returns.

The admin endpoint is found as 'caddy reload' finds it: --address, else the one
in --config, else the environment variable CADDY_ADMIN, else localhost:2019. A
Unix socket is written unix//run/caddy/admin.sock.

With --api the accounts API of a site that has the directive mnemogate_accounts
is asked instead, with the key that is alone in --key-file. The key needs the
right read, and besides write, sessions, import or export as the command does.

--company names the company; it can be left out where only one is configured.

An <account> is a mnemocode or any login id, in any spelling. Where two accounts
answer to it, the command does nothing and asks for --by.

Passwords, control answers and password hashes are never arguments, which other
users of the machine could read: the command prompts for them, without echo, or
takes them from standard input, one a line, where that is no terminal.

With --json the answers are JSON, one object a line, and so is an error on
standard error.

The exit status is 0 if all was done, 1 if not, 2 if there is no such account or
company, 3 if a login id, mnemocode or identity is another account's, 4 if the
server or one of its stores did not answer.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Example = `  $ caddy mnemogate account add alice --email alice@example.com --password
  $ caddy mnemogate account unlock alice@example.com
  $ caddy mnemogate sessions end alice
  $ caddy mnemogate account import users.jsonl
  $ caddy mnemogate doctor`
			c := new(cli)
			c.flags(cmd)
			group(cmd)
			cmd.AddCommand(c.accountCommand(), c.backupCodesCommand(), c.totpCommand(), c.sessionsCommand(), c.importCommand(), c.exportCommand(), c.backupCommand(), c.restoreCommand(), c.doctorCommand())
		},
	})
}

// Exit statuses, as the manual page has them.
const (
	exitFailed      = 1
	exitNotFound    = 2
	exitConflict    = 3
	exitUnreachable = 4
)

// A cliError ends a command.
type cliError struct {
	exit    int
	field   string
	message string
}

func (e *cliError) Error() string { return e.message }

// A cli holds what all commands have in common.
type cli struct {
	address, config, adapter string
	api, keyFile             string
	companyCode              string
	by                       string
	json                     bool

	client *http.Client // made at the first request
	origin string
	// root stands for api.Root in paths.
	root string
	key  string // with --api
}

func (c *cli) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&c.address, "address", "", "The address of the admin endpoint, also unix//path")
	f.StringVarP(&c.config, "config", "c", "", "A configuration file that names the admin endpoint")
	f.StringVarP(&c.adapter, "adapter", "a", "", "The adapter of the configuration file")
	f.StringVar(&c.api, "api", "", "The URL of an accounts API to ask instead of the admin endpoint")
	f.StringVar(&c.keyFile, "key-file", "", "The file with the key for --api")
	f.StringVar(&c.companyCode, "company", "", "The code of the company; not needed where there is only one")
	f.BoolVar(&c.json, "json", false, "Answer in JSON")
	_ = cmd.RegisterFlagCompletionFunc("company", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		companies, _ := c.companies(cmd.Context())
		return companies, cobra.ShellCompDirectiveNoFileComp
	})
}

// command makes a command of f, whose errors decide the exit status.
func (c *cli) command(use, short, long string, args cobra.PositionalArgs, f func(cmd *cobra.Command, args []string) error) *cobra.Command {
	return &cobra.Command{
		Use:                   use,
		Short:                 short,
		Long:                  short + ".\n\n" + long,
		Args:                  args,
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			err := f(cmd, args)
			if err == nil {
				return nil
			}
			cmd.SilenceErrors = true // told here
			ended, ok := errors.AsType[*cliError](err)
			if !ok {
				ended = &cliError{exit: exitFailed, message: err.Error()}
			}
			c.tell(cmd.ErrOrStderr(), ended)
			if ended.exit == exitFailed {
				return err
			}
			// Only Caddy can make an error with an exit status.
			return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return ended.exit, nil })(cmd, args)
		},
	}
}

// group has a command that only leads to others refuse one that there is not. Cobra
// would show the manual and end with status 0, as if all was done.
func group(cmd *cobra.Command) *cobra.Command {
	cmd.DisableFlagsInUseLine = true
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return nil
		}
		return fmt.Errorf("there is no command %q; '%s --help' shows those that there are", args[0], cmd.CommandPath())
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	return cmd
}

// untilInterrupted does what a signal is not to leave half done: f takes away what it
// has begun, once its context ends.
func untilInterrupted(ctx context.Context, f func(ctx context.Context) error) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := f(ctx)
	if err != nil && ctx.Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

func (c *cli) tell(w io.Writer, e *cliError) {
	switch {
	case e.message == "": // all is said
	case c.json:
		_ = api.WriteLine(w, struct {
			Error string `json:"error"`
			Field string `json:"field,omitempty"`
		}{e.message, e.field})
	default:
		fmt.Fprintln(w, "Error: "+e.message)
	}
}

// ask sends in as JSON, if it is not nil, and returns the answer's body.
func (c *cli) ask(ctx context.Context, method, path string, in any) ([]byte, error) {
	var body io.Reader
	if in != nil {
		var b bytes.Buffer
		if err := api.WriteLine(&b, in); err != nil {
			return nil, err
		}
		body = &b
	}
	response, err := c.open(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, &cliError{exit: exitUnreachable, message: "the answer broke off: " + err.Error()}
	}
	return data, nil
}

func (c *cli) companies(ctx context.Context) ([]string, error) {
	data, err := c.ask(ctx, http.MethodGet, api.Root, nil)
	if err != nil {
		return nil, err
	}
	var answer struct{ Companies []string }
	return answer.Companies, json.Unmarshal(data, &answer)
}

// company returns the path of the company's resources.
func (c *cli) company(ctx context.Context) (string, error) {
	if c.companyCode == "" {
		companies, err := c.companies(ctx)
		if err != nil {
			return "", err
		}
		if len(companies) != 1 {
			return "", errors.New("there are several companies; choose one with --company: " + strings.Join(companies, ", "))
		}
		c.companyCode = companies[0]
	}
	return api.Root + url.PathEscape(c.companyCode), nil
}

// What --by may be.
const (
	nameIsMnemocode = "mnemocode"
	nameIsLoginID   = "login-id"
)

func (c *cli) byFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.by, "by", "", "What <account> is: mnemocode or login-id")
	_ = cmd.RegisterFlagCompletionFunc("by", cobra.FixedCompletions([]string{nameIsMnemocode, nameIsLoginID}, cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// account finds the account that an argument names, and its path.
func (c *cli) account(ctx context.Context, name string) (path string, a api.Account, err error) {
	if c.by != "" && c.by != nameIsMnemocode && c.by != nameIsLoginID {
		return "", a, fmt.Errorf("--by is %s or %s", nameIsMnemocode, nameIsLoginID)
	}
	company, err := c.company(ctx)
	if err != nil {
		return "", a, err
	}
	var found []api.Account
	if c.by != nameIsLoginID {
		data, err := c.ask(ctx, http.MethodGet, company+"/accounts/"+escapeMnemocode(name), nil)
		if refused, ok := errors.AsType[*cliError](err); err != nil && (!ok || refused.exit != exitNotFound || refused.field != "") {
			return "", a, err
		}
		if err == nil {
			if err := json.Unmarshal(data, &a); err != nil {
				return "", a, err
			}
			found = append(found, a)
		}
	}
	if c.by != nameIsMnemocode {
		data, err := c.ask(ctx, http.MethodGet, company+"/accounts?login_id="+url.QueryEscape(name), nil)
		if err != nil {
			return "", a, err
		}
		var p api.Page
		if err := json.Unmarshal(data, &p); err != nil {
			return "", a, err
		}
		for _, other := range p.Accounts {
			if len(found) == 0 || found[0].Mnemocode != other.Mnemocode {
				found = append(found, other)
			}
		}
	}
	switch len(found) {
	case 0:
		return "", a, &cliError{exit: exitNotFound, message: fmt.Sprintf("the company has no account %q", name)}
	case 1:
		return company + "/accounts/" + escapeMnemocode(found[0].Mnemocode), found[0], nil
	default:
		return "", a, &cliError{exit: exitConflict, message: fmt.Sprintf(
			"%q is the mnemocode of one account and a login id of another, %s; say which with --by %s or --by %s",
			name, found[1].Mnemocode, nameIsMnemocode, nameIsLoginID)}
	}
}

// escapeMnemocode is url.PathEscape for a mnemocode that may be a dot or two,
// which paths are cleaned of.
func escapeMnemocode(mnemocode string) string {
	return strings.ReplaceAll(url.PathEscape(mnemocode), ".", "%2E")
}

// table writes rows in columns, for people.
func table(w io.Writer, rows ...[]string) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		fmt.Fprintln(t, strings.Join(row, "\t"))
	}
	return t.Flush()
}
