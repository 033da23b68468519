package integration

import (
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// steady repeats ask until it is answered.
func (c *crash) steady(ask func() (answer, bool)) answer {
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if a, ok := ask(); ok || time.Now().After(deadline) {
			return a
		}
	}
}

// nothingPending waits until the pending revocations that a crash left are done.
func (c *crash) nothingPending() {
	accounts := c.s.accounts()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		pending, err := accounts.PendingRevocations(c.s.t.Context(), record.Revocation{}, 10)
		if err == nil && len(pending) == 0 {
			return
		}
		if time.Now().After(deadline) {
			for _, node := range c.nodes {
				c.s.t.Logf("log of a node: %s", node.warnings())
			}
			c.s.t.Fatalf("revocations are pending after 30 s: %v, %v", pending, err)
		}
	}
}

// warnings returns the last lines of the log with a level above INFO.
func (s *site) warnings() string {
	var lines []string
	for line := range strings.Lines(s.log()) {
		if !strings.Contains(line, `"level":"info"`) && !strings.Contains(line, `"level":"debug"`) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines[max(0, len(lines)-20):], "")
}

// checkFile looks for corruption in the file, and for sessions without an account.
func (s *site) checkFile(dir string) {
	s.t.Helper()
	db := get(sql.Open("sqlite", "file:"+dir+"/mnemogate.db?_pragma=busy_timeout(5000)"))(s.t)
	defer db.Close()
	for query, want := range map[string]string{
		"PRAGMA integrity_check":                          "ok",
		"SELECT count(*) FROM pragma_foreign_key_check()": "0",
		`SELECT count(*) FROM sessions LEFT JOIN accounts ON accounts.id = sessions.account
			WHERE accounts.id IS NULL OR accounts.generation <> sessions.generation`: "0",
	} {
		var got string
		if err := db.QueryRow(query).Scan(&got); err != nil || got != want {
			s.t.Errorf("%s: %s, %v; want %s", query, got, err, want)
		}
	}
}

// checkDead checks at each node that revoked sessions stay revoked.
func (w *crashWorker) checkDead(p *person, all bool) {
	for token, ended := range p.dead {
		if !all && ended.round < w.round {
			continue
		}
		for i, node := range w.nodes {
			a := w.steady(func() (answer, bool) {
				a, ok := w.ask(node, "", token, nil)
				return a, ok && (a.Status != http.StatusOK || time.Since(ended.at) > heardWithin) // the other nodes receive it within heardWithin
			})
			w.expect(p, fmt.Sprintf("a token that %s ended, at node %d", ended.by, i), a, wire.ErrTokenInvalid)
		}
	}
}

// checkPerson checks that an account is as its owner knows it. It also finds out
// whether operations that were not acknowledged were done.
func (w *crashWorker) checkPerson(p *person) {
	a := w.steady(func() (answer, bool) { return w.operate("GET", "acme/accounts/"+p.name, nil) })
	if p.gone == 0 && a.Status == http.StatusNotFound {
		switch p.doubt {
		case "create":
			p.gone = 2
		case "delete":
			p.gone = 1
			w.endsAll(p, p.doubt)
			w.count(w.done, p.doubt)
		}
	}
	if p.gone != 0 {
		p.doubt = ""
		if a.Status != http.StatusNotFound {
			w.s.t.Errorf("%s was deleted: %d %s", p.name, a.Status, a.Body)
		}
		w.expect(p, "the login of a deleted account", w.steady(func() (answer, bool) { return w.ask(nil, "auth/login", "", fields{"login_id": p.name}) }), wire.ErrLoginIDNotFound)
		return
	}
	if !w.expect(p, "its account", a, nil) {
		return
	}
	if p.doubt == "create" {
		w.count(w.done, p.doubt)
	}
	if p.accepted && strings.Count(string(a.Body), `"accepted_at"`) != 2 {
		w.s.t.Errorf("%s has accepted two disclaimers: %s", p.name, a.Body)
	}
	w.settleStatus(p, a)
	w.settlePassword(p)
	w.settleSessions(p)
	w.checkCodes(p, a)
	p.doubt = ""
	w.logsIn(p)
	w.expect(p, "unlock", w.steady(func() (answer, bool) { return w.operate("POST", "acme/accounts/"+p.name+"/unlock", nil) }), nil)
	p.doubt = "the check"
	for len(p.live) > 3 {
		a := w.steady(func() (answer, bool) { return w.operate("DELETE", "acme/accounts/"+p.name+"/sessions", nil) })
		if !w.expect(p, "ending the sessions", a, nil) {
			return
		}
		w.endsAll(p, p.doubt)
	}
}

func (w *crashWorker) settleStatus(p *person, account answer) {
	restricted := account.str("status") == "restricted"
	if restricted != p.restricted {
		if p.doubt != "restrict" {
			w.s.t.Errorf("%s has status %s", p.name, account.str("status"))
		}
		if restricted {
			w.endsAll(p, p.doubt)
		}
		w.count(w.done, p.doubt)
	}
	p.restricted = false
	if restricted || account.JSON["must_set_password"] == true {
		if p.doubt != "restrict" && p.doubt != "setpassword" {
			w.s.t.Errorf("%s: after %q: %s", p.name, p.doubt, account.Body)
		}
		if restricted {
			w.expect(p, "the login of a restricted account", w.steady(func() (answer, bool) { return w.begin(p, p.password) }), wire.ErrUserRestricted)
		}
		a := w.steady(func() (answer, bool) {
			return w.operate("PATCH", "acme/accounts/"+p.name, fields{"status": "active", "must_set_password": false})
		})
		w.expect(p, "activating", a, nil)
	}
}

// settlePassword finds out which password is set, and checks that the other one does
// not work.
func (w *crashWorker) settlePassword(p *person) {
	works := func(password string) bool {
		a := w.steady(func() (answer, bool) { return w.begin(p, password) })
		return a.fails(nil) || !w.expect(p, "a password that does not work", a, wire.ErrCredentialsInvalid)
	}
	if p.maybe != "" {
		if works(p.maybe) {
			w.count(w.done, p.doubt)
			w.isSet(p)
		}
		p.maybe = ""
	}
	if n := len(p.old); n > 0 && works(p.old[n-1]) {
		w.s.t.Errorf("%s: the old password works, after %q", p.name, p.doubt)
	}
}

// settleSessions checks that sessions that were not revoked are still valid.
func (w *crashWorker) settleSessions(p *person) {
	if p.doubt == "end sessions" && len(p.live) > 0 {
		for token := range p.live {
			a := w.steady(func() (answer, bool) { return w.ask(nil, "", token, nil) })
			if a.fails(wire.ErrTokenInvalid) { // then all were revoked
				w.endsAll(p, p.doubt)
				w.count(w.done, p.doubt)
			}
			break
		}
	}
	for token, used := range p.live {
		for _, node := range w.nodes {
			a := w.steady(func() (answer, bool) { return w.ask(node, "", token, nil) })
			if time.Since(used) > 100*time.Second && a.fails(wire.ErrTokenExpired) {
				delete(p.live, token)
				break
			}
			if w.expect(p, "a session that goes on", a, nil) {
				p.live[token] = time.Now()
			}
		}
	}
	for token, code := range p.spent {
		delete(p.spent, token)
		a := w.steady(func() (answer, bool) { return w.ask(nil, "auth/checkotp", token, w.proof(p, "otp", code)) })
		if p.doubt == "end sessions" && a.fails(wire.ErrTokenInvalid) {
			continue
		}
		if !w.expect(p, "a spent code", a, wire.ErrOTPInvalid) {
			continue
		}
		a = w.steady(func() (answer, bool) { return w.ask(nil, "auth/renewotp", token, nil) })
		if !w.expect(p, "another code", a, nil) {
			continue
		}
		a, ok := w.ask(nil, "auth/checkotp", token, w.proof(p, "otp", w.s.sms.codeTo(p.phone)))
		if ok && w.expect(p, "the code that was sent anew", a, nil) {
			w.ends(p, token, p.doubt)
			p.accepted = true
			p.live[a.str("session_token")] = time.Now()
		}
	}
}

// checkCodes checks that used backup codes stay used, and how many are left.
func (w *crashWorker) checkCodes(p *person, account answer) {
	left, _ := account.JSON["backup_codes_left"].(float64)
	if p.leftUnknown {
		p.left = nil // either these codes or new ones
	} else if int(left) != len(p.left) {
		w.s.t.Errorf("%s has %v backup codes left, want %d", p.name, left, len(p.left))
	}
	if n := len(p.used); n > 0 && p.kind == "second" {
		a := w.steady(func() (answer, bool) { return w.begin(p, p.password) })
		if !w.expect(p, "login", a, nil) {
			return
		}
		token := a.str("session_token")
		a = w.steady(func() (answer, bool) {
			return w.ask(nil, "auth/checkotp", token, w.proof(p, "backup_code", p.used[rand.IntN(n)]))
		})
		w.expect(p, "a used backup code", a, wire.ErrBackupCodeInvalid)
	}
	if p.leftUnknown && p.kind == "second" {
		p.leftUnknown = false
		a := w.steady(func() (answer, bool) { return w.operate("POST", "acme/accounts/"+p.name+"/backup-codes", nil) })
		w.expect(p, "backup codes", a, nil)
		list, _ := a.JSON["backup_codes"].([]any)
		for _, code := range list {
			p.left = append(p.left, code.(string))
		}
	}
}

// logsIn checks that a person can log in with no steps other than those that are
// expected.
func (w *crashWorker) logsIn(p *person) {
	a := w.steady(func() (answer, bool) {
		a, ok := w.begin(p, p.password)
		if !ok || a.str("session_state") != string(record.CheckOTP) {
			return a, ok
		}
		return w.ask(nil, "auth/checkotp", a.str("session_token"), w.proof(p, "otp", w.s.sms.codeTo(p.phone)))
	})
	if w.expect(p, "logging in", a, nil) {
		p.accepted = true
		p.live[a.str("session_token")] = time.Now()
	}
}
