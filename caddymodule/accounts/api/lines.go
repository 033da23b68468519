package api

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
)

// WriteLine writes v as one line of JSON.
func WriteLine(w io.Writer, v any) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	return encoder.Encode(v)
}

// ErrLongLine is returned by ReadLine for a line that does not fit in the buffer.
var ErrLongLine = errors.New("long line")

// ReadLine returns a line that is valid until the next call. If the line does not
// fit in the buffer, ReadLine skips the rest of it and returns ErrLongLine.
func ReadLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != bufio.ErrBufferFull {
		return line, err
	}
	for err == bufio.ErrBufferFull {
		_, err = r.ReadSlice('\n')
	}
	if err == nil || err == io.EOF {
		err = ErrLongLine
	}
	return nil, err
}
