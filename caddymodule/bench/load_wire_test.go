package bench

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/http3"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A speaker is a connection that speaks a version of HTTP.
type speaker interface {
	exchange(t *template, s shot) (status int, err error)
	net.Conn
}

// HTTP/1.1

type wire1 struct {
	net.Conn
	out, in []byte
}

var (
	headerEnd     = []byte("\r\n\r\n")
	contentLength = []byte("\r\nContent-Length: ")
)

func (w *wire1) exchange(t *template, s shot) (status int, err error) {
	w.out = append(append(append(append(append(w.out[:0], t.method...), ' '), t.path...), s.path...), " HTTP/1.1\r\nHost: api.example.com\r\n"...)
	if s.token != "" {
		w.out = append(append(append(w.out, cmp.Or(t.header, bearer)...), s.token...), "\r\n"...)
	}
	if t.key != "" {
		w.out = append(append(append(w.out, "X-Api-Key: "...), t.key...), "\r\n"...)
	}
	if s.body != "" {
		w.out = append(strconv.AppendInt(append(w.out, "Content-Type: application/json\r\nContent-Length: "...), int64(len(s.body)), 10), "\r\n"...)
	}
	w.out = append(append(w.out, "\r\n"...), s.body...)
	if _, err := w.Write(w.out); err != nil {
		return 0, err
	}
	n, end := 0, -1
	for end < 0 {
		if n == len(w.in) {
			return 0, errors.New("the answer's header is too long")
		}
		more, err := w.Read(w.in[n:])
		if err != nil {
			return 0, err
		}
		n += more
		end = bytes.Index(w.in[:n], headerEnd)
	}
	head := w.in[:end+2]
	if len(head) < 12 {
		return 0, fmt.Errorf("the answer is %q", head)
	}
	if status, err = strconv.Atoi(string(head[9:12])); err != nil {
		return 0, err
	}
	length := 0
	if i := bytes.Index(head, contentLength); i >= 0 {
		digits, _, _ := bytes.Cut(head[i+len(contentLength):], headerEnd[:2])
		if length, err = strconv.Atoi(string(digits)); err != nil {
			return 0, err
		}
	} else if status != 204 {
		return 0, fmt.Errorf("the answer has no length: %q", head)
	}
	rest := end + len(headerEnd) + length - n
	if rest < 0 {
		return 0, errors.New("there is more than one answer")
	}
	if rest > 0 {
		_, err = io.CopyN(io.Discard, w.Conn, int64(rest))
	}
	return status, err
}

// HTTP/2

type wire2 struct {
	net.Conn
	frames  *http2.Framer
	out     bytes.Buffer // is written at once
	block   bytes.Buffer
	headers *hpack.Encoder
	stream  uint32
	unacked uint32
}

const window = 1 << 30

func newWire2(conn net.Conn) (*wire2, error) {
	w := &wire2{Conn: conn, stream: 1}
	w.frames = http2.NewFramer(&w.out, conn)
	w.frames.SetReuseFrames()
	w.headers = hpack.NewEncoder(&w.block)
	w.out.WriteString(http2.ClientPreface)
	err := errors.Join(
		w.frames.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}),
		w.frames.WriteWindowUpdate(0, window),
	)
	return w, err
}

func (w *wire2) exchange(t *template, s shot) (status int, err error) {
	if s.body != "" {
		return 0, errors.New("no bodies over HTTP/2")
	}
	w.block.Reset()
	name, value := t.credentials(s)
	for _, f := range [...]hpack.HeaderField{
		{Name: ":method", Value: t.method}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: t.path + s.path},
		{Name: ":authority", Value: "api.example.com"},
		{Name: strings.ToLower(name), Value: value, Sensitive: true},
	} {
		if err := w.headers.WriteField(f); err != nil {
			return 0, err
		}
	}
	stream := w.stream
	w.stream += 2
	err = w.frames.WriteHeaders(http2.HeadersFrameParam{
		StreamID: stream, BlockFragment: w.block.Bytes(), EndStream: true, EndHeaders: true,
	})
	for ended := false; err == nil && !ended; {
		if w.out.Len() > 0 {
			_, err = w.out.WriteTo(w.Conn)
			if err != nil {
				break
			}
		}
		status, ended, err = w.read(stream, status)
	}
	return status, err
}

// read reads a frame. What the answer's headers say besides the status is not
// decoded: that comes first and, in HPACK's static table, is one byte.
func (w *wire2) read(stream uint32, status int) (int, bool, error) {
	frame, err := w.frames.ReadFrame()
	if err != nil {
		return status, false, err
	}
	ended := frame.Header().StreamID == stream && frame.Header().Flags.Has(http2.FlagDataEndStream)
	switch f := frame.(type) {
	case *http2.SettingsFrame:
		if !f.IsAck() {
			err = w.frames.WriteSettingsAck()
		}
		return status, false, err
	case *http2.PingFrame:
		if !f.IsAck() {
			err = w.frames.WritePing(true, f.Data)
		}
		return status, false, err
	case *http2.HeadersFrame:
		return statusOf(f.HeaderBlockFragment()), ended, nil
	case *http2.DataFrame:
		if w.unacked += uint32(len(f.Data())); w.unacked > window/2 {
			err = w.frames.WriteWindowUpdate(0, w.unacked)
			w.unacked = 0
		}
		return status, ended, err
	case *http2.RSTStreamFrame:
		return status, false, fmt.Errorf("the stream is reset: %v", f.ErrCode)
	case *http2.GoAwayFrame:
		return status, false, fmt.Errorf("the connection ends: %v", f.ErrCode)
	}
	return status, false, nil
}

var staticStatuses = [...]int{200, 204, 206, 304, 400, 404, 500}

// statusOf returns the status that a header block begins with, 1 for one that
// is in no static table.
func statusOf(block []byte) int {
	if len(block) > 0 && block[0] >= 0x88 && int(block[0]-0x88) < len(staticStatuses) {
		return staticStatuses[block[0]-0x88]
	}
	return 1
}

// HTTP/3

type wire3 struct {
	net.Conn // none
	quic     *quic.Conn
	client   *http3.ClientConn
}

func newWire3(addr string, config *tls.Config) (*wire3, error) {
	config = config.Clone()
	config.NextProtos = []string{http3.NextProtoH3}
	conn, err := quic.DialAddr(context.Background(), addr, config, nil)
	if err != nil {
		return nil, err
	}
	return &wire3{quic: conn, client: (&http3.Transport{DisableCompression: true}).NewClientConn(conn)}, nil
}

// Close closes the connection.
func (w *wire3) Close() error { return w.quic.CloseWithError(0, "") }

// SetDeadline does nothing: QUIC itself gives up a peer that is silent.
func (w *wire3) SetDeadline(time.Time) error { return nil }

func (w *wire3) exchange(t *template, s shot) (status int, err error) {
	r, err := http.NewRequest(t.method, "https://localhost"+t.path+s.path, strings.NewReader(s.body))
	if err != nil {
		return 0, err
	}
	if s.token != "" {
		r.Header.Set(t.credentials(s))
	}
	response, err := w.client.RoundTrip(r)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, response.Body)
	return response.StatusCode, errors.Join(err, response.Body.Close())
}
