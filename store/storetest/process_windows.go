package storetest

import (
	"errors"
	"os"
	"syscall"
)

func runAs(*owner) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func isGone(int) bool { return false }

// Freeze is not supported on Windows.
func Freeze(*os.Process) error { return errors.ErrUnsupported }

// Thaw is not supported on Windows.
func Thaw(*os.Process) error { return errors.ErrUnsupported }
