package integration

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// challenge requests a challenge of captcha pow.
func (s *site) challenge(method, path string, keys ...string) answer {
	s.t.Helper()
	r := s.request(method, path, "")
	r.Header["X-Api-Key"] = keys
	r.Header.Set("Origin", "https://app.example.com")
	return s.do(r)
}

// worked returns correct responses to a challenge of 8 bits.
func worked(challenge string, n int) []string { return hashed(challenge, n, 0) }

// hashed returns responses whose hashes begin with the byte first.
func hashed(challenge string, n int, first byte) (responses []string) {
	for i := 0; len(responses) < n; i++ {
		response := fmt.Sprint(challenge, ".", i)
		if sha256.Sum256([]byte(response))[0] == first {
			responses = append(responses, response)
		}
	}
	return responses
}

func TestWorkInsteadOfACaptcha(t *testing.T) {
	t.Parallel()
	account := fmt.Sprintf("account alice {\nemail alice@example.com\npassword %q\nquestion Cat? Whiskers\n}\n", testPassword)
	s := startNodes(t, siteConfig{
		global:  "\nlimits {\ncaptcha_after 1\nfailures_per_address 1000/5m\n}\n",
		company: "captcha pow 8\n" + account,
		more: "company umbrella {\napi_key another-test-key\ncaptcha pow 8\n}\n" +
			"company plain {\napi_key a-third-test-key\ncaptcha static yes\n}\n",
		handler: "cors https://app.example.com",
	})
	challenge := func() string {
		return s.challenge("GET", "/acme/v2/captcha", testKey).str("challenge")
	}
	recovery := func(response string) answer {
		return s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "method": "QUESTION", "captcha_response": response})
	}
	s.run("a challenge", func(t *testing.T) {
		a := s.challenge("GET", "/acme/v2/captcha", testKey)
		a.wantStatus(200).wantField("status", "success").wantField("bits", 8.).wantField("expires_in", 300.)
		a.wantHeader("Access-Control-Allow-Origin", "https://app.example.com")
		client := s.challenge("GET", "/acme/v2/client.json", testKey)
		if want := `"captcha":{"type":"pow","bits":8}`; !strings.Contains(string(client.Body), want) {
			t.Errorf("got %s, want %s", client.Body, want)
		}
		if first := a.str("challenge"); len(first) != 44 || first == challenge() {
			t.Errorf("got %q", first)
		}
	})
	s.run("who gets none", func(t *testing.T) {
		s.challenge("GET", "/acme/v2/captcha").want(wire.ErrAPIKeyMissing)
		s.challenge("GET", "/acme/v2/captcha", "another-test-key").want(wire.ErrAPIKeyInvalid)
		s.challenge("GET", "/nobody/v2/captcha", testKey).want(wire.ErrAPIKeyInvalid)
		s.challenge("GET", "/plain/v2/captcha").want(wire.ErrAPIKeyMissing)
		s.challenge("GET", "/plain/v2/captcha", "a-third-test-key").want(wire.ErrNoRoute)
		s.challenge("POST", "/acme/v2/captcha", testKey).want(wire.ErrMethod).wantHeader("Allow", "GET")
		s.challenge("GET", "/acme/v2/captcha/", testKey).want(wire.ErrHeaderMissing)
	})
	s.run("a login", func(t *testing.T) {
		attempt := fields{"login_id": "alice@example.com", "password": "wrong"}
		s.post("auth/checkcredentials", "", attempt).wantField("captcha_required", true)
		attempt["password"] = testPassword
		s.post("auth/checkcredentials", "", attempt).want(wire.ErrCaptchaMissing)
		attempt["captcha_response"] = worked(challenge(), 1)[0]
		s.post("auth/checkcredentials", "", attempt).wantState(record.Authorized)
	})
	s.run("once, and in its company", func(t *testing.T) {
		var responses []string
		begin := func() { responses = worked(challenge(), 40) }
		s.wantOne(40, begin, func(i int) answer { return recovery(responses[i]) }, wire.ErrCaptchaInvalid)
		theirs := s.challenge("GET", "/umbrella/v2/captcha", "another-test-key").str("challenge")
		recovery(worked(theirs, 1)[0]).want(wire.ErrCaptchaInvalid)
		recovery(worked(strings.Repeat("A", 44), 1)[0]).want(wire.ErrCaptchaInvalid)
		recovery(challenge()).want(wire.ErrCaptchaInvalid)
		recovery(hashed(challenge(), 1, 1)[0]).want(wire.ErrCaptchaInvalid) // 7 bits
		recovery(worked(challenge(), 1)[0]).wantState(record.RecoveryQuestion)
	})
	if got := s.backend.requests(); len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
}
