package breached

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/panics"
)

// directory is a directory of range files. It opens a file for each password, so that
// a new download takes effect at once.
type directory struct {
	path  string
	reads chan struct{} // in progress
}

const maxReads = 64 // at once

// extension follows the range in the names of the files that the downloader writes.
const extension = ".txt"

var rangeFile = regexp.MustCompile(`^[0-9A-F]{5}(\.txt)?$`)

// probed is how many files of a directory are looked at to see whether it has ranges.
const probed = 1000

func newDirectory(path string) (*directory, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(probed)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !slices.ContainsFunc(names, rangeFile.MatchString) {
		return nil, fmt.Errorf("%s has no range files such as 00000.txt; download them with haveibeenpwned-downloader %s -s false", path, filepath.Base(path))
	}
	return &directory{path, make(chan struct{}, maxReads)}, nil
}

// Has implements tenant.BreachedList. It waits for a disk that is stuck no longer than for a
// server, and uses a bounded number of threads.
func (d *directory) Has(ctx context.Context, password string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(timeout))
	defer cancel()
	read := make(chan func() (bool, error), 1)
	select {
	case d.reads <- struct{}{}:
		go func() {
			var listed bool
			err := panics.Contain(func() (err error) {
				listed, err = d.search(password)
				return err
			})
			<-d.reads
			read <- func() (bool, error) { return listed, err }
		}()
	case <-ctx.Done():
	}
	select {
	case result := <-read:
		return result()
	case <-ctx.Done():
		return false, errors.New("reading a range: the disk does not answer")
	}
}

func (d *directory) search(password string) (bool, error) {
	prefix, suffix := split(password)
	name := filepath.Join(d.path, prefix)
	lines, err := os.ReadFile(name + extension)
	if errors.Is(err, fs.ErrNotExist) {
		lines, err = os.ReadFile(name)
	}
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		err = of.Err // the name of the file says something about the password
	}
	listed := false
	if err == nil {
		listed, err = search(string(lines), suffix)
	}
	return listed, guest.Inside("reading a range", err)
}
