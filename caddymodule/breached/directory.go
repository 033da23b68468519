package breached

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// directory is a directory of range files. It opens a file for each password, so that
// a new download takes effect at once.
type directory struct{ path string }

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
	return &directory{path}, nil
}

// Has implements tenant.BreachedList.
func (d *directory) Has(_ context.Context, password string) (bool, error) {
	prefix, suffix := split(password)
	file, err := d.open(prefix)
	if err != nil {
		return false, fmt.Errorf("opening a range: %w", plain(err))
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return false, fmt.Errorf("reading a range: %w", plain(err))
	}
	listed, err := seek(file, info.Size(), suffix)
	if err != nil {
		return false, fmt.Errorf("reading a range: %w", plain(err))
	}
	return listed, nil
}

func (d *directory) open(prefix string) (*os.File, error) {
	name := filepath.Join(d.path, prefix)
	file, err := os.Open(name + extension)
	if errors.Is(err, fs.ErrNotExist) {
		file, err = os.Open(name)
	}
	return file, err
}

// plain returns an error without the name of the file, which says something about the
// password.
func plain(err error) error {
	if of, ok := errors.AsType[*fs.PathError](err); ok {
		return of.Err
	}
	return err
}

// seek reports whether a range, whose lines are sorted, has a hash. It reads only the
// lines that a binary search visits.
func seek(file io.ReaderAt, size int64, wanted string) (bool, error) {
	for low, high := int64(0), size; low < high; {
		line, start, err := lineAt(file, low+(high-low)/2)
		if err != nil {
			return false, err
		}
		suffix, count, err := parse(line)
		if err != nil {
			return false, err
		}
		switch strings.Compare(suffix, wanted) {
		case 0:
			return count > 0, nil
		case -1:
			low = start + int64(len(line))
		case 1:
			high = start
		}
	}
	return false, nil
}

// maxLine is longer than any line of a range, with its end.
const maxLine = 64

// lineAt returns the line that the byte at an offset belongs to, with its end, and where
// it starts.
func lineAt(file io.ReaderAt, offset int64) (line string, start int64, err error) {
	var window [2 * maxLine]byte
	from := max(0, offset-maxLine)
	n, err := file.ReadAt(window[:], from)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", 0, err
	}
	at := int(offset - from)
	if at >= n {
		return "", 0, io.ErrUnexpectedEOF
	}
	begin := bytes.LastIndexByte(window[:at], '\n') + 1
	end := bytes.IndexByte(window[at:n], '\n') + at + 1
	if end == at {
		end = n // the last line, without an end; a longer one is malformed
	}
	return string(window[begin:end]), from + int64(begin), nil
}
