package senders

import (
	"bufio"
	"cmp"
	"crypto/tls"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	netmail "net/mail"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/store/causes"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestSMTPCaddyfile(t *testing.T) {
	guesttest.Caddyfiles(t, new(SMTP), []guesttest.Case{
		{Name: "no address", Text: "smtp {\nfrom a@b\n}", Err: "<host:port> is missing; write smtp <host:port>"},
		{Name: "all", Text: "smtp a:1 {\nfrom a@b\nreply_to c@d\nca roots.pem\nmax_conns 2\n}", Want: &SMTP{Address: "a:1", From: "a@b", ReplyTo: "c@d", CA: "roots.pem", MaxConns: 2}},
		{Name: "two addresses", Text: "smtp a:1 b:1", Err: "wrong argument count"},
		{Name: "unquoted from", Text: "smtp a:1 {\nfrom Acme <a@b>\n}", Err: "wrong argument count"},
	})
}

func TestSMTPRefusesABadConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		s    SMTP
		want string
	}{
		"no port":         {SMTP{Address: "mail.example", From: "a@b.example"}, "host:port"},
		"no host":         {SMTP{Address: ":25", From: "a@b.example"}, "host:port"},
		"port":            {SMTP{Address: "mail.example:70000", From: "a@b.example"}, "host:port"},
		"no from":         {SMTP{Address: "mail.example:25"}, "from"},
		"bad from":        {SMTP{Address: "mail.example:25", From: "nobody"}, "from"},
		"from nowhere":    {SMTP{Address: "mail.example:25", From: "a@-b.example"}, "from"},
		"two from":        {SMTP{Address: "mail.example:25", From: "a@b.example, c@d.example"}, "from"},
		"from injection":  {SMTP{Address: "mail.example:25", From: "a@b.example\r\nBcc: x@y.example"}, "from"},
		"bad reply_to":    {SMTP{Address: "mail.example:25", From: "a@b.example", ReplyTo: "nobody"}, "reply_to: write an address"},
		"no ca":           {SMTP{Address: "mail.example:25", From: "a@b.example", CA: "absent.pem"}, "mail smtp: ca: "},
		"not a ca":        {SMTP{Address: "mail.example:25", From: "a@b.example", CA: "smtp_test.go"}, "smtp_test.go has no certificate in PEM"},
		"max_conns":       {SMTP{Address: "mail.example:25", From: "a@b.example", MaxConns: -1}, "max_conns: choose 1 to 1000"},
		"tls":             {SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "maybe"}, "tls"},
		"only a username": {SMTP{Address: "mail.example:25", From: "a@b.example", Username: "u"}, "password"},
		"only a password": {SMTP{Address: "mail.example:25", From: "a@b.example", Password: "hidden"}, "username"},
		"clear links":     {SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "off"}, "add the word insecure after it"},
		"clear password":  {SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "off", Username: "u", Password: "hidden"}, "add the word insecure after it"},
		"timeout":         {SMTP{Address: "mail.example:25", From: "a@b.example", Timeout: caddy.Duration(time.Hour)}, "timeout"},
		"line break":      {SMTP{Address: "mail.example:25", From: "a@b.example", Username: "u", Password: "hidden\n"}, "mail smtp: password: it has a line break"},
		"placeholder":     {SMTP{Address: "mail.example:25", From: "a@b.example", Password: "{env.MNEMOGATE_TEST_ABSENT}"}, "mail smtp: password"},
	} {
		t.Run(name, func(t *testing.T) {
			err := guesttest.Start(t, &c.s)
			guesttest.NoSecrets(t, err, "hidden")
			if err != nil && !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
	guesttest.MustStart(t, &SMTP{Address: "[::1]:25", From: "a@b.example", TLS: "off", Username: "u", Password: "p"})
	guesttest.MustStart(t, &SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "off", Insecure: true, Username: "u", Password: "p"})
	guesttest.MustStart(t, &SMTP{Address: "mail.example:25", From: "a@b.example", TLS: "off", Insecure: true})
}

// smtpSink is an SMTP server that keeps what it is sent and can misbehave.
type smtpSink struct {
	addr      string
	config    *tls.Config
	implicit  bool
	noSTART   bool   // does not offer STARTTLS
	noAuth    bool   // does not offer AUTH
	auth      string // what it offers instead of PLAIN and LOGIN
	scram     string // the iterations that it demands
	sevenBit  bool   // does not offer 8BITMIME
	most      int    // connections at once; it refuses more; 0 for any number
	open      int
	answers   map[string]string // what to say to a command instead; "" to hang up, "wait" to say nothing
	greeting  string
	mu        sync.Mutex
	mails     []string
	logins    []string
	envelope  []string // the lines EHLO, MAIL and RCPT
	encrypted bool
}

func startSink(t *testing.T, sink *smtpSink) *smtpSink {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	sink.addr = ln.Addr().String()
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go sink.serve(conn)
		}
	}()
	return sink
}

func (s *smtpSink) serve(conn net.Conn) {
	defer conn.Close()
	if s.implicit {
		conn = tls.Server(conn, s.config)
	}
	in := bufio.NewReader(conn)
	say := func(line string) { io.WriteString(conn, line+"\r\n") }
	s.mu.Lock()
	s.open++
	full := s.most != 0 && s.open > s.most
	s.mu.Unlock()
	ended := sync.OnceFunc(func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	})
	defer ended()
	if full {
		say("421 4.7.0 too many connections")
		return
	}
	say(cmp.Or(s.greeting, "220 sink ESMTP"))
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		line = strings.TrimSpace(line)
		verb := strings.ToUpper(strings.Split(line, " ")[0])
		if answer, ok := s.answers[verb]; ok {
			switch answer {
			case "":
				return
			case "wait":
				in.ReadString('\n')
				return
			}
			say(answer)
			continue
		}
		if verb == "EHLO" || verb == "MAIL" || verb == "RCPT" {
			s.mu.Lock()
			s.envelope = append(s.envelope, line)
			s.mu.Unlock()
		}
		switch verb {
		case "EHLO":
			_, isTLS := conn.(*tls.Conn)
			say("250-sink\r\n250-SMTPUTF8\r\n250-ENHANCEDSTATUSCODES")
			if !s.sevenBit {
				say("250-8BITMIME")
			}
			if !isTLS && !s.noSTART && s.config != nil {
				say("250-STARTTLS")
			}
			if !s.noAuth {
				say("250-AUTH " + cmp.Or(s.auth, "PLAIN LOGIN"))
			}
			say("250 SIZE 1000000")
		case "STARTTLS":
			say("220 go ahead")
			conn = tls.Server(conn, s.config)
			in = bufio.NewReader(conn)
		case "AUTH":
			s.mu.Lock()
			s.logins = append(s.logins, line)
			s.mu.Unlock()
			if s.scram != "" {
				say("334 ")
				line, _ := in.ReadString('\n')
				first, _ := base64.StdEncoding.DecodeString(strings.TrimSpace(line))
				_, nonce, _ := strings.Cut(string(first), ",r=")
				say("334 " + base64.StdEncoding.EncodeToString([]byte("r="+nonce+"more,s=c2FsdA==,i="+s.scram)))
				continue
			}
			say("235 2.7.0 welcome")
		case "DATA":
			say("354 go on")
			var mail strings.Builder
			for {
				line, err := in.ReadString('\n')
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				mail.WriteString(strings.TrimPrefix(line, "."))
			}
			if answer, ok := s.answers["."]; ok {
				if answer == "wait" {
					in.ReadString('\n')
					return
				}
				say(answer)
				continue
			}
			_, isTLS := conn.(*tls.Conn)
			s.mu.Lock()
			s.mails = append(s.mails, mail.String())
			s.encrypted = isTLS
			s.mu.Unlock()
			say("250 2.0.0 taken")
		case "QUIT":
			ended() // before the client connects again
			say("221 bye")
			return
		default:
			say("250 2.1.0 ok")
		}
	}
}

func TestSMTPDeliversInEachMode(t *testing.T) {
	config, roots := guesttest.Certificate(t)
	for _, c := range []struct {
		mode, username string
		sink           *smtpSink
	}{
		{"starttls", "u", &smtpSink{config: config}},
		{"starttls", "", &smtpSink{config: config, noAuth: true}},
		{"implicit", "u", &smtpSink{config: config, implicit: true}},
		{"off", "u", &smtpSink{}},
		{"off", "", &smtpSink{noAuth: true}},
	} {
		t.Run(c.mode+c.username, func(t *testing.T) {
			sink := startSink(t, c.sink)
			s := &SMTP{Address: sink.addr, From: "Acme Ünited <noreply@acme.example>", TLS: c.mode, Username: c.username, roots: roots}
			if c.username != "" {
				s.Password = "p"
			}
			guesttest.MustStart(t, s)
			must(t, s.Send(t.Context(), guesttest.Mail))
			sink.mu.Lock()
			defer sink.mu.Unlock()
			if len(sink.mails) != 1 || sink.encrypted != (c.mode != "off") {
				t.Fatalf("%d mails, encrypted: %v", len(sink.mails), sink.encrypted)
			}
			if login := "AUTH PLAIN " + base64.StdEncoding.EncodeToString([]byte("\x00u\x00p")); c.username != "" && (len(sink.logins) != 1 || sink.logins[0] != login) {
				t.Errorf("logins: %q", sink.logins)
			}
		})
	}
}

// A relay that knows SMTPUTF8 would refuse what the next server can't take, so a mail asks
// for it only if the part before an @ needs it.
func TestSMTPToInternationalDomains(t *testing.T) {
	for name, c := range map[string]struct{ from, replyTo, to, mail, rcpt string }{
		"ascii":      {"a@acme.example", "c@d.example", "b@c.example", "MAIL FROM:<a@acme.example> BODY=8BITMIME", "RCPT TO:<b@c.example>"},
		"dots":       {"a@acme.example", "", `"taro..yamada"@docomo.example`, "MAIL FROM:<a@acme.example> BODY=8BITMIME", `RCPT TO:<"taro..yamada"@docomo.example>`},
		"domain":     {"a@šaltinis.example", "", "b@Bücher.example", "MAIL FROM:<a@xn--altinis-pqb.example> BODY=8BITMIME", "RCPT TO:<b@xn--bcher-kva.example>"},
		"local part": {"a@acme.example", "", "jonė@bücher.example", "MAIL FROM:<a@acme.example> BODY=8BITMIME SMTPUTF8", "RCPT TO:<jonė@xn--bcher-kva.example>"},
		"reply_to":   {"a@acme.example", "hälp@bücher.example", "b@c.example", "MAIL FROM:<a@acme.example> BODY=8BITMIME SMTPUTF8", "RCPT TO:<b@c.example>"},
	} {
		t.Run(name, func(t *testing.T) {
			sink := startSink(t, &smtpSink{noAuth: true})
			s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: c.from, ReplyTo: c.replyTo, TLS: "off"})
			m := guesttest.Mail
			m.To = c.to
			must(t, s.Send(t.Context(), m))
			want := []string{sink.envelope[0], c.mail, c.rcpt}
			if !slices.Equal(sink.envelope, want) {
				t.Errorf("got %q, want %q", sink.envelope, want)
			}
			if name == "domain" && !isASCII(sink.mails[0]) {
				t.Errorf("got %s", sink.mails[0])
			}
		})
	}
}

func TestSMTPNamesItself(t *testing.T) {
	for want, c := range map[string]struct{ host, local string }{
		"mail.example":       {"mail.example", "192.0.2.1:1"},
		"[192.0.2.1]":        {"3f2a", "192.0.2.1:1"},
		"[IPv6:2001:db8::1]": {"", "[2001:db8::1]:1"},
		"[IPv6:fe80::1]":     {"3f2a", "[fe80::1%eth0]:1"},
	} {
		local, err := net.ResolveTCPAddr("tcp", c.local)
		must(t, err)
		if got := helo(c.host, local); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	sink := startSink(t, &smtpSink{noAuth: true})
	must(t, guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@b.example", TLS: "off"}).Send(t.Context(), guesttest.Mail))
	if got := sink.envelope[0]; !strings.ContainsAny(got, ".") {
		t.Errorf("got %s", got)
	}
}

func TestSMTPHeadersCanNotBeInjected(t *testing.T) {
	sink := startSink(t, &smtpSink{})
	s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", TLS: "off"})
	m := guesttest.Mail
	m.Subject = "x\r\nBcc: evil@example.com\r\n\r\nbody ü"
	must(t, s.Send(t.Context(), m))
	got, err := netmail.ReadMessage(strings.NewReader(sink.mails[0]))
	must(t, err)
	subject, err := new(mime.WordDecoder).DecodeHeader(got.Header.Get("Subject"))
	if err != nil || got.Header.Get("Bcc") != "" || got.Header.Get("X-Auto-Response-Suppress") != "DR, RN, NRN, OOF, AutoReply" || !strings.HasPrefix(subject, "x\r\nBcc") {
		t.Errorf("%q %v %v", subject, err, got.Header)
	}
	for _, to := range []string{"", "x", "a@b.example\r\nBcc: c@d.example", "a@b.example, c@d.example", "Ana <a@b.example>",
		"a@b.example>\r\nRCPT TO:<c@d.example", `"a> RCPT TO:<c@d.example"@e.example`} {
		m.To = to
		if err := s.Send(t.Context(), m); err == nil {
			t.Errorf("a mail to %q was sent", to)
		}
	}
	if len(sink.mails) != 1 {
		t.Errorf("%d mails", len(sink.mails))
	}
}

func TestSMTPAcceptedMailIsDeliveredWhateverFollows(t *testing.T) {
	for name, answers := range map[string]map[string]string{
		"silent":   {"QUIT": "wait", "RSET": "wait"},
		"hangs up": {"QUIT": "", "RSET": ""},
	} {
		t.Run(name, func(t *testing.T) {
			sink := startSink(t, &smtpSink{answers: answers})
			s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", TLS: "off"})
			watch := storetest.StartWatch()
			if err := s.Send(t.Context(), guesttest.Mail); err != nil {
				t.Error(err)
			}
			if took := watch.Took(); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
		})
	}
}

func TestSMTPTimeoutIsTheWholeMails(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() { // one byte at a time, each well within the timeout
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		for _, b := range []byte("220 " + strings.Repeat("x", 10000)) {
			if _, err := conn.Write([]byte{b}); err != nil {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}()
	s := guesttest.MustStart(t, &SMTP{Address: ln.Addr().String(), From: "a@acme.example", TLS: "off", Timeout: caddy.Duration(200 * time.Millisecond)})
	watch := storetest.StartWatch()
	err = s.Send(t.Context(), guesttest.Mail)
	if took := watch.Took(); err == nil || took > 3*time.Second {
		t.Errorf("%v after %v", err, took)
	}
}

// A server that allows few connections gets no more than max_conns, and all mails come.
func TestSMTPBoundsItsConnections(t *testing.T) {
	sink := startSink(t, &smtpSink{noAuth: true, most: 3})
	s := guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", TLS: "off", Timeout: caddy.Duration(30 * time.Second)})
	var all sync.WaitGroup
	for range 24 {
		all.Go(func() {
			if err := s.Send(t.Context(), guesttest.Mail); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if len(sink.mails) != 24 {
		t.Errorf("%d mails came", len(sink.mails))
	}
}

// The advice of a trial is about what is wrong, and a refusal for now is known as one. An error
// comes in time, and repeats no secret that the server repeats.
func TestSMTPErrorsNameTheirCause(t *testing.T) {
	config, roots := guesttest.Certificate(t)
	foreign, _ := guesttest.Certificate(t)
	old := config.Clone()
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	const (
		late        = "no answer in time"
		switchedOff = "passwords are switched off there"
		notNow      = "it says that it can't now"
		checkIt     = "check that the address is right"
		distrusted  = "this machine does not trust the authority of its certificate: name that authority's certificate in ca"
		tlsFirst    = "it may want TLS first: write tls starttls; otherwise, it "
		notMail     = "this is not the port of a mail server"
	)
	answering := func(verb, answer string) *smtpSink {
		return &smtpSink{config: config, answers: map[string]string{verb: answer}}
	}
	host, err := os.Hostname()
	must(t, err)
	name := helo(host, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1})
	echo := " " + guesttest.Mail.Link + " hidden"
	for name, c := range map[string]struct {
		sink   *smtpSink
		says   string // a part of the error
		advice string // how it begins; empty for any, or none
		again  bool
	}{
		"only OAuth":                   {&smtpSink{config: config, auth: "XOAUTH2 OAUTHBEARER"}, "it takes no passwords", switchedOff, false},
		"Exchange, tenant":             {answering("AUTH", "535 5.7.139 Authentication unsuccessful, SmtpClientAuthentication is disabled for the Tenant."), "", switchedOff, false},
		"Exchange, basic":              {answering("AUTH", "550 5.7.30 Basic authentication is not supported for Client Submission."), "", switchedOff, false},
		"wrong password":               {answering("AUTH", "535 5.7.8 Username and Password not accepted"), "answered 535 5.7.8", "check the username and password", false},
		"slow login":                   {answering("AUTH", "wait"), late, checkIt, false},
		"slow after a wrong password":  {&smtpSink{config: config, answers: map[string]string{"AUTH": "535 5.7.8 no", "*": "wait"}}, "answered 535 5.7.8", "check the username and password", false},
		"an expensive login":           {&smtpSink{config: config, auth: "scram-sha-256 PLAIN", scram: "2000000000"}, "it demands too much work for a login", "", false},
		"wants a login":                {answering("MAIL", "530 5.7.0 Authentication required"), "", "it wants a login", false},
		"no login":                     {&smtpSink{config: config, noAuth: true}, "AUTH", "it takes no login on this port", false},
		"wants TLS, without TLS":       {answering("MAIL", "530 5.7.0 Must issue a STARTTLS command first"), "", tlsFirst, false},
		"login after TLS, without TLS": {&smtpSink{noAuth: true}, "AUTH", tlsFirst, false},
		"no STARTTLS":                  {&smtpSink{noSTART: true}, "STARTTLS", "it offers no STARTTLS on this port", false},
		"refuses STARTTLS":             {answering("STARTTLS", "454 no TLS"), "answered 454", notNow, true},
		"TLS from the start":           {&smtpSink{config: config, implicit: true}, "no greeting in time", "it waits for something: if this is a port for implicit TLS", false},
		"no implicit TLS":              {&smtpSink{config: config}, "", "it has no implicit TLS on this port", false},
		"old TLS":                      {&smtpSink{config: old}, "", "it has only TLS 1.1 or older", false},
		"old implicit TLS":             {&smtpSink{config: old, implicit: true}, "", "it has only TLS 1.1 or older", false},
		"foreign":                      {&smtpSink{config: foreign}, "certificate", distrusted, false},
		"foreign, implicit TLS":        {&smtpSink{config: foreign, implicit: true}, "certificate", distrusted, false},
		"foreign handshake":            {answering("STARTTLS", "220 go\r\n250 injected"), "mail smtp", "", false},
		"not SMTP":                     {&smtpSink{config: config, greeting: "HTTP/1.1 400 Bad Request"}, "not SMTP", notMail, false},
		"not text":                     {&smtpSink{config: config, greeting: "\x15\x03\x01\xff\xfe"}, "", notMail, false},
		"not welcome":                  {&smtpSink{config: config, greeting: "554 5.7.1 go away"}, "answered 554", "it refuses mails from this machine", false},
		"endless line":                 {&smtpSink{config: config, greeting: "220 " + strings.Repeat("x", 2*maxSMTPAnswers)}, "too large", "", false},
		"endless lines":                {answering("EHLO", strings.Repeat("250-x\r\n", maxSMTPAnswers/4)), "too large", "", false},
		"silent":                       {answering("EHLO", "wait"), late, checkIt, false},
		"refuses the name":             {&smtpSink{config: config, answers: map[string]string{"EHLO": "421 4.7.0 Try again later, closing connection. (EHLO)", "HELO": "421 4.7.0 no"}}, "answered 421 4.7.0", "it refused EHLO with the name " + name + ": ", true},
		"few connections":              {&smtpSink{config: config, greeting: "421 4.3.2 try later"}, "", notNow, true},
		"too many messages":            {answering("MAIL", "432 4.3.2 concurrent connections"), "", notNow, true},
		"greylisting":                  {answering("RCPT", "450 4.2.0 greylisted"), "", notNow, true},
		"slow after greylisting":       {&smtpSink{config: config, answers: map[string]string{"RCPT": "450 4.2.0 greylisted", "RSET": "wait"}}, "450 4.2.0", notNow, true},
		"sender":                       {answering("MAIL", "553 5.7.1 Sender address rejected: not owned by user"), "553 5.7.1", "it refused the sender", false},
		"recipient":                    {answering("RCPT", "550 5.1.1 no such user"), "550 5.1.1", "it refused the recipient", false},
		"relay":                        {answering("RCPT", "554 5.7.1 Relay access denied"), "554 5.7.1", "it refused the recipient", false},
		"refuses data":                 {answering("DATA", "550 5.7.1 no"), "550", "", false},
		"refused":                      {answering(".", "554 5.7.1 spam"), "554 5.7.1", "it refused this message", false},
		"hangs up":                     {answering("MAIL", ""), "MAIL FROM", "it closed the connection before it took the mail", false},
		"hangs up later":               {answering("RCPT", ""), "", "it closed the connection before it took the mail", false},
		"perhaps taken":                {answering(".", "wait"), late, checkIt, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for verb, answer := range c.sink.answers {
				if answer != "" && answer != "wait" {
					c.sink.answers[verb] = answer + echo
				}
			}
			if c.sink.greeting != "" {
				c.sink.greeting += echo
			}
			sink := startSink(t, c.sink)
			s := &SMTP{Address: sink.addr, From: "a@acme.example", Username: "mailer", Password: "hidden", Timeout: caddy.Duration(10 * time.Second), roots: roots}
			if strings.HasSuffix(c.says, "in time") || strings.HasPrefix(name, "slow") { // the others answer, however busy this machine is
				s.Timeout = caddy.Duration(2 * time.Second)
			}
			if strings.HasSuffix(name, "implicit TLS") {
				s.TLS = tlsImplicit
			}
			if strings.HasSuffix(name, "without TLS") {
				s.TLS = tlsOff
			}
			guesttest.MustStart(t, s)
			watch := storetest.StartWatch()
			err := s.Send(t.Context(), guesttest.Mail)
			if took := watch.Took(); took > 3*time.Second {
				t.Errorf("it took %v", took)
			}
			guesttest.NoSecrets(t, err, "hidden", "mgl_", base64.StdEncoding.EncodeToString([]byte("\x00mailer\x00hidden")))
			_, advice := causes.Split(err)
			if !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(advice, c.advice) || !utf8.ValidString(err.Error()) || strings.ContainsFunc(err.Error(), unicode.IsControl) || advice != "" && strings.Count(err.Error(), advice) != 1 {
				t.Errorf("%v: got the advice %q", err, advice)
			}
			if _, again := errors.AsType[*message.LaterError](err); again != c.again {
				t.Errorf("%v: may be sent again: %v", err, again)
			}
			// What is refused before the recipient, another gateway may take.
			if _, final := errors.AsType[*message.FinalError](err); final != slices.Contains([]string{"recipient", "relay", "refuses data", "refused"}, name) {
				t.Errorf("%v: is final: %v", err, final)
			}
			sink.mu.Lock()
			defer sink.mu.Unlock()
			if strings.HasPrefix(name, "foreign") && len(sink.logins)+len(sink.mails) != 0 {
				t.Error("it spoke on")
			}
		})
	}
}

// A text is not encoded where the server takes 8 bits, so that every program shows its link
// whole.
func TestSMTPSendsTextAsItIs(t *testing.T) {
	m := guesttest.Mail
	m.Text = "Öffnen Sie diesen Link:\n\nhttps://app.example.com/acme/login#recover=mgl_" + strings.Repeat("A", 80) + "\n.\nEnde"
	for name, c := range map[string]struct {
		sink *smtpSink
		text string
		want string
	}{
		"8 bits":                  {&smtpSink{noAuth: true}, m.Text, "8bit"},
		"7 bits":                  {&smtpSink{noAuth: true, sevenBit: true}, m.Text, "quoted-printable"},
		"a line that is too long": {&smtpSink{noAuth: true}, strings.Repeat("ä", 500), "quoted-printable"},
	} {
		t.Run(name, func(t *testing.T) {
			sink := startSink(t, c.sink)
			m.Text = c.text
			must(t, guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", ReplyTo: "Hilfe <hilfe@bücher.example>", TLS: "off"}).Send(t.Context(), m))
			got, err := netmail.ReadMessage(strings.NewReader(sink.mails[0]))
			must(t, err)
			body := got.Body
			if c.want == "quoted-printable" {
				body = quotedprintable.NewReader(body)
			}
			text, err := io.ReadAll(body)
			must(t, err)
			if found := got.Header.Get("Content-Transfer-Encoding"); found != c.want || strings.TrimRight(strings.ReplaceAll(string(text), "\r\n", "\n"), "\n") != c.text {
				t.Errorf("%s: %q", found, text)
			}
			if to, err := got.Header.AddressList("Reply-To"); err != nil || len(to) != 1 || to[0].Name != "Hilfe" || to[0].Address != "hilfe@xn--bcher-kva.example" {
				t.Errorf("Reply-To: %v %v", to, err)
			}
		})
	}
}

// Programs choose between the parts of a mail, of which the last one is the best (RFC 2046,
// section 5.1.4).
func TestSMTPSendsHTMLBesideTheText(t *testing.T) {
	sink := startSink(t, &smtpSink{noAuth: true})
	m := guesttest.Mail
	m.HTML = "<p>Öffnen Sie <a href=\"" + m.Link + "\">diesen Link</a></p>\n.\n<p>Ende</p>"
	must(t, guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", TLS: "off"}).Send(t.Context(), m))
	got, err := netmail.ReadMessage(strings.NewReader(sink.mails[0]))
	must(t, err)
	kind, parameters, err := mime.ParseMediaType(got.Header.Get("Content-Type"))
	if err != nil || kind != "multipart/alternative" {
		t.Fatalf("%s, %v", kind, err)
	}
	parts := multipart.NewReader(got.Body, parameters["boundary"])
	for _, want := range [][2]string{{"text/plain; charset=UTF-8", m.Text}, {"text/html; charset=UTF-8", m.HTML}} {
		part, err := parts.NextPart()
		must(t, err)
		content, err := io.ReadAll(part)
		must(t, err)
		if found := part.Header.Get("Content-Type"); found != want[0] || strings.TrimRight(strings.ReplaceAll(string(content), "\r\n", "\n"), "\n") != want[1] {
			t.Errorf("%s: %q", found, content)
		}
	}
	if _, err := parts.NextPart(); err != io.EOF {
		t.Errorf("another part: %v", err)
	}
}

// With ca, only a certificate of these authorities is accepted.
func TestSMTPTrustsItsCA(t *testing.T) {
	config, _ := guesttest.Certificate(t)
	sink := startSink(t, &smtpSink{config: config, noAuth: true})
	send := func(certificate []byte) error {
		file := filepath.Join(t.TempDir(), "ca.pem")
		must(t, os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate}), 0o600))
		return guesttest.MustStart(t, &SMTP{Address: sink.addr, From: "a@acme.example", CA: file}).Send(t.Context(), guesttest.Mail)
	}
	must(t, send(config.Certificates[0].Certificate[0]))
	others, _ := guesttest.Certificate(t)
	if err := send(others.Certificates[0].Certificate[0]); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("got %v", err)
	}
}
