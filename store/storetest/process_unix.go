//go:build unix

package storetest

import (
	"os"
	"syscall"
)

// runAs returns the attributes to start a process as a user, or as the tests' user
// if u is nil.
func runAs(u *owner) *syscall.SysProcAttr {
	if u == nil {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid), Groups: []uint32{}}}
}

func isGone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// Freeze suspends a process until Thaw.
func Freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Thaw resumes a process after Freeze.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
