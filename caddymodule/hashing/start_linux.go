package hashing

import (
	"os/exec"
	"runtime"
	"syscall"
)

// ownProgram returns the program of this process, even if its file has been
// replaced.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

// niceIncrement is added to this process's nice value. While this process is busy, a child
// then gets about a tenth of a CPU. At the lowest priority it would get a hundredth,
// and a flood of requests, even refused ones, would keep all users from logging in.
const niceIncrement = 10

// startLow starts a process with a low priority. On Linux the priority belongs to a
// thread and is inherited, and a thread that lowered it can't raise it again. So
// startLow uses a thread that ends with its goroutine.
func startLow(cmd *exec.Cmd) error {
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		if p, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0); err == nil { // 20 minus the nice value
			syscall.Setpriority(syscall.PRIO_PROCESS, 0, 20-p+niceIncrement) // on failure the process only has a higher priority
		}
		started <- cmd.Start()
	}()
	return <-started
}
