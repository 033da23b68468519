package integration

import (
	"fmt"
	"os"
	"syscall"
	"testing"
	"unsafe"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// limitFiles returns a function that limits the size of the files that Caddy writes.
func limitFiles(size uint64) func(*site, string) error {
	return func(s *site, _ string) error {
		var limit syscall.Rlimit
		prlimit := func(change, before *syscall.Rlimit) error {
			_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, uintptr(s.cmd.Process.Pid), syscall.RLIMIT_FSIZE,
				uintptr(unsafe.Pointer(change)), uintptr(unsafe.Pointer(before)), 0, 0)
			if errno != 0 {
				return errno
			}
			return nil
		}
		if err := prlimit(nil, &limit); err != nil {
			return err
		}
		limit.Cur = min(size, limit.Max)
		return prlimit(&limit, nil)
	}
}

// smallDisk mounts a file system of 4 MiB.
func smallDisk(t *testing.T) string {
	dir := shortTempDir(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m"); err != nil {
		storetest.SkipOrFail(t, fmt.Sprintf("a small disk can't be mounted: %v", err))
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// The attribute that chattr +i sets, and the ioctls that get and set it.
const (
	getFlags      = 0x80086601
	setFlags      = 0x40086602
	flagImmutable = 0x10
)

func changeImmutable(file string, on bool) error {
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	var flags int
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), getFlags, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return errno
	}
	if flags |= flagImmutable; !on {
		flags &^= flagImmutable
	}
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, f.Fd(), setFlags, uintptr(unsafe.Pointer(&flags))); errno != 0 {
		return errno
	}
	return nil
}

// raiseLimit lets this process and its children open n files.
func raiseLimit(t *testing.T, n uint64) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		storetest.SkipOrFail(t, fmt.Sprintf("descriptors: %v", err))
	}
	if limit.Cur >= n {
		return
	}
	raised := syscall.Rlimit{Cur: n, Max: max(n, limit.Max)}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &raised); err != nil {
		storetest.SkipOrFail(t, fmt.Sprintf("%d descriptors can't be had: %v", n, err))
	}
	t.Cleanup(func() { _ = syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit) })
}
