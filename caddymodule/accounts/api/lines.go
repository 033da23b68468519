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

// ErrLongLine is the answer of ReadLine to a line that the buffer can't hold.
var ErrLongLine = errors.New("long line")

// ReadLine returns a line without keeping it. One that the buffer can't hold is
// read to its end.
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
