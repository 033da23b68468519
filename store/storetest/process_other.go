//go:build !linux

package storetest

import "syscall"

func endWithParent(*syscall.SysProcAttr) {} // only Linux can do it
