package command

import (
	"github.com/spf13/cobra"
)

func (c *cli) exportCommand() *cobra.Command {
	var file string
	var secrets bool
	cmd := c.command("export [--output <file>] [--with-secrets]", "Exports all accounts", `Writes one JSON object per line, which 'import' reads. Passwords, control
answers and backup codes are exported as hashes, so they still work afterwards.
Protect the file like the store. Sessions, histories, issued tokens, known
devices, keys of assertions, and counts of wrong attempts are not exported, so
locked accounts are unlocked.

With --with-secrets, it also exports the secrets of authenticator apps, in plain
text. Without it, users must set up their apps again.`,
		cobra.NoArgs, func([]string) error {
			company, err := c.company()
			if err != nil {
				return err
			}
			path := company + "/export"
			if secrets {
				path += "?secrets=true"
			}
			const broken = "the export is not complete"
			if file == "" || file == "-" {
				defer c.interruptible()()
				_, err = c.download(c.cmd.OutOrStdout(), path, broken)
				return err
			}
			_, err = c.save(file, false, path, broken)
			return err
		})
	cmd.Flags().StringVarP(&file, "output", "o", "", "Write to this new file, which only you can read")
	cmd.Flags().BoolVar(&secrets, "with-secrets", false, "Export the secrets of authenticator apps, too")
	_ = cmd.MarkFlagFilename("output")
	return cmd
}
