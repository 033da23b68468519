package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var refForm = regexp.MustCompile(`^[0-9A-HJKMNP-TV-Z]{10}$`)

// ref returns the ref of an error.
func (a answer) ref() string {
	a.t.Helper()
	ref := a.str("ref")
	if !refForm.MatchString(ref) {
		a.t.Errorf("the ref is %q in %d %s", ref, a.Status, a.Body)
	}
	return ref
}

// Contract, section 25: each error has a ref of its own, by which support finds it in the
// audit log and in the account's history.
func TestARefusalIsFoundByItsRef(t *testing.T) {
	t.Parallel()
	s := startNodes(t, siteConfig{company: people, more: umbra, handler: selfService + "\nrole admin /admin/*\ncheck /check"})
	node := s.all()[0]
	find := func(args ...string) []map[string]any {
		t.Helper()
		var found []map[string]any
		for line := range strings.Lines(node.cli("", append([]string{"account", "history", "--company", "acme", "--json"}, args...)...).want(0).out) {
			var e map[string]any
			must(t, json.Unmarshal([]byte(line), &e))
			found = append(found, e)
		}
		return found
	}
	audited := func(ref string) {
		t.Helper()
		lines := 0
		storetest.Eventually(t, 10*time.Second, "an audit line with "+ref, func() bool {
			lines = 0
			for line := range strings.Lines(s.log()) {
				if strings.Contains(line, `"logger":"mnemogate.audit"`) && strings.Contains(line, `"ref":"`+ref+`"`) {
					lines++
				}
			}
			return lines > 0
		})
		if lines > 1 {
			t.Errorf("%d audit lines have the ref %s", lines, ref)
		}
	}
	token := s.login("alice@example.com")

	seen := map[string]bool{}
	for name, a := range map[string]answer{
		"no key":            s.do(s.postRequest("acme", "", "auth/login", "", fields{})).want(wire.ErrAPIKeyMissing),
		"no company":        s.do(s.postRequest("nobody", testKey, "auth/login", "", fields{})).want(wire.ErrAPIKeyInvalid),
		"no route":          s.post("auth/nothing", "", fields{}).want(wire.ErrNoRoute),
		"no method":         s.do(s.getRequest("/acme/v2/auth/login", "")).want(wire.ErrMethod),
		"the body":          s.post("auth/login", "", fields{}).want(wire.ErrValidation),
		"the session":       s.do(s.getRequest("/acme/v2/session", "")),
		"client.json":       s.do(s.request("PUT", "/acme/v2/client.json", "")).want(wire.ErrMethod),
		"passkeys":          s.post("passkey/options", "", fields{}),
		"self-service":      s.me("GET", "factors", "", nil).want(wire.ErrHeaderMissing),
		"another":           s.me("GET", "factors", "mgs_wrong", nil).want(wire.ErrTokenInvalid),
		"no self-service":   s.me("GET", "nothing", token, nil).want(wire.ErrNoRoute),
		"no token":          s.get("/", "").want(wire.ErrHeaderMissing),
		"a wrong token":     s.get("/", "mgs_wrong").want(wire.ErrTokenInvalid),
		"a role":            s.get("/admin/x", token).want(wire.ErrSessionInvalid),
		"a foreign proxy":   s.get("/check", token),
		"a wrong otp state": s.post("auth/checkotp", token, fields{"otp": "123456"}).want(wire.ErrSessionInvalid),
	} {
		if ref := a.ref(); seen[ref] {
			t.Errorf("%s: %s is not the first with this ref", name, ref)
		} else {
			seen[ref] = true
		}
	}
	s.get("/", token).wantStatus(http.StatusOK).wantField("ref", nil)

	wrong := func(who string) answer {
		return node.credentials(who, "a wrong password").want(wire.ErrCredentialsInvalid)
	}
	for name, a := range map[string]answer{
		"a stranger":     wrong("nobody@example.com"),
		"a role":         s.get("/admin/y", s.login("frank")).want(wire.ErrSessionInvalid),
		"own password":   s.me("POST", "password", token, fields{"current_password": "a wrong password", "new_password": "a new password 1"}).want(wire.ErrPasswordInvalid),
		"a bad password": s.me("POST", "password", token, fields{"current_password": testPassword, "new_password": "x"}),
	} {
		t.Log(name)
		audited(a.ref())
	}

	// Of repeats, the newest.
	first, second := wrong("alice@example.com"), wrong("alice@example.com")
	storetest.Eventually(t, 10*time.Second, "the ref in the history", func() bool {
		return slices.ContainsFunc(s.history("alice", 1), func(e map[string]string) bool { return e["ref"] == second.ref() })
	})
	e := find("alice", "--ref", second.ref())
	if len(e) != 1 || e[0]["count"] != 2.0 || e[0]["event"] != "mnemogate.checkcredentials.failure" || e[0]["ref"] != second.ref() {
		t.Errorf("the newest: %v", e)
	}
	node.cli("", "account", "history", "--company", "acme", "alice", "--ref", first.ref()).want(2, "no history has an event with the ref", "search the audit log")
	audited(first.ref())

	// As people type it, and without the account.
	typed := strings.NewReplacer("0", "o", "1", "l").Replace(strings.ToLower(second.ref()))
	typed = typed[:5] + "-" + typed[5:]
	if e := find("--ref", typed); len(e) != 1 || e[0]["profile_mnemocode"] != "alice" || e[0]["company"] != "acme" {
		t.Errorf("%s finds %v", typed, e)
	}
	node.cli("", "account", "history", "--ref", second.ref()).want(0, " acme/alice")
	zoe := node.postTo("umbra", "other-key", "auth/checkcredentials", "", fields{"login_id": "zoe", "password": "a wrong password"}).want(wire.ErrCredentialsInvalid)
	storetest.Eventually(t, 10*time.Second, "the ref of another company", func() bool {
		return strings.Contains(node.cli("", "account", "history", "--ref", zoe.ref()).out, " umbra/zoe")
	})
	node.cli("", "account", "history", "--company", "acme", "bob", "--ref", second.ref()).want(2, "no history has")
	node.cli("", "account", "history", "--company", "umbra", "--ref", second.ref()).want(2, "no history has")
	node.cli("", "account", "history", "--company", "acme", "--ref", "U23").want(1, "10 letters and digits")
	node.cli("", "account", "history", "--company", "acme").want(1, "name an account, or an error with --ref")

	// Whatever was refused to a known account, also of what the page shows a ref for.
	status := func(account string, status record.Status) {
		s.admin("PATCH", "accounts/"+account, fields{"status": status}).wantStatus(200)
	}
	recovery := func(method string) answer {
		return s.post("auth/recovery/recover", "", fields{"login_id": "frank", "method": method, "captcha_response": "x"})
	}
	step := s.post("auth/login", "", fields{"login_id": "dave@example.com"}).token()
	for _, c := range []struct {
		account string
		refuse  func() answer
		want    *wire.Error
	}{
		{"erin", func() answer {
			status("erin", record.StatusRestricted)
			return node.credentials("erin@example.com", testPassword)
		}, wire.ErrUserRestricted},
		{"erin", func() answer { return s.post("auth/login", "", fields{"login_id": "erin@example.com"}) }, wire.ErrUserRestricted},
		{"erin", func() answer {
			status("erin", record.StatusClosed)
			return s.post("auth/recovery/recover", "", fields{"login_id": "erin@example.com", "captcha_response": "x"})
		}, wire.ErrUserClosed},
		{"erin", func() answer {
			status("erin", record.StatusDenied)
			return node.credentials("erin@example.com", testPassword)
		}, wire.ErrUserDenied},
		{"frank", func() answer { return recovery("PHONE") }, wire.ErrPhoneNotSet},
		{"frank", func() answer { return recovery("QUESTION") }, wire.ErrQuestionNotSet},
		{"frank", func() answer { return s.post("stepup", s.login("frank"), fields{"for": "mfa"}) }, wire.ErrUserRestricted},
		{"alice", func() answer {
			return s.me("POST", "password", token, fields{"current_password": testPassword, "new_password": "password123"})
		}, wire.ErrQuality},
		{"alice", func() answer {
			token := s.post("auth/recovery/recover", "", fields{"login_id": "alice@example.com", "method": "QUESTION", "captcha_response": "x"}).token()
			for range 3 {
				s.post("auth/recovery/checkquestion", token, fields{"control_answer": "wrong"}).want(wire.ErrAnswerInvalid)
			}
			return s.post("auth/recovery/checkquestion", token, fields{"control_answer": "Whiskers"})
		}, wire.ErrRestricted},
		{"carol", func() answer {
			token := node.credentials("carol@example.com", testPassword).wantState(record.CheckOTP).token()
			for range 10 {
				s.post("auth/checkotp", token, fields{"backup_code": "ABCDE-FGHIJ"}).want(wire.ErrBackupCodeInvalid)
			}
			return s.post("auth/checkotp", token, fields{"backup_code": "ABCDE-FGHIJ"})
		}, wire.ErrRestricted},
		{"dave", func() answer {
			for range 10 {
				wrong("dave@example.com")
			}
			return node.credentials("dave@example.com", testPassword)
		}, wire.ErrRestricted},
		{"dave", func() answer { return s.post("auth/checkotp", step, fields{"otp": "123456"}) }, wire.ErrSessionInvalid},
	} {
		a := c.refuse().want(c.want)
		ref := a.ref()
		storetest.Eventually(t, 10*time.Second, fmt.Sprintf("%s in the history of %s", a.Body, c.account), func() bool {
			return strings.Contains(node.cli("", "account", "history", "--ref", ref).out, " acme/"+c.account)
		})
	}

	// What is answered again has the first ref.
	login := s.post("auth/login", "", fields{"login_id": "frank"}).wantState(record.CheckPassword).token()
	a := s.twice(func() *http.Request {
		return s.postRequest("acme", testKey, "auth/checkpassword", login, fields{"password": "wrong"})
	}).want(wire.ErrPasswordInvalid)
	audited(a.ref())
}

// Each refusal is in the access log, once, also those that are not in the audit log.
func TestTheAccessLogHasEveryRef(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{audit: true, company: people, site: "log\nmnemogate {\ncheck /check\n" + selfService + "\n}\nreverse_proxy BACKEND"})
	wrong := s.credentials("alice@example.com", "a wrong password").want(wire.ErrCredentialsInvalid)
	s.run("the runbook", func(t *testing.T) { s.runbookFinds(t, wrong.ref()) })
	for name, a := range map[string]answer{
		"a wrong method":       s.do(s.getRequest("/acme/v2/auth/login", "")).want(wire.ErrMethod),
		"no route":             s.post("auth/nothing", "", fields{}).want(wire.ErrNoRoute),
		"a wrong password":     wrong,
		"the session":          s.do(s.getRequest("/acme/v2/session", "")).want(wire.ErrAPIKeyMissing),
		"self-service":         s.me("GET", "factors", "", nil).want(wire.ErrHeaderMissing),
		"the application":      s.get("/", "").want(wire.ErrHeaderMissing),
		"a foreign proxy":      s.get("/check", "").wantStatus(403),
		"an idempotent repeat": s.do(keyed(s.postRequest("acme", testKey, "auth/login", "", fields{"login_id": "frank"}), "a b")).want(wire.ErrValidation),
	} {
		logged := s.logged(`("msg":"handled request".*"ref":"` + a.ref() + `".*)`)
		if strings.Count(logged, `"error_code":"`+a.str("error_code")+`"`) != 1 || strings.Count(logged, `"ref":`) != 1 {
			t.Errorf("%s: %s", name, logged)
		}
	}
	for _, code := range []string{wire.ErrHeaderMissing.Code, wire.ErrValidation.Code} {
		if n := s.scrape()[`mnemogate_protected_requests_total{reason="",result="`+code+`"}`]; n != 1 {
			t.Errorf("%s is counted %v times", code, n)
		}
	}
}

// The runbook finds the ref of a screenshot in the history and in the audit log.
func (s *site) runbookFinds(t *testing.T, ref string) {
	need(t, "jq")
	s.history("alice", 2)
	for _, command := range blocks(section(t, "docs/runbook.md", "A user sends a screenshot"), "sh") {
		if !strings.Contains(command, "7K3M9QXZ2B") {
			continue // it explains a request of the application
		}
		command = strings.NewReplacer("7K3M9QXZ2B", ref, "/var/log/mnemogate/", s.dir+"/").Replace(command)
		out, err := s.shell(command).Output()
		if err != nil || !strings.Contains(string(out), "checkcredentials.failure") || !strings.Contains(string(out), ref) || !strings.Contains(string(out), "alice") {
			t.Errorf("%s: %v %s", command, err, out)
		}
	}
}
