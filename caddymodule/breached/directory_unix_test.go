//go:build unix

package breached

import (
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// A pipe that nobody writes to keeps its readers waiting, as a disk does that is stuck.
func TestAStuckDiskIsNotAwaited(t *testing.T) {
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, listedPrefix+extension), 0o600); err != nil {
		t.Fatal(err)
	}
	list := open(t, List{From: dir})
	watch := storetest.StartWatch()
	var all sync.WaitGroup
	for range 2 * maxReads {
		all.Go(func() {
			if got, err := list.Has(t.Context(), listed); got || err == nil || !strings.Contains(err.Error(), "does not answer") {
				t.Errorf("got %v, %v", got, err)
			}
		})
	}
	all.Wait()
	if took := watch.Took(); took > 2*time.Second {
		t.Errorf("they waited %v", took)
	}
}
