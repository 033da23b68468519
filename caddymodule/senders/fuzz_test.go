package senders

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"unicode"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/store/causes"
)

// A target that a file is named after is in that file's tests; here is the rest.

var gatewayError = regexp.MustCompile(`^sms webhook: (gateway\.example answered \d+: "[^\n]*"` +
	`|asking gateway\.example: (no answer in time|it closed the connection|its answer is not valid HTTP))$`)

// FuzzGatewayAnswer lets a gateway answer any bytes: an SMS counts as sent only
// behind a 2xx, and the error has nothing of what the gateway was sent.
func FuzzGatewayAnswer(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nOK",
		"HTTP/1.1 204 No Content\r\n\r\n",
		"HTTP/1.1 429 Too Many Requests\r\nRetry-After: 99999999999999999999\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 503 \r\nRetry-After: Fri, 31 Dec 9999 23:59:59 GMT\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 202 Accepted\r\n\r\n",
		"HTTP/1.1 101 Switching Protocols\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n",
		"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\n\r\n",
		"HTTP/1.1 400 Bad\r\nContent-Type: application/json\r\n\r\n{\"error\":\"no such number\",\"code\":918273}",
		"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n",
		"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b",
		"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 1<<17) + "\r\n\r\n",
		"POST /x?key=hidden HTTP/1.1\r\n\r\n", "HTTP/1.1 -200 OK\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "200", "",
	} {
		f.Add([]byte(s))
	}
	w := &SMSWebhook{webhook{URL: "http://hidden-user:hidden-password@gateway.example/x?key=hidden", Insecure: true, Secrets: []string{"x"}}}
	must(f, errors.Join(w.Provision(caddy.Context{}), w.Validate()))
	f.Fuzz(func(t *testing.T, answer []byte) {
		transport := guest.Outbound.Clone()
		transport.DisableKeepAlives = true
		transport.Proxy = nil
		transport.DialContext = func(context.Context, string, string) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() {
				go io.Copy(io.Discard, theirs)
				theirs.Write(answer)
				theirs.Close()
			}()
			return ours, nil
		}
		w.client = guest.Client(transport, w.Timeout)
		err := w.Send(t.Context(), guesttest.SMS)
		if err != nil {
			what, _ := causes.Split(err)
			if !gatewayError.MatchString(what) {
				t.Errorf("%q: got %v", answer, err)
			}
			_, quoted, _ := strings.Cut(what, ": \"")
			said, _ := strconv.Unquote(`"` + quoted)
			for _, secret := range []string{guesttest.SMS.Code, guesttest.SMS.To} {
				for i := range len(secret) - 3 {
					if strings.Contains(said, secret[i:i+4]) {
						t.Errorf("%q: the error has a part of what was sent: %v", answer, err)
					}
				}
			}
		}
		if err == nil && !isSuccess(answer) {
			t.Errorf("%q is taken for a success", answer)
		}
	})
}

// isSuccess reports whether the answer, behind those that only precede it, has
// a status that begins with a 2.
func isSuccess(answer []byte) bool {
	reader := bufio.NewReader(bytes.NewReader(answer))
	for {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return false
		}
		if response.StatusCode >= 200 || response.StatusCode == http.StatusSwitchingProtocols {
			return response.StatusCode/100 == 2
		}
	}
}

// FuzzSMTPAnswers lets a mail server say anything: a mail counts as sent only
// if the server has said that it takes it, and the error is one short line
// without what is secret.
func FuzzSMTPAnswers(f *testing.F) {
	ehlo := "220 hi\r\n250-sink\r\n250-AUTH PLAIN LOGIN SCRAM-SHA-256\r\n250-8BITMIME\r\n250 SIZE 1000000\r\n"
	for _, s := range []string{
		ehlo + "235 2.7.0 ok\r\n250 ok\r\n250 ok\r\n354 go on\r\n250 taken\r\n221 bye\r\n",
		ehlo + "334 cj1meGtv\r\n334 !\r\n",
		ehlo + "535 5.7.8 AHUAaGlkZGVu\r\n",
		ehlo + "235 ok\r\n550 5.7.1 https://app.example.com/recover#mgl_secretlink\r\n",
		ehlo + "235 ok\r\n250 ok\r\n250 ok\r\n354 go on\r\n554 no: mgl_secretlink hidden\r\n",
		"554-no\r\n554 mgl_secretlink\r\n", "220 hi\r\n500 EHLO?\r\n250 HELO then\r\n", "250-x\r\n250", "HTTP/1.1 400 Bad Request\r\n\r\n", "",
	} {
		f.Add([]byte(s))
	}
	answers := make(chan []byte)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(f, err)
	f.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conn.Write(<-answers)
			conn.(*net.TCPConn).CloseWrite()
			io.Copy(io.Discard, conn)
			conn.Close()
		}
	}()
	s := &SMTP{Address: ln.Addr().String(), From: "a@acme.example", Username: "u", Password: "hidden", TLS: tlsOff}
	must(f, errors.Join(s.Provision(caddy.Context{}), s.Validate()))
	f.Fuzz(func(t *testing.T, said []byte) {
		go func() { answers <- said }()
		err := s.Send(t.Context(), guesttest.Mail)
		if err == nil {
			if !bytes.Contains(said, []byte("354")) || !bytes.Contains(said, []byte("250")) {
				t.Errorf("%q is taken for a success", said)
			}
			return
		}
		text := strings.TrimPrefix(err.Error(), "mail smtp: "+s.Address+": ")
		switch {
		case text == err.Error() || len(text) > 300+len("…") || strings.ContainsFunc(text, unicode.IsControl):
			t.Errorf("%q: got %q", said, err)
		case strings.Contains(text, "mgl_secretlink"), strings.Contains(text, "hidden"):
			t.Errorf("%q: the error tells a secret: %v", said, err)
		}
	})
}
