package integration

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/passkey/keytest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// Failure counts and counters outlive the account. Their keys do not reveal its
// phone, login id or address.
func TestNothingOfADeletedAccountCanBeRead(t *testing.T) {
	t.Parallel()
	const phone, address = "37060000002", "address/127.0.0.1"
	config := siteConfig{unraced: true, global: "captcha off\n", company: "account bob {\nphone +" + phone + "\nemail bob@example.com\n}"}
	use := func(s *site) {
		token := s.post("auth/login", "", fields{"login_id": "+" + phone}).wantState(record.CheckOTP).token()
		s.post("auth/checkotp", token, fields{"otp": "000000"}).want(wire.ErrOTPInvalid)
		s.post("auth/recovery/recover", "", fields{"login_id": "bob@example.com", "captcha_response": "x", "method": "MAIL"}).wantState("")
		s.all()[0].admin("DELETE", "accounts/bob", nil).wantStatus(http.StatusNoContent)
		s.post("auth/login", "", fields{"login_id": "+" + phone}).want(wire.ErrLoginIDNotFound)
		s.post("auth/login", "", fields{"login_id": "bob@example.com"}).want(wire.ErrLoginIDNotFound)
	}
	readable := func(t *testing.T, kept []byte) {
		t.Helper()
		for _, personal := range []string{phone, "bob@example.com", address} {
			if i := bytes.Index(kept, []byte(personal)); i >= 0 {
				t.Errorf("%q is kept: %q", personal, kept[max(0, i-60):min(len(kept), i+60)])
			}
		}
	}
	t.Run("SQLite", func(t *testing.T) {
		s := startSite(t, config)
		use(s)
		s.stop(syscall.SIGTERM) // empties the write-ahead log
		kept := get(os.ReadFile(s.dir + "/mnemogate.db"))(t)
		readable(t, kept)
	})
	t.Run("Redis", func(t *testing.T) {
		server := storetest.StartRedis(t)
		config := config
		config.stores = "store sqlite {env.HOME}/mnemogate.db\nsessions redis " + server.URL()
		use(startSite(t, config))
		for _, key := range redisContent(t, server) {
			readable(t, []byte(key))
		}
	})
}

// redisContent returns the keys of a Redis, each with its fields.
func redisContent(t *testing.T, server *storetest.Redis) []string {
	t.Helper()
	redis := server.Client(t)
	keys, err := redis.Keys(t.Context(), "*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	for i, name := range keys {
		fields, _ := redis.HGetAll(t.Context(), name).Result() // fails if it is not a hash
		for field, value := range fields {
			keys[i] += " " + field + "=" + value
		}
	}
	return keys
}

// docs/personal-data.md mentions each table of the stores.
func TestPersonalDataNamesEveryTable(t *testing.T) {
	t.Parallel()
	page := pages(t)["docs/personal-data.md"]
	files := get(filepath.Glob("../../store/*/migrations/*.sql"))(t)
	tables := 0
	for _, file := range files {
		script := get(os.ReadFile(file))(t)
		for _, found := range regexp.MustCompile(`(?i)CREATE TABLE (\w+)`).FindAllSubmatch(script, -1) {
			tables++
			if !strings.Contains(page, "`"+string(found[1])+"`") {
				t.Errorf("the page does not say what the table %s has of a person", found[1])
			}
		}
	}
	if tables < 10 {
		t.Errorf("only %d tables were found", tables)
	}
}

// The commands in "When users ask" show what is stored about a person, erase it, and
// show who was erased.
func TestTheCommandsOfPersonalData(t *testing.T) {
	t.Parallel()
	need(t, "jq")
	s := adminSite(t, siteConfig{company: account("other", "") + "\n" + passkeys + "\ndevices 90d\nissued_tokens", audit: true})
	s.admin("POST", "accounts", fields{"profile_mnemocode": "alice", "primary_email": "alice@example.com", "password": testPassword}).wantStatus(201)
	s.login("alice@example.com")
	s.remembered("alice@example.com")
	s.newPasskey(new(keytest.Authenticator), "alice")
	s.admin("POST", "accounts/alice/tokens", fields{"name": "report", "paths": []string{"/x"}, "methods": []string{"GET"}}).wantStatus(201)
	// Caddy names and compresses a rotated file like this.
	rotated := get(os.Create(s.dir + "/audit-2026-01-01T00-00-00.000-size.log.gz"))(t)
	compressed := gzip.NewWriter(rotated)
	fmt.Fprintln(compressed, `{"ts":1767225600,"msg":"mnemogate.account.deleted","company":"acme","mnemocode":"alice","address":"192.0.2.1"}`)
	fmt.Fprintln(compressed, `{"ts":1767225600,"msg":"mnemogate.checkotp.success","company":"neu","mnemocode":"alice","address":"192.0.2.9"}`) // another person
	must(t, errors.Join(compressed.Close(), rotated.Close()))
	var commands []string
	for _, block := range blocks(section(t, "docs/personal-data.md", "When users ask"), "sh") {
		commands = append(commands, strings.Split(strings.TrimSpace(block), "\n")...)
	}
	shown := []string{"alice@example.com", `"address":"127.0.0.1"`, `"name":"Phone"`, `"skip_second_factor":`, `"name":"report"`, "checkcredentials.success", "192.0.2.1.*(?s:.*)checkcredentials.success", "alice",
		`^\["2026-01-01T00:00:00Z","acme","alice",null\]\n(?s:.*)","acme","alice",null\]`}
	if len(commands) != len(shown) {
		t.Fatalf("the page has %d commands", len(commands))
	}
	for i, want := range shown {
		run := func() bool {
			out, err := s.shell(strings.ReplaceAll(commands[i], "/var/log/mnemogate/", s.dir+"/")).CombinedOutput()
			return err == nil && regexp.MustCompile(want).Match(out) && !bytes.Contains(out, []byte("192.0.2.9"))
		}
		storetest.Eventually(t, 20*time.Second, want+" from "+commands[i], run) // events are written a moment later
	}
	s.admin("GET", "accounts/alice", nil).wantStatus(404)
}
