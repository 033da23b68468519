//go:build !linux

package integration

import (
	"errors"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

func limitFiles(uint64) func(*site, string) error {
	return func(*site, string) error { return errors.ErrUnsupported }
}

func smallDisk(t *testing.T) string {
	storetest.SkipOrFail(t, "the tests can mount a small disk on Linux only")
	return ""
}

func changeImmutable(string, bool) error { return errors.ErrUnsupported }

func raiseLimit(t *testing.T, n uint64) {
	storetest.SkipOrFail(t, "the tests can raise the limit of open files on Linux only")
}
