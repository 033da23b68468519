package command

import (
	"os"
	"syscall"

	"github.com/spf13/cobra"
)

func (c *cli) exportCommand() *cobra.Command {
	var file string
	var secrets bool
	cmd := c.command("export [--output <file>] [--with-secrets]", "Exports all accounts", `Writes one JSON object a line, as 'import' takes it: to move to another store,
or to keep a copy. Passwords, control answers and backup codes are in it as
hashes, so nobody has to set a new password after a move; keep the file as you
keep the store. Sessions and the counts of wrong attempts are not in it.

The secrets of authenticator apps can't be kept as hashes: they are in it, in
plain, only with --with-secrets. Without it their users have to set up their
apps again.`,
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
			defer c.interruptible(os.Interrupt, syscall.SIGTERM)()
			if file == "" {
				_, err = c.download(c.cmd.OutOrStdout(), path, broken)
				return err
			}
			f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) // only its owner may read it
			if err != nil {
				return err
			}
			if _, err = c.save(f, path, broken); err != nil {
				os.Remove(file) // it could be mistaken for a complete export
			}
			return err
		})
	cmd.Flags().StringVarP(&file, "output", "o", "", "Write to this new file, which only you can read")
	cmd.Flags().BoolVar(&secrets, "with-secrets", false, "Export the secrets of authenticator apps, too")
	_ = cmd.MarkFlagFilename("output")
	return cmd
}
