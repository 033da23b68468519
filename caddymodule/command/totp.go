package command

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"

	"github.com/spf13/cobra"
	"rsc.io/qr"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/manage"
)

func (c *cli) totpCommand() *cobra.Command {
	cmd := c.onAccount("totp <account>", "Sets up an authenticator app", `Shows a QR code for the app once, and asks for the code that the app then shows.
Without a terminal, it reads the code from standard input. Nothing changes until
the code is correct. Then the app replaces SMS and any earlier app, and all
sessions of the account are revoked.

Users are asked for a code if their account has second_factor, or if the company
has second_factor required. An account without a password still gets an SMS.`,
		func(path string, a api.Account) error {
			if err := show(c, http.MethodPost, path+"/totp", nil, c.showSecret); err != nil {
				return err
			}
			data, err := c.confirmCode(path + "/totp/confirm")
			if err != nil {
				return err
			}
			if c.json {
				_, err := c.cmd.OutOrStdout().Write(data)
				return err
			}
			if !a.SecondFactor {
				fmt.Fprintf(c.cmd.ErrOrStderr(), "%s has no second_factor: unless the company requires one, logins do not ask for the app\n", a.Mnemocode)
			}
			return c.done("profile_mnemocode", a.Mnemocode, "the app is confirmed, all sessions revoked")
		})
	cmd.Example = `  $ caddy mnemogate totp alice
  $ caddy mnemogate totp remove alice`
	cmd.AddCommand(c.changeCommand("remove <account>", "Removes the authenticator app", `Revokes all sessions of the account, too. The next login needs an SMS, if the
account has a phone, or a backup code.`, http.MethodDelete, "/totp", "the app is removed"))
	return cmd
}

var fourCharacters = regexp.MustCompile(`.{4}\B`)

func (c *cli) showSecret(secret manage.TOTPSecret) error {
	code, err := qr.Encode(secret.URI, qr.L)
	if err != nil {
		return err
	}
	picture := drawQR(code)
	if isTerminal(c.cmd.OutOrStdout()) { // don't depend on its colors
		picture = "\x1b[97;40m" + strings.ReplaceAll(picture, "\n", "\x1b[0m\n\x1b[97;40m") + "\x1b[0m"
	}
	_, err = fmt.Fprintf(c.cmd.OutOrStdout(), "%s\nScan this with the app, or type %s\n", picture, fourCharacters.ReplaceAllString(secret.Secret, "$0 "))
	return err
}

// quietZone is the number of light modules around a QR code. ISO/IEC 18004 requires
// 4, but terminals have margins of their own.
const quietZone = 2

// drawQR draws two rows of modules per line. It draws the light ones, because most
// terminals have a dark background.
func drawQR(code *qr.Code) string {
	var b strings.Builder
	for y := -quietZone; y < code.Size+quietZone; y += 2 {
		for x := -quietZone; x < code.Size+quietZone; x++ {
			switch upper, lower := code.Black(x, y), code.Black(x, y+1); {
			case upper && lower:
				b.WriteRune(' ')
			case upper:
				b.WriteRune('▄')
			case lower:
				b.WriteRune('▀')
			default: // outside of the code, too
				b.WriteRune('█')
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// codeTries is how often confirmCode asks a user for a correct code.
const codeTries = 3

// confirmCode asks for the app's code until it is correct, and returns the answer.
func (c *cli) confirmCode(path string) (data []byte, err error) {
	tries := 1
	if isTerminal(c.cmd.InOrStdin()) {
		tries = codeTries
	}
	for range tries {
		fmt.Fprint(c.cmd.ErrOrStderr(), "The code that the app shows: ")
		line, readErr := c.in.ReadString('\n')
		line = strings.ReplaceAll(strings.TrimSpace(line), " ", "")
		if line == "" && readErr == io.EOF {
			return nil, errors.New("the code is empty; the app is not set up")
		}
		if line == "" && readErr != nil {
			return nil, readErr
		}
		data, err = c.ask(http.MethodPost, path, map[string]string{"code": line})
		if err == nil || asCLIError(err).field != "code" {
			return data, err
		}
		if tries > 1 {
			fmt.Fprintln(c.cmd.ErrOrStderr(), err)
		}
	}
	return nil, err
}
