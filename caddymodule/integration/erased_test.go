package integration

import (
	"bytes"
	"net/http"
	"os"
	"syscall"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// Failure counts and counters outlive the account. Their keys do not reveal its
// phone, login id or address.
func TestNothingOfADeletedAccountCanBeRead(t *testing.T) {
	t.Parallel()
	const phone, address = "37060000002", "address/127.0.0.1"
	config := siteConfig{global: "captcha off\n", company: "account bob {\nphone +" + phone + "\nemail bob@example.com\n}"}
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
