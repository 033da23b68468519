package command

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
)

func (c *cli) accountCommand() *cobra.Command {
	return parent("account", "Manages accounts", "Adds, shows, lists, changes, deletes, unlocks, welcomes, imports and exports\naccounts, shows what happened to one, and whether its login would work.",
		c.addCommand(), c.showCommand(), c.listCommand(), c.setCommand(), c.deleteCommand(), c.unlockCommand(),
		c.explainCommand(), c.welcomeCommand(), c.importCommand(), c.exportCommand(), c.historyCommand())
}

// A fieldFlag is a flag of add and set, with the field that it sets.
type fieldFlag struct{ name, field, usage string }

var (
	textFlags = []fieldFlag{
		{"phone", "primary_phone", "The primary phone, such as +37060012345"},
		{"email", "primary_email", "The primary email"},
		{"phone-verified-at", "phone_verified_at", "When its owner has proven the phone, such as 2026-11-21T12:00:00Z"},
		{"email-verified-at", "email_verified_at", "When its owner has proven the email"},
		{"login", "login_name", "The login name"},
		{"locale", "locale", "The language of its owner, such as lt or pt-BR"},
		{"role", "role", "The role"},
		{"status", "status", "active, restricted, closed or denied"},
		{"question", "control_question", "The control question; goes with --answer"},
		{"mnemocode", "profile_mnemocode", "A new mnemocode"}, // only for set
	}
	boolFlags = []fieldFlag{
		{"second-factor", "second_factor", "Require a one-time code after the password"},
		{"must-set-password", "must_set_password", "Require a new password at the next login"},
	}
	// In the order in which the secrets are read from standard input.
	secretFlags = []fieldFlag{
		{"password", "password", "Ask for a password, or read it from standard input"},
		{"password-hash", "password_hash", "Ask for the hash of a password, or read it from standard input"},
		{"answer", "control_answer", "Ask for the answer to the control question, or read it from standard input"},
	}
)

func addAccountFlags(cmd *cobra.Command, change bool) {
	flags := cmd.Flags()
	for _, f := range textFlags {
		if change || f.name != "mnemocode" {
			flags.String(f.name, "", f.usage)
		}
	}
	for _, f := range slices.Concat(boolFlags, secretFlags) {
		flags.Bool(f.name, false, f.usage)
	}
	flags.StringArray("identity", nil, "A user of an OAuth provider, written as 1:subject; may be repeated")
	if change {
		flags.Bool("no-password", false, "Take the password away")
		cmd.MarkFlagsMutuallyExclusive("password", "no-password")
	}
	cmd.MarkFlagsMutuallyExclusive("password", "password-hash")
	completeStatus(cmd)
}

// completeStatus adds shell completion for the flag --status.
func completeStatus(cmd *cobra.Command) {
	var all []string
	for _, status := range record.Statuses {
		all = append(all, string(status))
	}
	complete(cmd, "status", all...)
}

// fields returns the fields that the flags set, in the format of the API, and asks
// for the secrets. An empty text removes the value.
func (c *cli) fields() (map[string]any, error) {
	fields, flags := map[string]any{}, c.cmd.Flags()
	for _, f := range textFlags {
		if text, _ := flags.GetString(f.name); text != "" {
			fields[f.field] = text
		} else if flags.Changed(f.name) {
			fields[f.field] = nil
		}
	}
	for _, f := range boolFlags {
		if flags.Changed(f.name) {
			fields[f.field], _ = flags.GetBool(f.name)
		}
	}
	if remove, _ := flags.GetBool("no-password"); remove {
		fields["password"] = nil
	}
	if flags.Changed("identity") {
		given, _ := flags.GetStringArray("identity")
		identities, err := parseIdentities(given)
		if err != nil {
			return nil, err
		}
		fields["oauth_identities"] = identities
	}
	for _, f := range secretFlags {
		if wanted, _ := flags.GetBool(f.name); wanted {
			name := strings.ReplaceAll(f.field, "_", " ")
			secret, err := c.secret(strings.ToUpper(name[:1]) + name[1:])
			if err != nil {
				return nil, err
			}
			fields[f.field] = secret
		}
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if text, ok := fields[name].(string); ok && !utf8.ValidString(text) {
			return nil, &cliError{exit: exitFailed, field: name, message: name + ": it is not UTF-8; give it in UTF-8"}
		}
	}
	return fields, nil
}

// secret asks for a secret twice, without echo. If standard input is not a terminal,
// secret reads the next line of it.
func (c *cli) secret(name string) (string, error) {
	if !isTerminal(c.cmd.InOrStdin()) {
		line, err := c.in.ReadString('\n')
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			return line, guest.Inside(name, guest.CheckSecret(line))
		}
		if err == nil || err == io.EOF {
			err = errors.New("the line is empty; write the secret on it")
		}
		return "", fmt.Errorf("%s: reading standard input: %w", name, err)
	}
	var typed [2]string
	for i, prompt := range []string{name, name + ", again"} {
		fmt.Fprint(c.cmd.ErrOrStderr(), prompt+": ")
		line, err := term.ReadPassword(int(c.cmd.InOrStdin().(*os.File).Fd()))
		fmt.Fprintln(c.cmd.ErrOrStderr())
		if err == nil && len(line) == 0 {
			err = errors.New("nothing was typed; start again")
		}
		if err != nil {
			return "", fmt.Errorf("%s: %w", prompt, err)
		}
		typed[i] = string(line)
	}
	if typed[0] != typed[1] {
		return "", fmt.Errorf("%s: the two differ; start again", name)
	}
	return typed[0], guest.Inside(name, guest.CheckSecret(typed[0]))
}

func (c *cli) addCommand() *cobra.Command {
	cmd := c.command("add <mnemocode> [flags]", "Adds an account", `The status is active unless --status says otherwise. --password prompts
twice for a password, without echo. Without a terminal, it reads the password
from standard input. --password-hash and --answer do the same, each with the
next line. The password need not follow the rules for users. With
--must-set-password, its owner must replace it at the first login.`,
		cobra.ExactArgs(1), func(args []string) error {
			fields, err := c.fields()
			if err != nil {
				return err
			}
			fields["profile_mnemocode"] = args[0]
			company, err := c.company()
			if err != nil {
				return err
			}
			return show(c, http.MethodPost, company+"/accounts", fields, c.showAccount)
		})
	cmd.Example = `  $ caddy mnemogate account add alice --email alice@example.com --phone +37060012345 --password
  $ pass show alice | caddy mnemogate account add alice --login alice --password --must-set-password`
	addAccountFlags(cmd, false)
	return cmd
}

func (c *cli) setCommand() *cobra.Command {
	cmd := c.byFlag(c.command("set <account> [flags]", "Changes an account", `Changes only the fields that you name. An empty value removes the old one, as
in --phone ''. --identity replaces all identities of the account.

A new status, password, role, phone, email, second factor or mnemocode revokes
all sessions, pending logins and recovery links of the account before the
command returns. So does an authenticator app that 'totp' sets up or removes.
--password and --password-hash also clear the lock after wrong passwords, and
must_set_password unless you set it. The owner gets a notice of a new password
by mail or SMS.`,
		cobra.ExactArgs(1), func(args []string) error {
			fields, err := c.fields()
			if err != nil {
				return err
			}
			if len(fields) == 0 {
				return errors.New("there is nothing to change; --help lists what you can change")
			}
			path, _, err := c.account(args[0])
			if err != nil {
				return err
			}
			return show(c, http.MethodPatch, path, fields, c.showAccount)
		}))
	cmd.Example = `  $ caddy mnemogate account set alice --status restricted
  $ caddy mnemogate account set alice@example.com --password --must-set-password
  $ caddy mnemogate account set alice --phone '' --second-factor=false`
	addAccountFlags(cmd, true)
	return cmd
}

func (c *cli) showCommand() *cobra.Command {
	return c.onAccount("show <account>", "Shows an account", `password_set says whether the account has a password, which nobody can see.
locked_until says when the lock after wrong passwords, codes or control answers
ends; 'account unlock' ends it now. captcha_due says whether the next password
needs a captcha, because captcha_after were wrong.`,
		func(path string, _ api.Account) error {
			return show(c, http.MethodGet, path, nil, c.showAccount)
		})
}

func (c *cli) showAccount(a api.Account) error {
	var identities, accepted []string
	for _, i := range a.Identities {
		identities = append(identities, fmt.Sprintf("%d:%s", i.Provider, i.Subject))
	}
	for _, d := range a.Accepted {
		accepted = append(accepted, strings.TrimSpace(d.Code+" "+d.Version)+" on "+d.At.Format(time.DateOnly))
	}
	return c.table(
		[]string{"profile_mnemocode", a.Mnemocode},
		[]string{"status", string(a.Status)},
		[]string{"role", orDash(a.Role)},
		[]string{"primary_phone", orDash(a.Phone)},
		[]string{"phone_verified_at", instant(a.PhoneVerified)},
		[]string{"primary_email", orDash(a.Email)},
		[]string{"email_verified_at", instant(a.EmailVerified)},
		[]string{"login_name", orDash(a.LoginName)},
		[]string{"locale", orDash(a.Locale)},
		[]string{"password_set", yesNo(a.PasswordSet)},
		[]string{"must_set_password", yesNo(a.MustSetPassword)},
		[]string{"second_factor", yesNo(a.SecondFactor)},
		[]string{"totp", yesNo(a.TOTP)},
		[]string{"passkeys", strconv.Itoa(a.Passkeys)},
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

func instant(t *time.Time) string {
	if t == nil {
		return "-"
	}
	return t.Format(time.RFC3339)
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
	var after string
	var all bool
	cmd := c.command("list [flags]", "Lists accounts", `Lists the accounts by mnemocode. If there are more than --limit, the last line
says how to list the next. --all lists all of them.

--status, --contains, --role, --locked and --no-second-factor select accounts,
which must match all of them. --contains ignores case, and spaces in a part of a
phone, as in '600 12'. --no-second-factor finds accounts without a phone, app
or backup codes, and with no passkey or OAuth identity to log in with instead.

With hardened, the list leaves out the locks of login ids, which 'account show'
has, and --locked does not find them.`,
		cobra.NoArgs, func([]string) error {
			company, err := c.company()
			if err != nil {
				return err
			}
			if all && !c.cmd.Flags().Changed("limit") {
				limit = api.MaxPage
			}
			query := url.Values{}
			for _, name := range []string{"status", "contains", "role", "locked", "no-second-factor"} {
				if flag := c.cmd.Flags().Lookup(name); flag.Changed {
					query.Set(strings.ReplaceAll(name, "-", "_"), flag.Value.String())
				}
			}
			header := []string{"MNEMOCODE", "STATUS", "PHONE", "EMAIL", "LOGIN", "PASSWORD", "LOCKED UNTIL"}
			for left := limit; ; header = nil {
				query.Set("limit", strconv.Itoa(left))
				query.Set("after", after)
				page, err := get[api.Page](c, company+"/accounts"+api.Query(query))
				if err != nil {
					return err
				}
				err = list(c, header, page.Accounts, func(a api.Account) []string {
					return []string{a.Mnemocode, string(a.Status), orDash(a.Phone), orDash(a.Email), orDash(a.LoginName), yesNo(a.PasswordSet), lockedText(a.LockedUntil)}
				})
				if after = page.Next; err != nil || after == "" {
					return err
				}
				if all {
					continue
				}
				if left -= len(page.Accounts); left == 0 {
					fmt.Fprintf(c.cmd.ErrOrStderr(), "There are more: add --after %s, or --all\n", after)
					return nil
				}
			}
		})
	cmd.Flags().IntVar(&limit, "limit", api.DefaultPage, "How many accounts to list, at most 1000")
	cmd.Flags().StringVar(&after, "after", "", "Begin after this mnemocode")
	cmd.Flags().String("status", "", "Only accounts that are active, restricted, closed or denied")
	cmd.Flags().String("contains", "", "Only accounts with a login id that contains this")
	cmd.Flags().String("role", "", "Only accounts with this role")
	cmd.Flags().Bool("locked", false, "Only accounts that are locked after wrong passwords, codes or answers")
	cmd.Flags().Bool("no-second-factor", false, "Only accounts that can give no second factor")
	cmd.Flags().BoolVar(&all, "all", false, "List all")
	completeStatus(cmd)
	return cmd
}

func (c *cli) deleteCommand() *cobra.Command {
	var yes bool
	cmd := c.onAccount("delete <account> [--yes]", "Deletes an account", `Deletes the account and its data in the stores, and revokes its sessions before
the command returns. Events that wait for your backend, the audit log, backups
and exports keep what they have. A new account with its login ids inherits
nothing, except their locks with hardened ('account unlock'). To keep a user out
for a while, change the status instead: 'account set --status'. Without --yes,
the command asks first.`,
		func(path string, a api.Account) error {
			if !yes {
				if err := c.confirm("Delete account "+a.Mnemocode+"? [y/N]", "y", "yes", "Y", "YES", "Yes"); err != nil {
					return err
				}
			}
			return c.change(http.MethodDelete, path, a, "deleted")
		})
	cmd.Flags().BoolVar(&yes, "yes", false, "Do not ask")
	return cmd
}

// confirm asks the user for one of the answers. In a script, use --yes.
func (c *cli) confirm(question string, answers ...string) error {
	if !isTerminal(c.cmd.InOrStdin()) {
		return errors.New("there is no terminal to ask at; add --yes")
	}
	fmt.Fprint(c.cmd.ErrOrStderr(), question+" ")
	if typed, _ := c.in.ReadString('\n'); !slices.Contains(answers, strings.TrimSpace(typed)) {
		return errors.New("canceled; nothing was changed")
	}
	return nil
}

func (c *cli) unlockCommand() *cobra.Command {
	return c.changeCommand("unlock <account>", "Clears the locks of an account", `Clears all counts of wrong passwords, codes and control answers. A disabled
password works again. Sessions stay as they are.`, http.MethodPost, "/unlock", "unlocked")
}

func (c *cli) welcomeCommand() *cobra.Command {
	return c.changeCommand("welcome <account>", "Mails a link for the first password", `The link is valid for welcome_ttl. The account needs an email, and may have no
password, passkey or identity yet. The company needs mail and a recovery link.`,
		http.MethodPost, "/welcome", "the link is on its way")
}

func (c *cli) explainCommand() *cobra.Command {
	var address string
	cmd := c.adminCommand("explain <login id> [--from <ip>]", "Says whether a login would work now", `Checks what a login checks, without the password and the code, and shows each
step, and whatever stands in its way, with the error_code and reason that the
user gets. Write the login id as the user types it. With --from, it also
checks the limits of that address. It takes the client for no known device, and
counts nothing. Of a request for the application, 'explain' says the same. The
exit status is 1 if the login would fail.`,
		cobra.ExactArgs(1), func(args []string) error {
			company, err := c.company()
			if err != nil {
				return err
			}
			query := url.Values{"login_id": args}
			if address != "" {
				query.Set("address", address)
			}
			answer, err := get[api.Findings](c, company+"/explain"+api.Query(query))
			if err != nil {
				return err
			}
			return c.printFindings(answer.Findings...)
		})
	cmd.Flags().StringVar(&address, "from", "", "The address of the client, as in the audit log")
	return cmd
}

func (c *cli) passkeysCommand() *cobra.Command {
	return parent("passkeys", "Lists and removes passkeys", "Lists an account's passkeys, and removes one.",
		listCommand(c, "list <account>", "Lists the passkeys of an account", "BACKED UP says whether the user's other devices have it, too.", "passkeys",
			[]string{"PASSKEY", "NAME", "BACKED UP", "CREATED", "LAST USED"},
			func(p api.Passkey) []string {
				return []string{p.ID, p.Name, yesNo(p.BackedUp), p.Created.Format(time.RFC3339), instant(p.LastUsed)}
			}), c.changeCommand("remove <account> <passkey>", "Removes a passkey", `Revokes all sessions of the account, too. <passkey> is as in 'passkeys list'; if
it begins with a dash, write -- before <account>. The last passkey of an account
without password, phone and identity stays.`, http.MethodDelete, "/passkeys", "the passkey is removed, all sessions revoked"))
}

func (c *cli) devicesCommand() *cobra.Command {
	return parent("devices", "Lists and removes known devices", "Lists an account's known devices, and removes one or all of them.",
		listCommand(c, "list <account>", "Lists the known devices of an account", "ADDRESS and USER AGENT are those of the login that was remembered.", "devices",
			[]string{"DEVICE", "CREATED", "EXPIRES", "ADDRESS", "USER AGENT"},
			func(d api.Device) []string {
				return []string{d.ID, d.Created.Format(time.RFC3339), d.Expires.Format(time.RFC3339), d.Address, d.UserAgent}
			}), c.changeCommand("remove <account> [<device>]", "Removes known devices", `Removes all of them, or one: <device> is as in 'devices list'. Sessions stay as
they are.`, http.MethodDelete, "/devices", "removed from the known devices"))
}

func (c *cli) backupCodesCommand() *cobra.Command {
	return c.onAccount("backup-codes <account>", "Creates new backup codes", `Creates ten codes and revokes the old ones. Each replaces a one-time code once.
They are shown only now: the store has only their hashes.`,
		func(path string, _ api.Account) error {
			return show(c, http.MethodPost, path+"/backup-codes", nil, func(answer api.BackupCodes) error {
				_, err := fmt.Fprintln(c.cmd.OutOrStdout(), strings.Join(answer.Codes, "\n"))
				return err
			})
		})
}
