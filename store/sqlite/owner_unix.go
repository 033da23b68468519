//go:build unix

package sqlite

import (
	"os"
	"path/filepath"
	"syscall"
)

// giveToOwner changes the owner of a file or directory that root has created to the owner
// of to or, if there is none, of its directory. Caddy seldom runs as root.
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
	return os.Lchown(made, int(owner.Uid), int(owner.Gid)) // not Chown: the directory's owner could have put a link there
}
