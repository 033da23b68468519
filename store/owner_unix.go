//go:build unix

package store

import (
	"os"
	"path/filepath"
	"syscall"
)

// giveToOwner makes a file that root has made that of who owns the file at to, or
// else its directory: Caddy is seldom root.
func giveToOwner(made, to string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	info, err := os.Stat(to)
	if err != nil {
		info, err = os.Stat(filepath.Dir(to))
	}
	if err != nil {
		return err
	}
	owner := info.Sys().(*syscall.Stat_t)
	return os.Lchown(made, int(owner.Uid), int(owner.Gid)) // who owns the directory could have put a link there
}
