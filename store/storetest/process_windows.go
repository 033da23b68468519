package storetest

import (
	"errors"
	"os"
	"syscall"
)

func runAs(*owner) *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

func isGone(int) bool { return false }

// Freeze can't be had.
func Freeze(*os.Process) error { return errors.ErrUnsupported }

// Thaw can't be had.
func Thaw(*os.Process) error { return errors.ErrUnsupported }
