package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// WriteLine writes v as one line of JSON.
func WriteLine(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// ErrLongLine means that a line has more than MaxAccount bytes.
var ErrLongLine = fmt.Errorf("the line has more than %d bytes", MaxAccount)

// ErrNotLines means that the text begins like a JSON document of several lines.
var ErrNotLines = errors.New("it does not have one JSON object per line; convert it with jq -c '.[]' if it is an array, and with jq -c . if its objects span lines")

// Lines reads the lines of an import.
type Lines struct {
	N int // the number of the line that Next returned

	r     *bufio.Reader
	begun bool // Next has returned a line
}

// NewLines returns the lines of r.
func NewLines(r io.Reader) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, MaxAccount+1)}
}

// Next returns the next line that is not empty, without the space around it. The line
// is valid until the next call. After ErrLongLine and ErrNotLines, the next call returns
// the line after it. Any other error is the end of the lines; io.EOF if nothing is wrong.
func (l *Lines) Next() ([]byte, error) {
	for {
		line, err := l.r.ReadSlice('\n')
		long := err == bufio.ErrBufferFull
		for err == bufio.ErrBufferFull {
			_, err = l.r.ReadSlice('\n')
		}
		if err != nil && err != io.EOF {
			return nil, err
		}
		l.N++
		if long {
			return nil, ErrLongLine
		}
		if l.N == 1 {
			line = bytes.TrimPrefix(line, []byte("\ufeff"))
		}
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if !l.begun && (line[0] == '[' || string(line) == "{") {
				return nil, ErrNotLines
			}
			l.begun = true
			return line, nil
		}
		if err != nil {
			return nil, err
		}
	}
}
