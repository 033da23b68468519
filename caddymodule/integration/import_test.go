package integration

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// readyHash is the bcrypt hash of "test", which the store takes without hashing
// again.
const readyHash = "$2y$04$mIJxfrCaEI3GukZe11CiXublhEFanu5.ododkll1WphfSp6pn4zIu"

// importLine returns an account with a password hash, a phone, an email and a login
// name.
func importLine(i int) string {
	return fmt.Sprintf(`{"profile_mnemocode":"user-%06d","primary_phone":"+3706%07d","primary_email":"user%d@example.com","login_name":"user%d","password_hash":%q}`,
		i, i, i, i, readyHash)
}

// importAll imports lines. It returns the failures by line, and the counts.
func (s *site) importAll(query, lines string) (map[int]api.Failure, api.Counts) {
	s.t.Helper()
	got := s.adminRaw("POST", "acme/import"+query, lines).wantStatus(200)
	failures := map[int]api.Failure{}
	answers := strings.Split(strings.TrimSpace(string(got.Body)), "\n")
	for _, line := range answers[:len(answers)-1] {
		var f api.Failure
		if err := json.Unmarshal([]byte(line), &f); err != nil {
			s.t.Fatalf("%s: %v", line, err)
		}
		failures[f.Line] = f
	}
	var counts api.Counts
	if err := json.Unmarshal([]byte(answers[len(answers)-1]), &counts); err != nil {
		s.t.Fatalf("%s: %v", got.Body, err)
	}
	return failures, counts
}

func TestImport(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{more: "company slow {\napi_key other-key\ncaptcha off\n}\n"})
	answersComeWhileItReads := s.importsSlowly(t)
	bad := map[int]string{ // the field at fault, by line
		7: "", 100: "primary_phone", 500: "password_hash", 501: "password_hash", 502: "control_answer_hash", 503: "backup_code_hashes", 900: "colour", 1200: "", 1500: "login_name", 1501: "primary_email", 1600: "password", 1999: "profile_mnemocode",
	}
	var lines strings.Builder
	lines.WriteString("\ufeff")
	for n := 1; n <= 2000; n++ {
		line := importLine(n)
		switch n {
		case 7:
			line = line[:40]
		case 100:
			line = strings.Replace(line, "+3706", "8-6", 1)
		case 500:
			line = strings.Replace(line, "$2y$04$", "$2y$31$", 1)
		case 501:
			line = strings.Replace(line, readyHash, "pbkdf2_sha256$999999999$salt$8xBlGd3jVgvJ+92hWPxi5ww0uuAuAnKgC45eudxro7c=", 1)
		case 502:
			line = `{"profile_mnemocode":"slow","control_question":"?","control_answer_hash":"$pbkdf2-sha256$3000001$MDEyMzQ1Njc4OTAx$EH3db6XWEF3n9fsrwHbnCqN7+QWH4nsUZqWS3H0zQ4w"}`
		case 503:
			line = fmt.Sprintf(`{"profile_mnemocode":"slow","backup_code_hashes":["%s"]}`, strings.Join(salted(600_000), `","`))
		case 900:
			line = strings.Replace(line, "{", `{"colour":"red",`, 1)
		case 1200:
			line = `{"profile_mnemocode":"long","role":"` + strings.Repeat("x", 70<<10) + `"}`
		case 1500:
			line = strings.Replace(line, `"user1500"`, `"USER1499"`, 1) // the line before has it
		case 1501:
			line = strings.Replace(line, "user1501@example.com", "User3@example.com", 1)
		case 1600:
			line = strings.Replace(line, `"password_hash":"`, `"password":"\u0000`, 1)
		case 1999:
			line = strings.Replace(line, "user-001999", "user {}", 1)
		case 10, 11:
			line = ""
		}
		lines.WriteString(line + "\n")
	}
	lines.WriteString(importLine(2001)) // without a newline
	failures, counts := s.importAll("", lines.String())
	if want := (api.Counts{Created: 1987, Failed: 12}); counts != want {
		t.Errorf("got %+v, want %+v", counts, want)
	}
	const slow = "the hash takes too long to check: pbkdf2-sha256 with 3000000 iterations and a key of 32 bytes is the most; leave it out, and let the user set a new one"
	for n, want := range map[int]string{
		501: slow, 502: slow,
		503: "together the hashes take too long to check, because each salt among them costs a hash; use one salt for all, or leave them out and let the user get new ones",
	} {
		if got := failures[n].Error; got != want {
			t.Errorf("line %d: got %q, want %q", n, got, want)
		}
	}
	for n, field := range bad {
		if f, ok := failures[n]; !ok || f.Field != field || f.Error == "" {
			t.Errorf("line %d: got %+v, want a failure with the field %q", n, f, field)
		}
		delete(failures, n)
	}
	if len(failures) > 0 {
		t.Errorf("more failed: %+v", failures)
	}
	s.post("auth/checkcredentials", "", fields{"login_id": "user2001", "password": "test"}).wantState(record.Authorized)

	s.run("all are listed in order", func(t *testing.T) {
		for _, limit := range []int{1000, 662} {
			var got []string
			for after, more := "", true; more; more = after != "" {
				page := s.admin("GET", fmt.Sprintf("accounts?limit=%d&after=%s", limit, after), nil).wantStatus(200)
				for _, a := range page.JSON["accounts"].([]any) {
					got = append(got, a.(fields)["profile_mnemocode"].(string))
				}
				after = page.str("next")
			}
			if len(got) != 1987 || !slices.IsSorted(got) || len(slices.Compact(got)) != 1987 {
				t.Errorf("limit %d: got %v", limit, got)
			}
		}
		if first := s.admin("GET", "accounts", nil); len(first.JSON["accounts"].([]any)) != 100 || first.str("next") != "user-000104" {
			t.Errorf("without a limit: got %s", first.Body)
		}
	})
	s.run("what is there is skipped", func(t *testing.T) {
		if _, counts := s.importAll("?update=false", lines.String()); counts.Created != 0 || counts.Skipped != 1987 || counts.Failed != 12 {
			t.Errorf("got %+v", counts)
		}
	})
	s.run("and told if wanted", func(t *testing.T) {
		told, counts := s.importAll("?verbose=true", importLine(5)+"\n"+importLine(4000)+"\n"+`{"profile_mnemocode":"user-000006","password":"plain"}`)
		if counts.Skipped != 2 || len(told) != 2 || !strings.Contains(told[1].Skipped, "profile_mnemocode exists") || told[1].Error != "" || !strings.Contains(told[3].Skipped, "profile_mnemocode exists") {
			t.Errorf("got %+v, %+v", told, counts)
		}
		told, counts = s.importAll("?verbose=true&update=true", importLine(5))
		if counts.Skipped != 1 || told[1].Skipped != "the account is like this already" {
			t.Errorf("got %+v, %+v", told, counts)
		}
	})
	s.run("or updated", func(t *testing.T) {
		_, counts := s.importAll("?update=true", importLine(5)+"\n"+`{"profile_mnemocode":"user-000006","role":"chief"}`+"\n"+importLine(3000)+"\n"+
			`{"profile_mnemocode":"user-000008","login_name":"user9"}`)
		if want := (api.Counts{Created: 1, Updated: 1, Skipped: 1, Failed: 1}); counts != want {
			t.Errorf("got %+v, want %+v", counts, want)
		}
		s.admin("GET", "accounts/user-000006", nil).wantField("role", "chief").wantField("login_name", "user6").wantField("password_set", true)
	})
	s.run("or updated by a line that is too little for a new account", func(t *testing.T) {
		s.importAll("", `{"profile_mnemocode":"asked","control_question":"Cat?","control_answer":"Tom"}`)
		if failures, counts := s.importAll("?update=true", `{"profile_mnemocode":"asked","control_question":"Dog?"}`); counts.Updated != 1 {
			t.Errorf("got %+v, %+v", counts, failures)
		}
	})
	s.run("null removes an app", func(t *testing.T) {
		for i, secret := range []string{`"GEZDGNBVGY3TQOJQGEZDGNBVGY3TQOJQ"`, "null"} {
			failures, _ := s.importAll("?update=true", `{"profile_mnemocode":"app","totp_secret":`+secret+`}`)
			if got := s.admin("GET", "accounts/app", nil); got.JSON["totp"] != (i == 0) {
				t.Errorf("%s: got %s, %v", secret, got.Body, failures)
			}
		}
	})
	s.run("lines of one account follow each other", func(t *testing.T) {
		var lines strings.Builder
		for n := range 100 {
			fmt.Fprintf(&lines, "{\"profile_mnemocode\":\"same\",\"role\":\"%d\"}\n", n)
		}
		_, counts := s.importAll("?update=true", lines.String())
		if got := s.admin("GET", "accounts/same", nil); got.str("role") != "99" || counts.Updated != 99 {
			t.Errorf("got %s, %+v", got.Body, counts)
		}
	})
	s.run("a line takes the login id that the line before it frees", func(t *testing.T) {
		var before, after strings.Builder
		for n := range 200 {
			fmt.Fprintf(&before, `{"profile_mnemocode":"link%d","login_name":"link%d"}`+"\n", n, n)
			fmt.Fprintf(&after, `{"profile_mnemocode":"link%d","login_name":"link%d"}`+"\n", n, n-1)
		}
		s.importAll("", before.String())
		if failures, counts := s.importAll("?update=true", strings.Replace(after.String(), "link-1", "free", 1)); counts.Updated != 200 {
			t.Errorf("got %+v, %v", counts, failures)
		}
	})
	s.run("plain secrets are hashed", func(t *testing.T) {
		var lines strings.Builder
		for n := range 20 {
			fmt.Fprintf(&lines, `{"profile_mnemocode":"plain%d","login_name":"plain%d","password":"pässwörd","control_question":"?","control_answer":"x"}`+"\n", n, n)
		}
		if _, counts := s.importAll("", lines.String()); counts.Created != 20 {
			t.Errorf("got %+v", counts)
		}
		s.post("auth/checkcredentials", "", fields{"login_id": "plain19", "password": "pässwörd"}).wantState(record.Authorized)
	})
	s.run("a Keycloak credential as it comes", func(t *testing.T) {
		_, counts := s.importAll("", `{"profile_mnemocode":"kc","login_name":"kc","password_hash":{"type":"password","secretData":"{\"value\":\"JsfNbCOIdZUbyBJ+BT+VoGI91Ec2rWLOvkLPDaX8e9k=\",\"salt\":\"P5rtFkGtPfoaryJ6PizUJw==\",\"additionalParameters\":{}}","credentialData":"{\"hashIterations\":27500,\"algorithm\":\"pbkdf2-sha256\",\"additionalParameters\":{}}"}}`)
		if counts.Created != 1 {
			t.Fatalf("got %+v", counts)
		}
		s.post("auth/checkcredentials", "", fields{"login_id": "kc", "password": "password"}).wantState(record.Authorized)
	})
	s.run("answers come while it reads", answersComeWhileItReads)
	s.run("it outlives reloads", s.importsOverReloads)
	s.wantNoneLogged("mIJxfrCaEI3", "pässwörd")
}

// A company's own hashes may be more expensive than those of others, so that its accounts
// can move to another store.
func TestImportTakesTheCompanysOwnHashes(t *testing.T) {
	t.Parallel()
	s := adminSite(t, siteConfig{company: "password {\nargon2id 524288 3 1\n}\n"})
	hash := func(parameters, salt string) string {
		return "$" + parameters + "$" + salt + "$" + strings.Repeat("A", 43)
	}
	const own, salt = "argon2id$v=19$m=524288,t=3,p=1", "MDEyMzQ1Njc4OWFiY2RlZg"
	var many []string
	for i := range 100 {
		many = append(many, hash("argon2id$v=19$m=19456,t=2,p=1", fmt.Sprintf("MDEyMzQ1Njc4OWFi%08d", i)))
	}
	password := func(hash string) string {
		return fmt.Sprintf(`{"profile_mnemocode":"carol","password_hash":%q}`, hash)
	}
	codes := func(hashes ...string) string {
		return fmt.Sprintf(`{"profile_mnemocode":"carol","password_hash":%q,"control_question":"Cat?","control_answer_hash":%[1]q,"backup_code_hashes":["%s"]}`,
			hash(own, salt), strings.Join(hashes, `","`))
	}
	for name, test := range map[string]struct{ line, field string }{
		"another kind":        {password(hash("argon2i$v=19$m=524288,t=3,p=1", salt)), "password_hash"},
		"more memory":         {password(hash("argon2id$v=19$m=524289,t=3,p=1", salt)), "password_hash"},
		"more iterations":     {password(hash("argon2id$v=19$m=524288,t=4,p=1", salt)), "password_hash"},
		"two expensive salts": {codes(hash(own, salt), hash(own, salt+"YQ")), "backup_code_hashes"},
		"many cheap salts":    {codes(many...), "backup_code_hashes"},
	} {
		if failures, _ := s.importAll("", test.line); failures[1].Field != test.field {
			t.Errorf("%s: got %+v, want the field %s", name, failures, test.field)
		}
	}
	code := hash(own, salt)
	if failures, counts := s.importAll("", codes(code, code[:len(code)-1]+"Q")); counts.Created != 1 {
		t.Errorf("got %+v", failures)
	}
}

// importsSlowly begins an import into the company slow. What it returns waits for its end, and
// checks that answers came while lines were still read.
func (s *site) importsSlowly(t *testing.T) func(*testing.T) {
	r, w := io.Pipe()
	request := get(http.NewRequestWithContext(t.Context(), http.MethodPost, "http://127.0.0.1/mnemogate/slow/import", r))(t)
	client := s.adminClient()
	var response *http.Response
	var err error
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		response, err = client.Do(request)
	}()
	go func() {
		defer w.Close()
		// The failures of all lines exceed the server's buffer for a response.
		_, _ = io.WriteString(w, strings.Repeat("nonsense\n", 1001))
		time.Sleep(11 * time.Second) // longer than Caddy's deadline for requests
		_, _ = io.WriteString(w, importLine(5000)+"\n")
	}()
	return func(t *testing.T) {
		<-answered
		must(t, err)
		defer response.Body.Close()
		lines, last := 0, ""
		for scanner := bufio.NewScanner(response.Body); scanner.Scan(); lines++ {
			last = scanner.Text()
		}
		if lines != 1002 || last != `{"created":1,"updated":0,"skipped":0,"failed":1001}` {
			t.Errorf("got %d lines, the last %s", lines, last)
		}
	}
}

// importsOverReloads checks that an import that the old configuration interrupted is
// sent again.
func (s *site) importsOverReloads(t *testing.T) {
	accounts := 10_000 / ifRaced(3)
	var lines strings.Builder
	for i := range accounts {
		lines.WriteString(importLine(10_000+i) + "\n")
	}
	done := make(chan error, 1)
	go func() {
		for range 3 {
			if err := s.load(); err != nil {
				done <- err
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		done <- nil
	}()
	told := strings.TrimSpace(s.cli(lines.String(), "--company", "acme", "account", "import", "--json").want(0).out)
	var counts fields
	must(t, json.Unmarshal([]byte(told[strings.LastIndex(told, "\n")+1:]), &counts))
	if err := <-done; err != nil {
		t.Error(err)
	}
	if counts["created"].(float64)+counts["skipped"].(float64) != float64(accounts) {
		t.Errorf("got %v", counts)
	}
}

func TestAnExportTakesItsUsersToAnotherStore(t *testing.T) {
	t.Parallel()
	from := adminSite(t, siteConfig{company: passkeys})
	from.admin("POST", "accounts", with(alice, fields{
		"role": "tester", "locale": "lt", "second_factor": true, "control_question": "Cat?", "control_answer": "Tom Puss",
		"oauth_identities": []fields{{"provider_id": 2, "subject": "sub-2"}},
		"disclaimers_accepted": []fields{
			{"code": "terms", "version": "3", "accepted_at": "2026-01-02T03:04:05Z"}, {"code": "privacy", "version": "1", "accepted_at": "1970-01-01T00:00:00Z"},
		},
	})).wantStatus(201)
	newCodes := func() []any {
		return from.admin("POST", "accounts/alice/backup-codes", nil).wantStatus(200).JSON["backup_codes"].([]any)
	}
	old, codes := newCodes(), newCodes()
	phone := new(keytest.Authenticator)
	from.newPasskey(phone, "alice")
	if len(codes) != 10 {
		t.Errorf("got the codes %v", codes)
	}
	from.admin("POST", "accounts", fields{"profile_mnemocode": "bob", "login_name": "bob", "status": "closed", "must_set_password": true}).wantStatus(201)
	var lines strings.Builder
	for i := range 1234 {
		lines.WriteString(importLine(i) + "\n")
	}
	from.importAll("", lines.String())
	export := from.admin("GET", "export", nil).wantStatus(200)
	if n := bytes.Count(export.Body, []byte("\n")); n != 1236 {
		t.Fatalf("%d lines", n)
	}
	if strings.Contains(string(export.Body), testPassword) || strings.Contains(string(export.Body), "Tom Puss") {
		t.Error("the export holds plain secrets")
	}

	to := adminSite(t, siteConfig{company: passkeys})
	failures, counts := to.importAll("", string(export.Body))
	if counts.Created != 1236 || len(failures) > 0 {
		t.Fatalf("got %+v %v", counts, failures)
	}
	if again := to.admin("GET", "export", nil); string(again.Body) != string(export.Body) {
		t.Error("the export of the other store differs")
	}
	line, _, _ := strings.Cut(string(export.Body), "\n")
	never := regexp.MustCompile(`("passkeys":\[.*?"created_at":)"[^"]+"`).ReplaceAllString(line, `$1"9999-12-31T23:59:59-05:00"`) // no JSON has its year in UTC
	if failures, _ := to.importAll("?update=true", never); len(failures) != 1 || failures[1].Field != "passkeys" {
		t.Errorf("a passkey of the year 10000: got %v", failures)
	}
	before, after := from.admin("GET", "accounts/alice", nil), to.admin("GET", "accounts/alice", nil)
	delete(before.JSON, "updated_at")
	delete(after.JSON, "updated_at")
	if fmt.Sprint(before.JSON) != fmt.Sprint(after.JSON) {
		t.Errorf("got %v, want %v", after.JSON, before.JSON)
	}
	try := func(code any) answer {
		return to.post("auth/checkotp", to.secondStep("alice").token(), fields{"backup_code": code})
	}
	try(old[3]).want(wire.ErrBackupCodeInvalid) // new codes have replaced it
	try(codes[3]).wantState(record.Authorized)
	try(strings.ToLower(strings.ReplaceAll(codes[4].(string), "-", " "))).wantState(record.Authorized)
	try(codes[3]).want(wire.ErrBackupCodeInvalid)
	to.post("passkey/login", "", to.passkeyAnswer(phone, "acme", passkeyOrigin)).wantState(record.Authorized)
	to.admin("GET", "accounts/alice", nil).wantField("backup_codes_left", 8.0)
	token := to.post("auth/recovery/recover", "", fields{"login_id": "alice", "captcha_response": "x", "method": "QUESTION"}).wantStatus(200).token()
	to.post("auth/recovery/checkquestion", token, fields{"control_answer": "tom puss"}).wantState(record.RecoveryPassword)
	to.post("auth/checkcredentials", "", fields{"login_id": "user1233", "password": "test"}).wantState(record.Authorized)
	to.run("and goes on while an account with a passkey is deleted", func(t *testing.T) {
		var w sync.WaitGroup
		defer w.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		w.Go(func() {
			for ctx.Err() == nil {
				to.admin("DELETE", "accounts/alice", nil)
				to.importAll("", line)
			}
		})
		for range 60 {
			if n := bytes.Count(to.admin("GET", "export", nil).wantStatus(200).Body, []byte("\n")); n < 1235 {
				t.Errorf("%d lines", n)
			}
		}
	})
	to.run("and again changes nothing", func(t *testing.T) {
		if _, counts := to.importAll("?update=true", string(from.admin("GET", "export", nil).Body)); counts.Failed != 0 || counts.Created != 0 {
			t.Errorf("got %+v", counts)
		}
	})
}

// An import goes on over reloads, also through the admin endpoint, and so does an export. It
// ends if a reload removes the company, the key or its right.
func TestReloadsEndOnlyWhatTheyForbid(t *testing.T) {
	t.Parallel()
	const (
		key     = "key %s a-key-of-the-%[1]s {\nmay %s\n}\n"
		company = "company gone {\napi_key other-key\ncaptcha off\n}\n"
	)
	removed, reduced, less := fmt.Sprintf(key, "removed", "import export"), fmt.Sprintf(key, "reduced", "import write"), fmt.Sprintf(key, "reduced", "import")
	s := accountsSite(t, startSite, fmt.Sprintf(key, "kept", "import export")+removed+reduced, siteConfig{more: company})
	many, long := new(strings.Builder), strings.Repeat("\U00020000", 250)
	for i := range 5000 { // more than the buffers of a connection
		fmt.Fprintf(many, "{\"profile_mnemocode\":\"%04d\",\"login_name\":\"%04d%s\"}\n", i, i, long)
	}
	if _, counts := s.importAll("", many.String()); counts.Created != 5000 {
		t.Fatalf("got %+v", counts)
	}

	begin := func(key, method, path string, body io.Reader) *http.Response {
		r := get(http.NewRequestWithContext(t.Context(), method, s.URL+"/api/"+path, body))(t)
		r.Header.Set("Authorization", "Bearer a-key-of-the-"+key)
		dial := func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, address)
			if err == nil {
				err = conn.(*net.TCPConn).SetReadBuffer(64 << 10)
			}
			return conn, err
		}
		var way http.RoundTripper = &http.Transport{DialContext: dial}
		if key == "" {
			r.URL.Host, r.URL.Path = "127.0.0.1", "/mnemogate/"+path
			way = s.adminClient().Transport
		}
		answer := get(way.RoundTrip(r))(t)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	imports := []struct {
		key, path string
		created   int
		feed      *io.PipeWriter
		answer    *http.Response
	}{
		{key: "", path: "acme/import", created: 1},
		{key: "kept", path: "acme/import", created: 1},
		{key: "removed", path: "acme/import"},
		{key: "reduced", path: "acme/import", created: 1},
		{key: "reduced", path: "acme/import?update=true"},
		{key: "kept", path: "gone/import"},
	}
	for i := range imports {
		lines, feed := io.Pipe()
		defer feed.Close()
		go func() { _, _ = io.WriteString(feed, strings.Repeat("nonsense\n", 1001)) }() // the answer begins
		imports[i].feed, imports[i].answer = feed, begin(imports[i].key, "POST", imports[i].path, lines)
	}
	exports := map[string]*http.Response{"kept": begin("kept", "GET", "acme/export", nil), "removed": begin("removed", "GET", "acme/export", nil)}

	s.config = strings.NewReplacer(removed, "", reduced, less, company, "").Replace(s.config)
	for range 2 {
		must(t, s.load())
	}
	for i, c := range imports {
		_, _ = io.WriteString(c.feed, importLine(i)+"\n")
		_ = c.feed.Close()
		got := string(get(io.ReadAll(c.answer.Body))(t))
		last := got[strings.LastIndex(strings.TrimSpace(got), "\n")+1:]
		ended := strings.Contains(last, `"line":1002,"error":"Caddy stops, or a reload has removed the key, its right, the company`)
		if !strings.Contains(last, fmt.Sprintf(`"created":%d,"updated":0,"skipped":0,"failed":1001`, c.created)) || ended != (c.created == 0) {
			t.Errorf("%s with %q answers at last %s", c.path, c.key, last)
		}
	}
	for key, answer := range exports {
		lines, err := io.ReadAll(answer.Body)
		if whole := err == nil && bytes.Count(lines, []byte("\n")) >= 5000; whole != (key == "kept") {
			t.Errorf("%s: %d bytes of the export came, %v", key, len(lines), err)
		}
	}
}
