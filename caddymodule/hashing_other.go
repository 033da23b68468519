//go:build !linux

package caddymodule

import (
	"os"
	"os/exec"
)

func ownProgram() (string, error) { return os.Executable() }

func startLow(cmd *exec.Cmd) error { return cmd.Start() }
