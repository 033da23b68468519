package caddymodule

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/caddyserver/caddy/v2"

	"github.com/mnemogate/mnemogate/flows"
)

// A target that a file is named after is in that file's tests; here is the rest.

var gatewayError = regexp.MustCompile(`^sms webhook: (gateway\.example answered \d+` +
	`|asking gateway\.example: (no answer in time|it closed the connection|its answer is not valid HTTP))$`)

// FuzzGatewayAnswer lets a gateway answer any bytes: an SMS counts as sent only
// behind a 2xx, and what the gateway said gets nowhere but for its status.
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
		"HTTP/1.1 -200 OK\r\n\r\n", "HTTP/2.0 200 OK\r\n\r\n", "200", "",
	} {
		f.Add([]byte(s))
	}
	w := &SMSWebhook{webhook{URL: "http://gateway.example/", Secret: "x"}}
	if err := errors.Join(w.Provision(caddy.Context{}), w.Validate()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, answer []byte) {
		transport := newTransport()
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
		w.client = outboundClient(transport, w.Timeout)
		err := w.Send(t.Context(), smsMessage)
		if err != nil && !gatewayError.MatchString(err.Error()) {
			t.Errorf("%q: got %v", answer, err)
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
	if err != nil {
		f.Fatal(err)
	}
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
	if err := errors.Join(s.Provision(caddy.Context{}), s.Validate()); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, said []byte) {
		go func() { answers <- said }()
		err := s.Send(t.Context(), mailMessage)
		if err == nil {
			if !bytes.Contains(said, []byte("354")) || !bytes.Contains(said, []byte("250")) {
				t.Errorf("%q is taken for a success", said)
			}
			return
		}
		text := strings.TrimPrefix(err.Error(), "mail smtp: "+s.Address+": ")
		switch {
		case text == err.Error() || len(text) > maxQuoted+len("…") || strings.ContainsFunc(text, unicode.IsControl):
			t.Errorf("%q: got %q", said, err)
		case strings.Contains(text, "mgl_secretlink"), strings.Contains(text, "hidden"):
			t.Errorf("%q: the error tells a secret: %v", said, err)
		}
	})
}

// FuzzImportLine reads an account: what is taken, exported and read again is
// the same account.
func FuzzImportLine(f *testing.F) {
	for _, s := range []string{
		`{"profile_mnemocode":"a","primary_phone":"0037060012345","primary_email":"a@example.com","login_name":"A B","status":"closed","role":"x"}`,
		`{"profile_mnemocode":"a","password":"correct horse","must_set_password":true,"control_question":"Cat?","control_answer":"Tom"}`,
		`{"profile_mnemocode":"a","password_hash":"$2y$10$srNl09aPtc2qr.0Vl.NtjekJRt/NxRxYQm3qd3OvfcKsJgVnr6.Ve","second_factor":true,"created_at":"0000-01-01T00:00:00+01:00"}`,
		`{"profile_mnemocode":"a","password_hash":{"credentialData":"{\"hashIterations\":5,\"algorithm\":\"pbkdf2\"}","secretData":"{\"value\":\"MDEyMzQ1Njc4\",\"salt\":\"MDEyMzQ1Njc\"}"}}`,
		`{"profile_mnemocode":"a","oauth_identities":[{"provider_id":1,"subject":"x"},{"provider_id":5,"subject":"y"}],"disclaimers_accepted":[{"code":"terms","version":"","accepted_at":"9999-12-31T23:59:59-01:00"}]}`,
		`{"profile_mnemocode":"a","backup_code_hashes":["$argon2id$v=19$m=7168,t=5,p=1$MDEyMzQ1Njc4OWFiY2RlZg$MDEyMzQ1Njc4OWFiY2RlZg"],"control_question":"Cat?","control_answer_hash":"$scrypt$ln=1,r=1,p=1$MDEyMzQ1Njc$MDEyMzQ1Njc"}`,
		`{"profile_mnemocode":null}`, `{"profile_mnemocode":"a","status":null}`, `{"profile_mnemocode":"a","\u0007":1}`, `{"profile_mnemocode":"a","updated_at":"x"}`,
		`{"profile_mnemocode":"a","profile_mnemocode":"b"}`, `{}{}`, `[]`, "{\"role\":\"\xff\"}", `{"profile_mnemocode":"a","created_at":"1969-12-31T23:59:59.999999999Z"}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		a, change, err := imported(line)
		if err != nil {
			refused := asAdminError(err)
			if refused.status != http.StatusBadRequest || len(refused.field) > 64 || refused.field != printable(refused.field) ||
				len(refused.message) > 512 || printableText(refused.message) != refused.message {
				t.Errorf("%q: got %d %q %q", line, refused.status, refused.field, refused.message)
			}
			return
		}
		if flows.CheckAccount(a) != nil && change.Answer == "" {
			return // it would not be stored
		}
		if change.Answer != "" { // what is hashed has no way back
			a.Question, a.AnswerHash = "", ""
		}
		var exported bytes.Buffer
		if err := writeLine(&exported, newExportedAccount(a, change.BackupCodes)); err != nil {
			t.Fatalf("%q can't be exported: %v", line, err)
		}
		again, changeAgain, err := imported(exported.Bytes())
		if err != nil {
			t.Fatalf("%q, exported as %q: %v", line, exported.Bytes(), err)
		}
		if !reflect.DeepEqual(a, again) || !slices.Equal(change.BackupCodes, changeAgain.BackupCodes) {
			t.Errorf("%q becomes %+v, exported as %q %+v", line, a, exported.Bytes(), again)
		}
	})
}

// imported is the account that a line makes, in as far as its secrets need no
// hashing.
func imported(line []byte) (flows.Account, flows.Change, error) {
	a := flows.Account{Status: flows.StatusActive}
	change, err := parseChange(line, changeImport)
	if err != nil {
		return a, change, err
	}
	if err := change.Apply(&a); err != nil {
		return a, change, err
	}
	a.Accepted = change.Accepted
	a.Created = cmp.Or(a.Created.UTC(), time.Unix(1, 0).UTC())
	return a, change, nil
}

func printableText(s string) string {
	return strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return -1
		}
		return r
	}, s)
}

// allRecords reads records to the end, and checks their lines and that each is
// one line itself.
func allRecords(t *testing.T, from recordReader, data []byte) (records [][]byte) {
	t.Helper()
	last, lines := 0, bytes.Count(data, []byte("\n"))+bytes.Count(data, []byte("\r"))+1
	for {
		line, record, err := from.next()
		if err == io.EOF && line == 0 {
			return records
		}
		if line <= last || line > lines {
			t.Fatalf("%q: line %d follows line %d, with %q and %v", data, line, last, record, err)
		}
		last = line
		if err != nil {
			if len(err.Error()) > 512 {
				t.Errorf("%q: line %d: got %v", data, line, err)
			}
			continue
		}
		if len(bytes.TrimSpace(record)) == 0 || bytes.ContainsRune(record, '\n') || len(record) > maxAdminBody {
			t.Errorf("%q: the record of line %d is %q", data, line, record)
		}
		records = append(records, bytes.Clone(record))
	}
}

// FuzzImportJSONL cuts a file into records: what is sent on is read there as it
// was read here.
func FuzzImportJSONL(f *testing.F) {
	for _, s := range []string{"{}\n\n{}", "\ufeff{}\r\n{}\r\n", "\n\n", "", "{}", "\u00a0\n\u2028x\n\x00\n", "a\rb\nc", "\ufeff\n\ufeff{}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		records := allRecords(t, newJSONLines(bytes.NewReader(data)), data)
		if len(records) > 0 && bytes.HasPrefix(records[0], []byte("\ufeff")) {
			return // a second mark is none, and will be refused
		}
		sent := bytes.Join(records, []byte("\n"))
		if again := allRecords(t, newJSONLines(bytes.NewReader(sent)), sent); !reflect.DeepEqual(again, records) {
			t.Errorf("%q is sent as %q and read as %q", data, records, again)
		}
	})
}

// FuzzImportCSV makes JSON of records: one object a line, of the file's columns
// only, that the same parser reads as a file with JSON.
func FuzzImportCSV(f *testing.F) {
	for _, s := range []string{
		"profile_mnemocode,primary_email\na,a@example.com\n\nb,\n",
		"\ufeffprofile_mnemocode,second_factor,must_set_password\r\na,yes,0\r\nb,maybe,no\r\n",
		"profile_mnemocode,oauth_identities\na,1:x 2:y\nb,\"[{\"\"provider_id\"\":1,\"\"subject\"\":\"\"z\"\"}]\"\nc,x\n",
		"profile_mnemocode,disclaimers_accepted,backup_code_hashes\na,\"[\n]\",[]\nb,{,\n",
		"profile_mnemocode,password_hash\na,$2y$10$x\n\"b\n", "profile_mnemocode,role\n\"a\nb\",c\nd\ne,f,g\n\"h\"i,j\n",
		"role,role\n", "x\n", "profile_mnemocode\n\xff\n", " profile_mnemocode , role\na,b", "", "\"",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		from, err := newCSVRecords(bytes.NewReader(data))
		if err != nil {
			return
		}
		for _, record := range allRecords(t, from, data) {
			values := map[string]json.RawMessage{}
			if err := json.Unmarshal(record, &values); err != nil {
				t.Fatalf("%q: the record %q: %v", data, record, err)
			}
			for name := range values {
				if !slices.Contains(from.columns, name) {
					t.Errorf("%q: the record %q has %q", data, record, name)
				}
			}
			if _, _, err := imported(record); err != nil && asAdminError(err).status != http.StatusBadRequest {
				t.Errorf("%q: the record %q: %v", data, record, err)
			}
		}
	})
}

// FuzzCSVCells writes an account as CSV and as JSON: both are the same account,
// but that an empty cell is none.
func FuzzCSVCells(f *testing.F) {
	f.Add("a", "a@example.com", "+370 600 12345", "Who, \"me\"?\n")
	f.Add("", " ", "\ufeff", "\r\n")
	f.Add("=1+1", "[]", "{}", "\\")
	f.Fuzz(func(t *testing.T, mnemocode, email, phone, role string) {
		for _, s := range []string{mnemocode, email, phone, role} {
			if !utf8.ValidString(s) || strings.Contains(s, "\r") { // which CSV may take for a line's end
				return
			}
		}
		cell := func(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }
		file := "profile_mnemocode,primary_email,primary_phone,role\n" +
			strings.Join([]string{cell(mnemocode), cell(email), cell(phone), cell(role)}, ",") + "\n"
		records, err := newCSVRecords(strings.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		_, record, err := records.next()
		if err != nil {
			t.Fatalf("%q: %v", file, err)
		}
		given := map[string]string{"profile_mnemocode": mnemocode, "primary_email": email, "primary_phone": phone, "role": role}
		for name, s := range given {
			if s == "" {
				delete(given, name)
			}
		}
		line, err := json.Marshal(given)
		if err != nil {
			t.Fatal(err)
		}
		a, _, errA := imported(record)
		b, _, errB := imported(line)
		if !reflect.DeepEqual(a, b) || fmt.Sprint(errA) != fmt.Sprint(errB) {
			t.Errorf("%q is %+v, %v and as JSON %+v, %v", file, a, errA, b, errB)
		}
	})
}

var notAlphanumeric = regexp.MustCompile(`[^a-z0-9]`)

// FuzzStrip lets a client send any header: none is left that any server takes
// for the user's name, and none that makes a proxy drop or turn what we set.
func FuzzStrip(f *testing.F) {
	f.Add("X-Profile-Mnemocode", "x", "close")
	f.Add("x_profile.mnemocode", "x", "x-profile-mnemocode, Upgrade")
	f.Add("X~COMPANY'CODE", "", "keep-alive,close , X-Company-Code")
	f.Add("Upgrade", "h2c", "Upgrade, HTTP2-Settings")
	f.Add("Upgrade", "WebSocket", "UPGRADE")
	f.Add("X-Profile-Mnemocode ", "x", ",,\x00")
	f.Fuzz(func(t *testing.T, name, value, connection string) {
		h := &Handler{Header: defaultHeader, CompanyHeader: defaultCompanyHeader}
		r := &http.Request{Header: http.Header{}, Trailer: http.Header{}, Body: http.NoBody}
		for _, header := range []http.Header{r.Header, r.Trailer} {
			header[name] = []string{value}
			header[http.CanonicalHeaderKey(name)] = []string{value}
		}
		if connection != "" {
			r.Header["Connection"] = append(r.Header["Connection"], connection)
		}
		h.strip(r)
		for _, header := range []http.Header{r.Header, r.Trailer} {
			for name := range header {
				switch notAlphanumeric.ReplaceAllString(asciiLower(name), "-") {
				case "x-profile-mnemocode", "x-company-code":
					t.Errorf("%q is left", name)
				}
			}
		}
		upgrade, upgrades := r.Header["Upgrade"]
		if upgrades && !slices.EqualFunc(upgrade, []string{"websocket"}, strings.EqualFold) {
			t.Errorf("Upgrade: %q is left", upgrade)
		}
		for _, line := range r.Header["Connection"] {
			for option := range strings.SplitSeq(line, ", ") {
				switch option := strings.ToLower(option); {
				case option == "close", option == "keep-alive", option == "upgrade" && upgrades:
				default:
					t.Errorf("Connection: %q is left", line)
				}
			}
		}
	})
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}

var jsonType = regexp.MustCompile(`(?i)^[ \t]*application/json[ \t]*(;|$)`)

// FuzzRequestHeaders: a body's type, and the origin of the page that asks.
func FuzzRequestHeaders(f *testing.F) {
	f.Add("application/json", "https://app.example.com", "POST", "x-api-key,content-type")
	f.Add("application/json; charset=UTF-8", "https://app.example.com.evil.example", "", "")
	f.Add("application/json;charset=\"utf-8\";x=y", "https://APP.example.com", "DELETE\r\nX: y", "a\x00")
	f.Add("application/json; charset*0=utf; charset*1=-8", "null", "*", "*")
	f.Add("application/jsonx", "", "", "")
	f.Add("application/json, text/html", "https://app.example.com https://evil.example", "GET", "")
	f.Add("text/plain; x=\"application/json\"", "https://app.example.com\n", "GET", "")
	f.Fuzz(func(t *testing.T, contentType, origin, method, headers string) {
		header := http.Header{"Content-Type": {contentType}}
		if isJSON(header) && !jsonType.MatchString(contentType) {
			t.Errorf("%q is taken for JSON", contentType)
		}
		twice := http.Header{"Content-Type": {contentType, contentType}}
		encoded := http.Header{"Content-Type": {contentType}, "Content-Encoding": {""}}
		if isJSON(twice) || isJSON(encoded) {
			t.Error("it is taken for JSON twice, or encoded")
		}

		const ours = "https://app.example.com"
		h := &Handler{CORS: []string{ours}}
		r := &http.Request{Method: http.MethodOptions, URL: &url.URL{Path: "/"}, Header: http.Header{
			"Origin": {origin}, "Access-Control-Request-Method": {method}, "Access-Control-Request-Headers": {headers}}}
		w := httptest.NewRecorder()
		allowed := h.crossOrigin(w, r)
		if allowed != (origin == ours) {
			t.Errorf("the origin %q is allowed: %v", origin, allowed)
		}
		if allowed && isPreflight(r) {
			answerPreflight(w, r)
		}
		sent := w.Result().Header // as they go out
		if got := sent.Get(allowOrigin); got != "" && got != ours {
			t.Errorf("%s: %q", allowOrigin, got)
		}
		if allowed != slices.Contains(sent.Values(allowOrigin), ours) || !slices.Contains(sent.Values("Vary"), "Origin") {
			t.Errorf("%q is answered %v", origin, sent)
		}
	})
}
