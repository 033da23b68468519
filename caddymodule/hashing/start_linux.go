package hashing

import (
	"os/exec"
	"runtime"
	"syscall"
)

// ownProgram is what this process runs, also if its file was replaced since.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// lower, added to this process' nice value, leaves the other a tenth of a CPU that
// this one wants for itself. The lowest priority would leave it a hundredth: a flood
// of requests, be they refused, would keep everybody from logging in.
const lower = 10

// startLow starts a process with a low priority. In Linux that belongs to threads
// and is inherited, and who has lowered it can't raise it again: so a thread does
// it that ends with its goroutine.
func startLow(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil { // 20 less the nice value
			syscall.Setpriority(syscall.PRIO_PROCESS, 0, 20-p+lower) // without it all is well but slower
		}
		started <- cmd.Start()
	}()
	return <-started
}
