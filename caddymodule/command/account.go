package command

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
)

func (c *cli) accountCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "account <command>",
		Short: "Manages accounts",
		Long:  "Adds, shows, lists, changes, deletes, unlocks, imports and exports accounts, and\nshows what happened to one.",
	}
	cmd.AddCommand(
		c.addCommand(), c.showCommand(), c.listCommand(), c.setCommand(), c.deleteCommand(), c.unlockCommand(),
		c.importCommand(), c.exportCommand(),
		c.historyCommand(),
	)
	return group(cmd)
}

// An accountFlags holds the flags of add and set.
type accountFlags struct {
	cmd                       *cobra.Command
	password, passwordHash    bool
	noPassword, answer        bool
	secondFactor, mustSet     bool
	identities                []string
	mnemocode                 string
	role, phone, email, login string
	status, question, locale  string
}

func newAccountFlags(cmd *cobra.Command, change bool) *accountFlags {
	f := &accountFlags{cmd: cmd}
	flags := cmd.Flags()
	flags.StringVar(&f.phone, "phone", "", "The primary phone, as +37060012345")
	flags.StringVar(&f.email, "email", "", "The primary email")
	flags.StringVar(&f.login, "login", "", "The login name")
	flags.StringVar(&f.locale, "locale", "", "The language that its owner reads, as lt or pt-BR")
	flags.StringVar(&f.role, "role", "", "The role")
	flags.StringVar(&f.status, "status", "", "active, restricted, closed or denied")
	flags.BoolVar(&f.secondFactor, "second-factor", false, "A one-time code follows the password")
	flags.BoolVar(&f.mustSet, "must-set-password", false, "A new password must be set at the next login")
	flags.BoolVar(&f.password, "password", false, "Ask for a password, or read it from standard input")
	flags.BoolVar(&f.passwordHash, "password-hash", false, "Ask for the hash of a password, or read it from standard input")
	flags.StringVar(&f.question, "question", "", "The control question; goes with --answer")
	flags.BoolVar(&f.answer, "answer", false, "Ask for the answer to the control question, or read it from standard input")
	flags.StringArrayVar(&f.identities, "identity", nil, "A user of an OAuth provider, as 1:subject; may be repeated")
	if change {
		flags.StringVar(&f.mnemocode, "mnemocode", "", "A new mnemocode")
		flags.BoolVar(&f.noPassword, "no-password", false, "Take the password away")
		cmd.MarkFlagsMutuallyExclusive("password", "no-password")
	}
	cmd.MarkFlagsMutuallyExclusive("password", "password-hash")
	completeStatus(cmd)
	return f
}

// completeStatus has shells complete the flag --status.
func completeStatus(cmd *cobra.Command) {
	var all []string
	for _, status := range record.Statuses {
		all = append(all, string(status))
	}
	_ = cmd.RegisterFlagCompletionFunc("status", cobra.FixedCompletions(all, cobra.ShellCompDirectiveNoFileComp))
}

// fields returns what was given, as the admin API takes it. An empty text takes
// the value away.
func (f *accountFlags) fields() (map[string]any, error) {
	fields := map[string]any{}
	for flag, field := range map[string]string{
		"mnemocode": "profile_mnemocode", "phone": "primary_phone", "email": "primary_email", "login": "login_name",
		"locale": "locale", "role": "role", "status": "status", "question": "control_question",
	} {
		if flag := f.cmd.Flags().Lookup(flag); flag != nil && flag.Changed {
			fields[field] = flag.Value.String()
			if flag.Value.String() == "" {
				fields[field] = nil
			}
		}
	}
	if f.cmd.Flags().Changed("second-factor") {
		fields["second_factor"] = f.secondFactor
	}
	if f.cmd.Flags().Changed("must-set-password") {
		fields["must_set_password"] = f.mustSet
	}
	if f.noPassword {
		fields["password"] = nil
	}
	if f.cmd.Flags().Changed("identity") {
		identities, err := parseIdentities(f.identities)
		if err != nil {
			return nil, err
		}
		fields["oauth_identities"] = identities
	}
	return fields, f.secrets(fields)
}

// parseIdentities reads provider:subject. An empty one stands for none.
func parseIdentities(given []string) ([]api.Identity, error) {
	identities := []api.Identity{}
	for _, s := range given {
		if s == "" {
			continue
		}
		provider, subject, ok := strings.Cut(s, ":")
		n, err := strconv.Atoi(provider)
		if !ok || err != nil {
			return nil, fmt.Errorf("an identity is written provider:subject, as in 1:10769150350006150715113082367, not %.30q", s)
		}
		identities = append(identities, api.Identity{Provider: n, Subject: subject})
	}
	return identities, nil
}

// secrets asks for the secrets, in the order of the manual page.
func (f *accountFlags) secrets(fields map[string]any) error {
	r := newSecretReader(f.cmd)
	for _, secret := range []struct {
		wanted      bool
		field, name string
	}{
		{f.password, "password", "Password"},
		{f.passwordHash, "password_hash", "Password hash"},
		{f.answer, "control_answer", "Control answer"},
	} {
		if !secret.wanted {
			continue
		}
		value, err := r.read(secret.name)
		if err != nil {
			return err
		}
		fields[secret.field] = value
	}
	return nil
}

// A secretReader reads secrets without showing them.
type secretReader struct {
	terminal int // its file descriptor, if it is one; else -1
	in       *bufio.Reader
	out      io.Writer
}

func newSecretReader(cmd *cobra.Command) *secretReader {
	r := &secretReader{terminal: -1, in: bufio.NewReader(cmd.InOrStdin()), out: cmd.ErrOrStderr()}
	if f, ok := cmd.InOrStdin().(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		r.terminal = int(f.Fd())
	}
	return r
}

func (r *secretReader) read(name string) (string, error) {
	if r.terminal < 0 {
		line, err := r.in.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			return line, nil
		}
		if err == nil || err == io.EOF {
			err = errors.New("the line is empty")
		}
		return "", fmt.Errorf("%s: reading standard input: %w", name, err)
	}
	first, err := r.prompt(name)
	if err != nil {
		return "", err
	}
	again, err := r.prompt(name + ", again")
	if err != nil {
		return "", err
	}
	if first != again {
		return "", fmt.Errorf("%s: the two differ", name)
	}
	return first, nil
}

func (r *secretReader) prompt(name string) (string, error) {
	fmt.Fprint(r.out, name+": ")
	typed, err := term.ReadPassword(r.terminal)
	fmt.Fprintln(r.out)
	if err == nil && len(typed) == 0 {
		err = errors.New("nothing was typed")
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return string(typed), nil
}

func (c *cli) addCommand() *cobra.Command {
	var f *accountFlags
	cmd := c.command("add <mnemocode> [flags]", "Adds an account", `The status is active unless --status says otherwise. --password asks for a
password, twice, without echo; where standard input is no terminal it is read
from there. --password-hash and --answer likewise, each the next line. The
rules for passwords that users choose are not applied: with --must-set-password
a simple one lasts until the first login.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			fields, err := f.fields()
			if err != nil {
				return err
			}
			fields["profile_mnemocode"] = args[0]
			company, err := c.company(cmd.Context())
			if err != nil {
				return err
			}
			data, err := c.ask(cmd.Context(), http.MethodPost, company+"/accounts", fields)
			if err != nil {
				return err
			}
			return c.showAccount(cmd.OutOrStdout(), data)
		})
	cmd.Example = `  $ caddy mnemogate account add alice --email alice@example.com --phone +37060012345 --password
  $ pass show alice | caddy mnemogate account add alice --login alice --password --must-set-password`
	f = newAccountFlags(cmd, false)
	return cmd
}

func (c *cli) setCommand() *cobra.Command {
	var f *accountFlags
	cmd := c.command("set <account> [flags]", "Changes an account", `Only what is given changes. An empty value takes the old one away, as in
--phone ''. --identity replaces all of the account's identities.

A new status, password, role, phone, email, second factor or mnemocode ends all
sessions of the account, pending logins and recovery links, before the command
returns; so does the authenticator app that 'totp' sets up or removes.
--password and --password-hash also clear must_set_password, unless that is
given, and the lock after wrong passwords; the owner is told of a new password
by mail or SMS.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			fields, err := f.fields()
			if err != nil {
				return err
			}
			if len(fields) == 0 {
				return errors.New("there is nothing to change; see --help for what can be")
			}
			path, _, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			data, err := c.ask(cmd.Context(), http.MethodPatch, path, fields)
			if err != nil {
				return err
			}
			return c.showAccount(cmd.OutOrStdout(), data)
		})
	cmd.Example = `  $ caddy mnemogate account set alice --status restricted
  $ caddy mnemogate account set alice@example.com --password --must-set-password
  $ caddy mnemogate account set alice --phone '' --second-factor=false`
	f = newAccountFlags(cmd, true)
	return c.byFlag(cmd)
}

func (c *cli) showCommand() *cobra.Command {
	return c.byFlag(c.command("show <account>", "Shows an account", `password_set tells whether there is a password, which nobody can see.
locked_until tells until when wrong passwords, codes or control answers keep the
account locked; 'account unlock' ends that. captcha_due tells whether the next
password needs a captcha, after captcha_after wrong ones.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, _, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			data, err := c.ask(cmd.Context(), http.MethodGet, path, nil)
			if err != nil {
				return err
			}
			return c.showAccount(cmd.OutOrStdout(), data)
		}))
}

// showAccount writes an account as the server sent it, or for people.
func (c *cli) showAccount(w io.Writer, data []byte) error {
	if c.json {
		_, err := w.Write(data)
		return err
	}
	var a api.Account
	if err := json.Unmarshal(data, &a); err != nil {
		return err
	}
	var identities, accepted []string
	for _, i := range a.Identities {
		identities = append(identities, fmt.Sprintf("%d:%s", i.Provider, i.Subject))
	}
	for _, d := range a.Accepted {
		accepted = append(accepted, strings.TrimSpace(d.Code+" "+d.Version)+" on "+d.At.Format(time.DateOnly))
	}
	return table(w,
		[]string{"profile_mnemocode", a.Mnemocode},
		[]string{"status", string(a.Status)},
		[]string{"role", orDash(a.Role)},
		[]string{"primary_phone", orDash(a.Phone)},
		[]string{"primary_email", orDash(a.Email)},
		[]string{"login_name", orDash(a.LoginName)},
		[]string{"locale", orDash(a.Locale)},
		[]string{"password_set", yesNo(a.PasswordSet)},
		[]string{"must_set_password", yesNo(a.MustSetPassword)},
		[]string{"second_factor", yesNo(a.SecondFactor)},
		[]string{"totp", yesNo(a.TOTP)},
		[]string{"backup_codes_left", strconv.Itoa(a.BackupCodes)},
		[]string{"control_question", orDash(a.Question)},
		[]string{"oauth_identities", cmp.Or(strings.Join(identities, ", "), "-")},
		[]string{"disclaimers_accepted", cmp.Or(strings.Join(accepted, ", "), "-")},
		[]string{"locked_until", lockedText(a.LockedUntil)},
		[]string{"captcha_due", yesNo(a.CaptchaDue)},
		[]string{"created_at", a.Created.Format(time.RFC3339)},
		[]string{"updated_at", a.Updated.Format(time.RFC3339)},
	)
}

func orDash(s *string) string {
	if s == nil {
		return "-"
	}
	return *s
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func lockedText(until *time.Time) string {
	switch {
	case until == nil:
		return "-"
	case until.Equal(manage.UntilUnlocked):
		return "it is unlocked or recovered"
	default:
		return until.Format(time.RFC3339)
	}
}

func (c *cli) listCommand() *cobra.Command {
	var limit int
	var after, status, contains string
	var all bool
	cmd := c.command("list [flags]", "Lists accounts", `They are ordered by mnemocode. Where there are more than --limit, the last line
says how to go on; --all goes on by itself, and takes any number.

--status and --contains select accounts, and given both, those that both apply
to. --contains ignores case, and spaces in a part of a phone, as in '600 12'.`,
		cobra.NoArgs, func(cmd *cobra.Command, _ []string) error {
			company, err := c.company(cmd.Context())
			if err != nil {
				return err
			}
			if all && !cmd.Flags().Changed("limit") {
				limit = api.MaxPage
			}
			query := url.Values{}
			for name, value := range map[string]string{"status": status, "contains": contains} {
				if cmd.Flags().Changed(name) {
					query.Set(name, value)
				}
			}
			left := limit
			for first := true; ; first = false {
				query.Set("limit", strconv.Itoa(left))
				query.Set("after", after)
				data, err := c.ask(cmd.Context(), http.MethodGet, company+"/accounts?"+query.Encode(), nil)
				if err != nil {
					return err
				}
				var p api.Page
				if err := json.Unmarshal(data, &p); err != nil {
					return err
				}
				if err := c.listPage(cmd.OutOrStdout(), p, first); err != nil {
					return err
				}
				if after = p.Next; after == "" {
					return nil
				}
				if all {
					continue
				}
				if left -= len(p.Accounts); left == 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "There are more: --after %s, or --all\n", after)
					return nil
				}
			}
		})
	cmd.Flags().IntVar(&limit, "limit", api.DefaultPage, "How many at once, at most 1000")
	cmd.Flags().StringVar(&after, "after", "", "Begin behind this mnemocode")
	cmd.Flags().StringVar(&status, "status", "", "Only accounts that are active, restricted, closed or denied")
	cmd.Flags().StringVar(&contains, "contains", "", "Only accounts with a login id that contains this")
	completeStatus(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "List all")
	return cmd
}

func (c *cli) listPage(w io.Writer, p api.Page, first bool) error {
	if c.json {
		for _, a := range p.Accounts {
			if err := api.WriteLine(w, a); err != nil {
				return err
			}
		}
		return nil
	}
	var rows [][]string
	if first {
		rows = append(rows, []string{"MNEMOCODE", "STATUS", "PHONE", "EMAIL", "LOGIN", "PASSWORD", "LOCKED UNTIL"})
	}
	for _, a := range p.Accounts {
		rows = append(rows, []string{
			a.Mnemocode, string(a.Status), orDash(a.Phone), orDash(a.Email), orDash(a.LoginName), yesNo(a.PasswordSet), lockedText(a.LockedUntil),
		})
	}
	return table(w, rows...)
}

func (c *cli) deleteCommand() *cobra.Command {
	var yes bool
	cmd := c.command("delete <account> [--yes]", "Deletes an account", `Its sessions end before the command returns, and nothing of it is kept: another
account with its login ids inherits nothing. To keep a user out for a while, set
--status instead. Without --yes the command asks first.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, a, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if !yes {
				if err := confirm(cmd, "Delete account "+a.Mnemocode+"?"); err != nil {
					return err
				}
			}
			if _, err := c.ask(cmd.Context(), http.MethodDelete, path, nil); err != nil {
				return err
			}
			return c.done(cmd.OutOrStdout(), a.Mnemocode, "deleted")
		})
	cmd.Flags().BoolVar(&yes, "yes", false, "Do not ask")
	return c.byFlag(cmd)
}

// confirm asks a person. A program has to say --yes.
func confirm(cmd *cobra.Command, question string) error {
	if newSecretReader(cmd).terminal < 0 {
		return errors.New("add --yes where there is no terminal to ask at")
	}
	fmt.Fprint(cmd.ErrOrStderr(), question+" [y/N] ")
	typed, _ := bufio.NewReader(cmd.InOrStdin()).ReadString('\n')
	if typed = strings.ToLower(strings.TrimSpace(typed)); typed != "y" && typed != "yes" {
		return errors.New("not done")
	}
	return nil
}

// done tells of a success that has nothing to show.
func (c *cli) done(w io.Writer, mnemocode, what string) error {
	if c.json {
		return api.WriteLine(w, map[string]string{"profile_mnemocode": mnemocode, "result": what})
	}
	_, err := fmt.Fprintf(w, "%s: %s\n", mnemocode, what)
	return err
}

func (c *cli) unlockCommand() *cobra.Command {
	return c.byFlag(c.command("unlock <account>", "Clears the locks of an account", `All counts of wrong passwords, codes and control answers begin anew, and a
password that was disabled works again. Sessions stay as they are.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, a, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := c.ask(cmd.Context(), http.MethodPost, path+"/unlock", nil); err != nil {
				return err
			}
			return c.done(cmd.OutOrStdout(), a.Mnemocode, "unlocked")
		}))
}

func (c *cli) backupCodesCommand() *cobra.Command {
	return c.byFlag(c.command("backup-codes <account>", "Makes new backup codes", `Makes ten codes, each of which can once take the place of the one-time code, and
ends those that were left. They are shown this once and kept only as hashes.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, _, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			data, err := c.ask(cmd.Context(), http.MethodPost, path+"/backup-codes", nil)
			if err != nil {
				return err
			}
			if c.json {
				_, err := cmd.OutOrStdout().Write(data)
				return err
			}
			var answer struct {
				Codes []string `json:"backup_codes"`
			}
			if err := json.Unmarshal(data, &answer); err != nil {
				return err
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), strings.Join(answer.Codes, "\n"))
			return err
		}))
}
