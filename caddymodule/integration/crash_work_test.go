package integration

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A crashWorker performs one operation after another on people of its own. So it
// knows the expected state.
type crashWorker struct {
	*crash
	number, born int
	people       []*person
}

// A person is an account as its owner and the operator know it.
type person struct {
	name, phone string
	kind        string   // password, second (with a code) or sms (no password)
	gone        int      // 1: deleted, 2: never existed
	password    string   // the last one that was set
	maybe       string   // a new one, whose setting was not acknowledged
	old         []string // passwords that no longer work
	accepted    bool
	restricted  bool
	live        map[string]time.Time // authorized tokens, and when they were last used
	dead        map[string]ended     // revoked tokens
	spent       map[string]string    // tokens of pending sessions, with the code that was used
	left, used  []string             // backup codes
	leftUnknown bool
	doubt       string // the operation that was not acknowledged
}

// ended records how, when and in which round a token was revoked.
type ended struct {
	by    string
	at    time.Time
	round int
}

// A crashOperation returns false if it got no answer.
type crashOperation struct {
	name string
	run  func(*crashWorker, *person) bool
}

var crashOperations = []crashOperation{
	{"create", (*crashWorker).create},
	{"login", (*crashWorker).login},
	{"logout", (*crashWorker).logout},
	{"touch", (*crashWorker).touch},
	{"recovery", (*crashWorker).recovery},
	{"setpassword", (*crashWorker).mustSet},
	{"password by an admin", (*crashWorker).adminPassword},
	{"restrict", (*crashWorker).restrict},
	{"end sessions", (*crashWorker).endSessions},
	{"backup codes", (*crashWorker).newCodes},
	{"delete", (*crashWorker).remove},
}

// work performs operations until it is told to stop or gets no answer.
func (w *crashWorker) work() {
	for !w.stop.Load() {
		operation, p := w.choose()
		p.doubt = operation.name
		if !operation.run(w, p) {
			w.count(w.broken, operation.name)
			return
		}
		p.doubt = ""
		w.count(w.acknowledged, operation.name)
	}
}

func (w *crashWorker) choose() (crashOperation, *person) {
	var there []*person
	for _, p := range w.people {
		if p.gone == 0 {
			there = append(there, p)
		}
	}
	if len(there) < 3 {
		if n := len(w.people); n > 0 && w.people[n-1].gone == 1 && rand.IntN(2) == 0 {
			return crashOperations[0], w.people[n-1] // reuse the names
		}
		p := &person{
			name:  fmt.Sprintf("p%d-%d", w.number, w.born),
			phone: fmt.Sprintf("+37061%d%05d", w.number, w.born),
			kind:  []string{"password", "second", "sms"}[w.born%3],
			dead:  map[string]ended{},
		}
		w.born++
		w.people = append(w.people, p)
		return crashOperations[0], p
	}
	p := there[rand.IntN(len(there))]
	for {
		// Logins happen most often.
		operation := crashOperations[max(1, rand.IntN(len(crashOperations)+6)-6)]
		switch operation.name {
		case "recovery", "setpassword", "password by an admin":
			if p.kind == "sms" {
				continue
			}
		case "backup codes":
			if p.kind != "second" {
				continue
			}
		case "logout", "touch":
			if len(p.live) == 0 {
				continue
			}
		}
		return operation, p
	}
}

// ask sends a request to a node, or to any node if it is nil. It returns false if
// there is no answer, or an answer that does not tell whether the operation was
// done.
func (c *crash) ask(node *site, route, token string, body fields) (answer, bool) {
	if node == nil {
		node = c.nodes[rand.IntN(len(c.nodes))]
	}
	r := node.getRequest("/x", token)
	if route != "" {
		r = node.postRequest("acme", testKey, route, token, body)
	}
	a, err := node.try(client, r)
	return a, err == nil && a.Status != http.StatusServiceUnavailable
}

// operate is like ask, but for the admin API.
func (c *crash) operate(method, path string, body any) (answer, bool) {
	a, err := c.nodes[rand.IntN(len(c.nodes))].tryAdmin(method, path, c.s.encoded(body))
	return a, err == nil && a.Status != http.StatusServiceUnavailable
}

// fails reports whether the answer is this error; nil means a success.
func (a answer) fails(e *wire.Error) bool {
	if e == nil {
		return a.Status/100 == 2
	}
	return a.Status == e.Status && a.str("error_code") == e.Code
}

// expect fails the test unless the answer is the error or, if e is nil, a success.
func (w *crashWorker) expect(p *person, what string, a answer, e *wire.Error) bool {
	if !a.fails(e) {
		w.s.t.Errorf("%s (%s, unacknowledged %q): %s: got %d %s, want %v", p.name, p.kind, p.doubt, what, a.Status, a.Body, e)
		return false
	}
	return true
}

// codeTo returns the last code that was sent to a phone.
func (s *webhookSink) codeTo(phone string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, m := range slices.Backward(s.messages) {
		if code, _ := m["code"].(string); m["to"] == phone && code != "" {
			return code
		}
	}
	return ""
}

func (w *crashWorker) ends(p *person, token, by string) {
	p.dead[token] = ended{by, time.Now(), w.round}
}

// endsAll records that all sessions of a person were revoked.
func (w *crashWorker) endsAll(p *person, by string) {
	for token := range p.live {
		w.ends(p, token, by)
	}
	for token := range p.spent {
		w.ends(p, token, by)
	}
	p.live, p.spent = map[string]time.Time{}, map[string]string{}
}

func (w *crashWorker) create(p *person) bool {
	p.password, p.accepted, p.restricted, p.left, p.leftUnknown = "", false, false, nil, false
	p.live, p.spent = map[string]time.Time{}, map[string]string{}
	account := fields{"profile_mnemocode": p.name, "login_name": p.name, "primary_phone": p.phone, "second_factor": p.kind == "second"}
	if p.kind != "sms" {
		p.password = fmt.Sprintf("the password %d", rand.Int64())
		account["password"] = p.password
	}
	p.gone = 0
	a, ok := w.operate("POST", "acme/accounts", account)
	return ok && w.expect(p, "create", a, nil)
}

// begin performs the first step of a login.
func (w *crashWorker) begin(p *person, password string) (answer, bool) {
	if p.kind == "sms" {
		return w.ask(nil, "auth/login", "", fields{"login_id": p.phone})
	}
	body := fields{"login_id": p.name, "password": password}
	if !p.accepted {
		body["accept_disclaimers"] = []string{"terms", "privacy"}
	}
	return w.ask(nil, "auth/checkcredentials", "", body)
}

// proof returns the body of a step that proves something, such as a code. It accepts
// the disclaimers if the person has not done so.
func (w *crashWorker) proof(p *person, what, value string) fields {
	body := fields{what: value}
	if !p.accepted {
		body["accept_disclaimers"] = []string{"terms", "privacy"}
	}
	return body
}

func (w *crashWorker) login(p *person) bool {
	a, ok := w.begin(p, p.password)
	if !ok || !w.expect(p, "login", a, nil) {
		return false
	}
	if a.str("session_state") == string(record.CheckOTP) {
		pending := a.str("session_token")
		code := w.s.sms.codeTo(p.phone)
		how := rand.IntN(4)
		switch {
		case how == 0:
			a, ok = w.ask(nil, "auth/checkotp", pending, w.proof(p, "otp", "000000"))
			if ok && w.expect(p, "a wrong code", a, wire.ErrOTPInvalid) {
				p.spent[pending] = code
			}
			return ok
		case how == 1 && len(p.left) > 0:
			code := p.left[0]
			p.left = p.left[1:]
			p.leftUnknown = true
			a, ok = w.ask(nil, "auth/checkotp", pending, w.proof(p, "backup_code", code))
			if !ok || !w.expect(p, "a backup code", a, nil) {
				return false
			}
			p.used, p.leftUnknown = append(p.used, code), false
		default:
			a, ok = w.ask(nil, "auth/checkotp", pending, w.proof(p, "otp", code))
			if !ok || !w.expect(p, "a code", a, nil) {
				return false
			}
		}
		w.ends(p, pending, p.doubt)
	}
	p.accepted = true
	p.live[a.str("session_token")] = time.Now()
	return true
}

func (w *crashWorker) logout(p *person) bool {
	for token := range p.live {
		delete(p.live, token)
		a, ok := w.ask(nil, "auth/logout", token, nil)
		if ok && w.expect(p, "logout", a, nil) {
			w.ends(p, token, p.doubt)
		}
		return ok
	}
	return true
}

func (w *crashWorker) touch(p *person) bool {
	for token := range p.live {
		a, ok := w.ask(nil, "", token, nil)
		if ok && w.expect(p, "the protected path", a, nil) {
			p.live[token] = time.Now()
		}
		return ok
	}
	return true
}

// setNew sets a new password with the given call.
func (w *crashWorker) setNew(p *person, call func(password string) (answer, bool)) (answer, bool) {
	p.maybe = fmt.Sprintf("the password %d", rand.Int64())
	a, ok := call(p.maybe)
	if !ok || !w.expect(p, "setting a password", a, nil) {
		return a, false
	}
	w.isSet(p)
	return a, true
}

func (w *crashWorker) isSet(p *person) {
	p.old = append(p.old, p.password)
	p.password, p.maybe = p.maybe, ""
	w.endsAll(p, p.doubt)
}

func (w *crashWorker) recovery(p *person) bool {
	a, ok := w.ask(nil, "auth/recovery/recover", "", fields{"login_id": p.name, "captcha_response": "any", "method": "PHONE"})
	if !ok || !w.expect(p, "recover", a, nil) {
		return false
	}
	pending := a.str("session_token")
	a, ok = w.ask(nil, "auth/recovery/checkotp", pending, fields{"otp": w.s.sms.codeTo(p.phone)})
	if !ok || !w.expect(p, "a recovery code", a, nil) {
		return false
	}
	setting := a.str("session_token")
	w.ends(p, pending, p.doubt)
	_, ok = w.setNew(p, func(password string) (answer, bool) {
		return w.ask(nil, "auth/setpassword", setting, fields{"new_password": password})
	})
	if ok {
		w.ends(p, setting, p.doubt)
	}
	return ok
}

func (w *crashWorker) mustSet(p *person) bool {
	a, ok := w.operate("PATCH", "acme/accounts/"+p.name, fields{"must_set_password": true})
	if !ok || !w.expect(p, "must_set_password", a, nil) {
		return false
	}
	if a, ok = w.begin(p, p.password); !ok || !w.expect(p, "login", a, nil) {
		return false
	}
	if a.str("session_state") == string(record.CheckOTP) {
		a, ok = w.ask(nil, "auth/checkotp", a.str("session_token"), w.proof(p, "otp", w.s.sms.codeTo(p.phone)))
		if !ok || !w.expect(p, "a code", a, nil) {
			return false
		}
	}
	setting := a.str("session_token")
	a, ok = w.setNew(p, func(password string) (answer, bool) {
		return w.ask(nil, "auth/setpassword", setting, fields{"new_password": password})
	})
	if ok {
		w.ends(p, setting, p.doubt)
		p.accepted = true
		p.live[a.str("session_token")] = time.Now()
	}
	return ok
}

func (w *crashWorker) adminPassword(p *person) bool {
	_, ok := w.setNew(p, func(password string) (answer, bool) {
		return w.operate("PATCH", "acme/accounts/"+p.name, fields{"password": password})
	})
	return ok
}

func (w *crashWorker) restrict(p *person) bool {
	a, ok := w.operate("PATCH", "acme/accounts/"+p.name, fields{"status": "restricted"})
	if !ok || !w.expect(p, "restrict", a, nil) {
		return false
	}
	w.endsAll(p, p.doubt)
	p.restricted = true
	a, ok = w.operate("PATCH", "acme/accounts/"+p.name, fields{"status": "active"})
	if !ok || !w.expect(p, "activate", a, nil) {
		return false
	}
	p.restricted = false
	return true
}

func (w *crashWorker) endSessions(p *person) bool {
	a, ok := w.operate("DELETE", "acme/accounts/"+p.name+"/sessions", nil)
	if !ok || !w.expect(p, "ending the sessions", a, nil) {
		return false
	}
	w.endsAll(p, p.doubt)
	return true
}

func (w *crashWorker) newCodes(p *person) bool {
	before := p.left
	p.left, p.leftUnknown = nil, true
	a, ok := w.operate("POST", "acme/accounts/"+p.name+"/backup-codes", nil)
	if !ok || !w.expect(p, "backup codes", a, nil) {
		return false
	}
	p.used, p.leftUnknown = append(p.used, before...), false
	list, _ := a.JSON["backup_codes"].([]any)
	for _, code := range list {
		p.left = append(p.left, code.(string))
	}
	return true
}

func (w *crashWorker) remove(p *person) bool {
	a, ok := w.operate("DELETE", "acme/accounts/"+p.name, nil)
	if !ok || !w.expect(p, "delete", a, nil) {
		return false
	}
	p.gone = 1
	w.endsAll(p, p.doubt)
	return true
}
