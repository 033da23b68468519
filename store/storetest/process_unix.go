//go:build unix

package storetest

import (
	"os"
	"syscall"
)

// runAs is how a process is started as a user; nil is the tests' own.
func runAs(u *owner) *syscall.SysProcAttr {
	if u == nil {
		return &syscall.SysProcAttr{}
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(u.uid), Gid: uint32(u.gid), Groups: []uint32{}}}
}

func isGone(pid int) bool { return syscall.Kill(pid, 0) == syscall.ESRCH }

// Freeze stops a process in its tracks until it is thawed.
func Freeze(p *os.Process) error { return p.Signal(syscall.SIGSTOP) }

// Thaw ends a Freeze.
func Thaw(p *os.Process) error { return p.Signal(syscall.SIGCONT) }
