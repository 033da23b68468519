package command

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"rsc.io/qr"

	"github.com/mnemogate/mnemogate/flows/manage"
)

func (c *cli) totpCommand() *cobra.Command {
	cmd := c.byFlag(c.command("totp <account>", "Sets up an authenticator app", `Shows a QR code for the app, once, and asks for the first code that the app then
shows; where standard input is no terminal, that is read from there. Until the
code was right nothing changes. Then the app takes the place of the SMS, and all
sessions of the account end. An app that the account had before is replaced.

A second factor is asked for where second_factor of the account is on, or the
company says second_factor required. An account without a password goes on by
SMS.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, a, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if err := c.showSecret(cmd, path+"/totp"); err != nil {
				return err
			}
			data, err := c.confirmCode(cmd, path+"/totp/confirm")
			if err != nil {
				return err
			}
			if c.json {
				_, err := cmd.OutOrStdout().Write(data)
				return err
			}
			if !a.SecondFactor {
				fmt.Fprintf(cmd.ErrOrStderr(), "second_factor of %s is off: where the company does not require one, the app is not asked for\n", a.Mnemocode)
			}
			return c.done(cmd.OutOrStdout(), a.Mnemocode, "the app is confirmed, all sessions ended")
		}))
	cmd.Example = `  $ caddy mnemogate totp alice
  $ caddy mnemogate totp remove alice`
	cmd.AddCommand(c.byFlag(c.command("remove <account>", "Takes the authenticator app away", `All sessions of the account end. The next login goes on by SMS, where there is a
phone, or with a backup code.`,
		cobra.ExactArgs(1), func(cmd *cobra.Command, args []string) error {
			path, a, err := c.account(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			if _, err := c.ask(cmd.Context(), http.MethodDelete, path+"/totp", nil); err != nil {
				return err
			}
			return c.done(cmd.OutOrStdout(), a.Mnemocode, "the app is removed")
		})))
	return cmd
}

// showSecret has a secret made, and shows it.
func (c *cli) showSecret(cmd *cobra.Command, path string) error {
	data, err := c.ask(cmd.Context(), http.MethodPost, path, nil)
	if err != nil {
		return err
	}
	if c.json {
		_, err := cmd.OutOrStdout().Write(data)
		return err
	}
	var secret manage.TOTPSecret
	if err := json.Unmarshal(data, &secret); err != nil {
		return err
	}
	code, err := qr.Encode(secret.URI, qr.L)
	if err != nil {
		return err
	}
	picture := drawQR(code)
	if isTerminal(cmd.OutOrStdout()) { // whatever its colours are
		picture = "\x1b[97;40m" + strings.ReplaceAll(picture, "\n", "\x1b[0m\n\x1b[97;40m") + "\x1b[0m"
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s\nScan this with the app, or type %s\n", picture, inGroups(secret.Secret))
	return err
}

func isTerminal(stream any) bool {
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// inGroups makes a text easier to type.
func inGroups(text string) string {
	var b strings.Builder
	for i, r := range text {
		if i > 0 && i%4 == 0 {
			b.WriteByte(' ')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// quietZone is how many light modules surround a QR code (ISO/IEC 18004 wants 4;
// terminals have margins of their own).
const quietZone = 2

// drawQR draws two rows of modules in a line: the light ones, since what is not
// drawn is dark on most terminals.
func drawQR(code *qr.Code) string {
	light := func(x, y int) bool { return !code.Black(x, y) } // beyond the edges, too
	var b strings.Builder
	for y := -quietZone; y < code.Size+quietZone; y += 2 {
		for x := -quietZone; x < code.Size+quietZone; x++ {
			switch upper, lower := light(x, y), light(x, y+1); {
			case upper && lower:
				b.WriteRune('█')
			case upper:
				b.WriteRune('▀')
			case lower:
				b.WriteRune('▄')
			default:
				b.WriteRune(' ')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// codeTries is how often a person is asked for a code that is right.
const codeTries = 3

// confirmCode asks for the app's code until it is right, and returns the account.
func (c *cli) confirmCode(cmd *cobra.Command, path string) (data []byte, err error) {
	tries := 1
	if isTerminal(cmd.InOrStdin()) {
		tries = codeTries
	}
	in := bufio.NewReader(cmd.InOrStdin())
	for range tries {
		fmt.Fprint(cmd.ErrOrStderr(), "The code that the app shows: ")
		line, readErr := in.ReadString('\n')
		line = strings.ReplaceAll(strings.TrimSpace(line), " ", "")
		if line == "" && readErr != nil {
			if readErr == io.EOF {
				readErr = errors.New("no code was given; the app is not set up")
			}
			return nil, readErr
		}
		data, err = c.ask(cmd.Context(), http.MethodPost, path, map[string]string{"code": line})
		refused, ok := errors.AsType[*cliError](err)
		if err == nil || !ok || refused.field != "code" {
			return data, err
		}
		if tries > 1 {
			fmt.Fprintln(cmd.ErrOrStderr(), refused.message)
		}
	}
	return nil, err
}
