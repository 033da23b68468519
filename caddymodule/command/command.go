// Package command implements the command caddy mnemogate. It is an HTTP client of the
// accounts API and knows nothing else about the server. Exceptions are restore, which
// writes the file of a store, page, which serves its preview itself, and sandbox, which runs
// Caddy itself. See connect.go for how it finds the server. The other files have one group of
// commands each.
package command

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"text/tabwriter"

	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/transform"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func init() {
	caddycmd.RegisterCommand(caddycmd.Command{
		Name:  "mnemogate",
		Usage: "<command>",
		Short: "Manages the accounts and sessions of a running mnemogate",
		Long: `Manages the accounts and sessions of a running mnemogate, through the admin
endpoint of its Caddy. Changes take effect at once, on all nodes: a change of
status, password, role, phone, email, second factor or authenticator app revokes
the account's sessions before the command returns.

Commands take the admin endpoint from --address, the file of --config, the
environment variable CADDY_ADMIN, or localhost:2019, in this order. Write a Unix
socket as unix//run/caddy/admin.sock.

With --api, they use the accounts API of a site with the directive
mnemogate_accounts instead, with the key in --key-file. The key needs the right
read and, if the command needs it, write, sessions, issue, act, import, export
or messages.

--company names the company. You can omit it if only one is configured.

An <account> is a mnemocode or any login id, in any spelling. If two accounts
match, the command does nothing and asks for --by.

Passwords, control answers and password hashes are never arguments, because
other users of the machine could read them: the command prompts for them,
without echo. Without a terminal, it reads them from standard input, one per
line.

With --json, answers are JSON, one object per line, and errors are JSON on
standard error.

The exit status is 0 if the command succeeded, 1 if it failed, 2 if there is no
such account or company, 3 if the present state does not allow it, such as a
login id that another account has, and 4 if the server or one of its stores did
not answer.`,
		CobraFunc: func(cmd *cobra.Command) {
			cmd.Example = `  $ caddy mnemogate account add alice --email alice@example.com --password
  $ caddy mnemogate account unlock alice@example.com
  $ caddy mnemogate sessions end alice
  $ caddy mnemogate account import users.jsonl
  $ caddy mnemogate doctor`
			c := new(cli)
			c.flags(cmd)
			group(cmd, c.accountCommand(), c.backupCodesCommand(), c.totpCommand(), c.passkeysCommand(), c.devicesCommand(), c.tokensCommand(),
				c.sessionsCommand(), c.companyCommand(), c.importCommand(), c.exportCommand(),
				c.backupCommand(), c.restoreCommand(), c.rekeyCommand(), c.doctorCommand(), c.explainRequestCommand(), c.pageCommand(), c.messagesCommand(), c.sandboxCommand())
		},
	})
}

// Exit statuses, as documented on the manual page.
const (
	exitFailed      = 1
	exitNotFound    = 2
	exitConflict    = 3
	exitUnreachable = 4
)

// A cliError is an error that ends a command.
type cliError struct {
	exit    int
	field   string
	message string // empty if the command has printed everything
}

func (e *cliError) Error() string { return e.message }

func asCLIError(err error) *cliError {
	if e, ok := errors.AsType[*cliError](err); ok {
		return e
	}
	return &cliError{exit: exitFailed, message: err.Error()}
}

// A cli is one run of the program, which runs one command.
type cli struct {
	// The flags that all commands have.
	address, config, adapter string
	api, keyFile             string
	companyCode              string
	json                     bool
	by                       string // only for commands that take an account
	adminOnly                bool   // the command does not take --api

	cmd    *cobra.Command // the running command
	in     *bufio.Reader  // its standard input
	server *server        // set by the first request
}

func (c *cli) flags(cmd *cobra.Command) {
	f := cmd.PersistentFlags()
	f.StringVar(&c.address, "address", "", "The address of the admin endpoint, also as unix//path")
	f.StringVarP(&c.config, "config", "c", "", "A configuration file that names the admin endpoint")
	f.StringVarP(&c.adapter, "adapter", "a", "", "The adapter of the configuration file")
	f.StringVar(&c.api, "api", "", "The URL of an accounts API to use instead of the admin endpoint")
	f.StringVar(&c.keyFile, "key-file", "", "The file with the key for --api")
	f.StringVar(&c.companyCode, "company", "", "The code of the company; not needed if there is only one")
	f.BoolVar(&c.json, "json", false, "Answer in JSON")
	_ = cmd.RegisterFlagCompletionFunc("company", func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		c.cmd = cmd
		answer, _ := get[api.Companies](c, api.Root)
		return answer.Companies, cobra.ShellCompDirectiveNoFileComp
	})
}

// complete adds shell completion for a flag that takes one of the words.
func complete(cmd *cobra.Command, flag string, words ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
}

// command returns a command that runs f. The error of f determines the exit status.
func (c *cli) command(use, short, long string, args cobra.PositionalArgs, f func(args []string) error) *cobra.Command {
	return &cobra.Command{
		Use:   use,
		Short: short,
		Long:  short + ".\n\n" + long,
		Args: func(cmd *cobra.Command, given []string) error {
			if args(cmd, given) != nil {
				return fmt.Errorf("wrong number of arguments; write %s", cmd.UseLine())
			}
			return nil
		},
		DisableFlagsInUseLine: true,
		ValidArgsFunction:     cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			c.cmd, c.in = cmd, bufio.NewReader(decoded(cmd.InOrStdin()))
			err := f(args)
			if err == nil {
				return nil
			}
			cmd.SilenceErrors = true // printError prints it
			ended := asCLIError(err)
			c.printError(ended)
			if ended.exit == exitFailed {
				return err
			}
			// Only Caddy can create an error with an exit status.
			return caddycmd.WrapCommandFuncForCobra(func(caddycmd.Flags) (int, error) { return ended.exit, nil })(cmd, args)
		},
	}
}

// adminCommand is command for what only the admin endpoint can do.
func (c *cli) adminCommand(use, short, long string, args cobra.PositionalArgs, f func(args []string) error) *cobra.Command {
	return c.command(use, short, long, args, func(args []string) error {
		if c.api != "" {
			return errors.New(c.cmd.Name() + " uses the admin endpoint: leave --api out, with its --key-file, and run it on the machine of that endpoint")
		}
		c.adminOnly = true
		return f(args)
	})
}

// onAccount returns a command that runs f for the account in its argument.
func (c *cli) onAccount(use, short, long string, f func(path string, a api.Account) error) *cobra.Command {
	return c.byFlag(c.command(use, short, long, cobra.ExactArgs(1), func(args []string) error {
		path, a, err := c.account(args[0])
		if err != nil {
			return err
		}
		return f(path, a)
	}))
}

// changeCommand returns a command that sends one request without a body for an account. A
// second argument is the last part of the path.
func (c *cli) changeCommand(use, short, long, method, path, done string) *cobra.Command {
	most := argsOf(use)
	return c.byFlag(c.command(use, short, long, cobra.RangeArgs(most-strings.Count(use, "["), most), func(args []string) error {
		account, a, err := c.account(args[0])
		if err != nil {
			return err
		}
		account += path
		for _, part := range args[1:] {
			account += "/" + api.PathEscape(part)
		}
		return c.change(method, account, a, done)
	}))
}

// argsOf returns how many arguments a command takes at most.
func argsOf(use string) int { return strings.Count(use, "<") }

// listCommand returns a command that lists what an account has.
func listCommand[I any](c *cli, use, short, long, what string, header []string, row func(I) []string) *cobra.Command {
	return c.onAccount(use, short, long, func(account string, _ api.Account) error {
		answer, err := get[map[string][]I](c, account+"/"+what)
		if err != nil {
			return err
		}
		return list(c, header, answer[what], row)
	})
}

// parent returns a command that only has others.
func parent(name, short, long string, others ...*cobra.Command) *cobra.Command {
	return group(&cobra.Command{Use: name + " <command>", Short: short, Long: long}, others...)
}

// group makes cmd a parent of other commands. Without it, Cobra would print the help
// for an unknown command and exit with status 0.
func group(cmd *cobra.Command, others ...*cobra.Command) *cobra.Command {
	cmd.AddCommand(others...)
	cmd.DisableFlagsInUseLine = true
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return fmt.Errorf("there is no command %q; '%s --help' lists the commands", args[0], cmd.CommandPath())
		}
		return cmd.Help()
	}
	return cmd
}

// interruptible makes signals cancel the command's context, until stop is called: the usual
// ones, that of a closed terminal, and more. They no longer kill the program, so the command
// can remove a file that it has not finished.
func (c *cli) interruptible(more ...os.Signal) (stop func()) {
	signals := append(more, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // nohup has it ignored
		signals = append(signals, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(c.cmd.Context(), signals...)
	c.cmd.SetContext(ctx)
	return stop
}

// orInterrupted returns err, or "interrupted" if a signal may have caused it.
func (c *cli) orInterrupted(err error) error {
	if err != nil && c.cmd.Context().Err() != nil {
		return errors.New("interrupted")
	}
	return err
}

// decoded returns the text of a file or pipe in UTF-8. The byte order mark with which some
// editors and shells begin it, also in UTF-16, is no part of the text.
func decoded(r io.Reader) io.Reader {
	if isTerminal(r) { // it has no mark, and the decoder would wait for three bytes of an answer
		return r
	}
	return transform.NewReader(r, unicode.BOMOverride(transform.Nop))
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

func (c *cli) printError(e *cliError) {
	switch {
	case e.message == "":
	case c.json:
		_ = api.WriteLine(c.cmd.ErrOrStderr(), api.Error{Error: e.message, Field: e.field})
	default:
		fmt.Fprintln(c.cmd.ErrOrStderr(), "Error: "+e.message)
	}
}

// report prints a result: v with --json, otherwise text.
func (c *cli) report(v any, text string) error {
	if c.json {
		return api.WriteLine(c.cmd.OutOrStdout(), v)
	}
	_, err := fmt.Fprintln(c.cmd.OutOrStdout(), text)
	return err
}

// done reports a success that has no other output.
func (c *cli) done(kind, who, what string) error {
	return c.report(map[string]string{kind: who, "result": what}, who+": "+what)
}

// change sends a change of an account and reports its success.
func (c *cli) change(method, path string, a api.Account, what string) error {
	if _, err := c.ask(method, path, nil); err != nil {
		return err
	}
	return c.done("profile_mnemocode", a.Mnemocode, what)
}

// show sends a request and prints the answer: unchanged with --json, otherwise with
// text.
func show[T any](c *cli, method, path string, in any, text func(T) error) error {
	data, err := c.ask(method, path, in)
	if err != nil {
		return err
	}
	if c.json {
		_, err := c.cmd.OutOrStdout().Write(data)
		return err
	}
	var answer T
	if err := json.Unmarshal(data, &answer); err != nil {
		return err
	}
	return text(answer)
}

// list prints items: one JSON object per line with --json, otherwise a table.
func list[T any](c *cli, header []string, items []T, row func(T) []string) error {
	if c.json {
		for _, item := range items {
			if err := api.WriteLine(c.cmd.OutOrStdout(), item); err != nil {
				return err
			}
		}
		return nil
	}
	rows := [][]string{header}
	for _, item := range items {
		rows = append(rows, row(item))
	}
	return c.table(rows...)
}

// table prints rows in aligned columns. Users and strangers have written some of the cells.
func (c *cli) table(rows ...[]string) error {
	t := tabwriter.NewWriter(c.cmd.OutOrStdout(), 0, 0, 2, ' ', 0)
	for _, row := range rows {
		if row != nil {
			for i, cell := range row {
				row[i] = printable(cell)
			}
			fmt.Fprintln(t, strings.Join(row, "\t"))
		}
	}
	return t.Flush()
}

// companies returns the code of --company or, without it, those of all companies.
func (c *cli) companies() ([]string, error) {
	if c.companyCode != "" {
		return []string{c.companyCode}, nil
	}
	answer, err := get[api.Companies](c, api.Root)
	return answer.Companies, err
}

// company returns the path of the company's resources.
func (c *cli) company() (string, error) {
	if c.companyCode == "" {
		codes, err := c.companies()
		if err != nil {
			return "", err
		}
		if len(codes) != 1 {
			const most = 20
			names := strings.Join(codes[:min(most, len(codes))], ", ")
			if len(codes) > most {
				names += fmt.Sprintf(" and %d more", len(codes)-most)
			}
			return "", errors.New("there are several companies; choose one with --company: " + names)
		}
		c.companyCode = codes[0]
	}
	return api.Root + api.PathEscape(c.companyCode), nil
}

// The values of --by.
const (
	nameIsMnemocode = "mnemocode"
	nameIsLoginID   = "login-id"
)

func (c *cli) byFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringVar(&c.by, "by", "", "How the account is named: mnemocode or login-id")
	complete(cmd, "by", nameIsMnemocode, nameIsLoginID)
	return cmd
}

// account finds the account that an argument names, and returns its path, too.
func (c *cli) account(name string) (path string, a api.Account, err error) {
	if c.by != "" && c.by != nameIsMnemocode && c.by != nameIsLoginID {
		return "", a, fmt.Errorf("--by: %q is unknown; write %s or %s", c.by, nameIsMnemocode, nameIsLoginID)
	}
	company, err := c.company()
	if err != nil {
		return "", a, err
	}
	found, err := c.find(company, name)
	switch {
	case err != nil:
		return "", a, err
	case len(found) == 0:
		return "", a, &cliError{exit: exitNotFound, message: fmt.Sprintf("the company has no account %q", name)}
	case len(found) > 1:
		return "", a, &cliError{exit: exitConflict, message: fmt.Sprintf(
			"%q is the mnemocode of one account and a login id of another, %s; say which with --by %s or --by %s",
			name, found[1].Mnemocode, nameIsMnemocode, nameIsLoginID)}
	}
	return company + "/accounts/" + api.PathEscape(found[0].Mnemocode), found[0], nil
}

// find returns the accounts with this mnemocode and with this login id, or only those that --by
// asks for.
func (c *cli) find(company, name string) (found []api.Account, err error) {
	if c.by != nameIsLoginID {
		a, err := get[api.Account](c, company+"/accounts/"+api.PathEscape(name))
		if err == nil {
			found = append(found, a)
		} else if e := asCLIError(err); e.exit != exitNotFound || e.field != "" {
			return nil, err
		}
	}
	if c.by == nameIsMnemocode {
		return found, nil
	}
	page, err := get[api.Page](c, company+"/accounts"+api.Query(url.Values{"login_id": {name}}))
	for _, other := range page.Accounts {
		if len(found) == 0 || found[0].Mnemocode != other.Mnemocode {
			found = append(found, other)
		}
	}
	return found, err
}
