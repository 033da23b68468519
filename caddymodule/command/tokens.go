package command

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/spf13/cobra"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
)

func (c *cli) tokensCommand() *cobra.Command {
	return parent("tokens", "Issues, lists and revokes tokens for machines and support", "Issues tokens for an account, lists and revokes them. With --api, the key needs\nthe right issue, or act for tokens with an actor.",
		c.issueTokenCommand(), listCommand(c, "list <account>", "Lists the issued tokens of an account", "It shows no tokens, because they are stored only as hashes. ACTOR is who acts as\nthe user.", "tokens",
			[]string{"TOKEN", "NAME", "METHODS", "PATHS", "ACTOR", "EXPIRES", "LAST USED"},
			func(t api.Token) []string {
				return []string{t.ID, t.Name, strings.Join(t.Methods, " "), strings.Join(t.Paths, " "), cmp.Or(t.Actor, "-"), t.Expires.Format(time.RFC3339), instant(t.LastUsed)}
			}), c.changeCommand("remove <account> <token>", "Revokes an issued token", `<token> is its id, as in 'tokens list'. Sessions stay as they are.`, http.MethodDelete, "/tokens", "the token is revoked"))
}

func (c *cli) issueTokenCommand() *cobra.Command {
	var wish api.NewToken
	var life string
	cmd := c.onAccount("issue <account> --name <name> --path <path> [flags]", "Issues a token for an account", `Prints the token, shown only this once, on standard output, and its id on
standard error. It opens the paths for the methods, and is no login. With
--actor and --reason, somebody acts as the user, and the owner gets a notice.
The company needs issued_tokens.`, func(path string, _ api.Account) error {
		if life != "" {
			d, err := caddy.ParseDuration(life)
			if err != nil || d < time.Second {
				return errors.New("--for: write a duration of at least 1s, such as 12h or 30d")
			}
			wish.ExpiresIn = int64(d / time.Second)
		}
		return show(c, http.MethodPost, path+"/tokens", wish, func(t api.Token) error {
			fmt.Fprintf(c.cmd.ErrOrStderr(), "%s: valid until %s\n", t.ID, t.Expires.Format(time.RFC3339))
			_, err := fmt.Fprintln(c.cmd.OutOrStdout(), t.Token)
			return err
		})
	})
	cmd.Example = `  $ caddy mnemogate tokens issue robot --name nightly --path '/reports/*' > token
  $ caddy mnemogate tokens issue alice --actor anna --reason 'ticket 4711' --path '/*' --method GET,POST`
	flags := cmd.Flags()
	flags.StringVar(&wish.Name, "name", "", "What it is for; default: the actor")
	flags.StringArrayVar(&wish.Paths, "path", nil, "A path that it opens, such as '/reports/*'; may be repeated")
	flags.StringSliceVar(&wish.Methods, "method", []string{"GET"}, "The methods that it opens them for")
	flags.StringVar(&life, "for", "", "How long it is valid, such as 30d; default: as long as the company allows")
	flags.StringVar(&wish.Actor, "actor", "", "Who acts as the user with it")
	flags.StringVar(&wish.Reason, "reason", "", "Why the actor does")
	return cmd
}
