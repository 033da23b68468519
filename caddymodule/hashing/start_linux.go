package hashing

import (
	"os/exec"
	"runtime"
	"syscall"
)

// ownProgram is what this process runs, also if its file was replaced since.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// startLow starts a process with the lowest priority. In Linux that belongs to
// threads and is inherited, and who has lowered it can't raise it again: so a
// thread does it that ends with its goroutine.
func startLow(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) // without it all is well but slower
		started <- cmd.Start()
	}()
	return <-started
}
