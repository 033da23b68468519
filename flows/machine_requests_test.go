package flows_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/memory"
)

// begin sends a request that needs no session.
func (m *machine) begin(t *rapid.T) {
	paths := []string{"auth/login", "auth/login", "auth/checkcredentials", "auth/recovery/recover", "auth/recovery/recover", "auth/oauth"}
	if slices.ContainsFunc(m.sessions, func(s *modelSession) bool { return s.state == record.MailedLink && !s.ended }) {
		paths = append(paths, "auth/recovery/checklink", "auth/recovery/checklink")
	}
	path := pick(t, "path", paths...)
	m.request(t, &modelCall{company: pick(t, "company", m.companies...), path: path})
}

// goOn sends the next request of a session. With last, it is the session that began
// last.
func (m *machine) goOn(t *rapid.T, last bool) {
	var open []*modelSession
	for _, s := range m.sessions {
		if !s.ended && !s.expired && s.state != record.Authorized && s.state != record.MailedLink {
			open = append(open, s)
		}
	}
	if len(open) == 0 {
		t.Skip("no session")
	}
	s := open[len(open)-1]
	if !last {
		s = pick(t, "session", open...)
	}
	var paths []string
	for _, r := range flows.Routes {
		if slices.Contains(modelRoutes[r.Path].from, s.state) && r.Path != "auth/logout" {
			paths = append(paths, r.Path)
		}
	}
	m.request(t, &modelCall{company: s.company, path: pick(t, "path", paths...), token: s.token})
}

// stray sends any route with any token, also one of another state or company, or one
// that is no longer valid.
func (m *machine) stray(t *rapid.T) {
	var paths []string
	for _, r := range flows.Routes {
		if !strings.HasPrefix(r.Path, "passkey/") { // the model has no passkeys
			paths = append(paths, r.Path)
		}
	}
	c := &modelCall{company: pick(t, "company", m.companies...), path: pick(t, "path", paths...)}
	m.anyToken(t, c)
	m.request(t, c)
}

// anyToken gives the call a token that was issued before, or an unknown token or a
// bad header.
func (m *machine) anyToken(t *rapid.T, c *modelCall) {
	switch n := len(m.sessions); {
	case n == 0 || oneIn(t, 10, "a token of nobody's"):
		c.header = pick(t, "header", "", "none", "malformed")
		c.token = pick(t, "token", "mgs_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "mgs_short", "x")
	default:
		c.token = m.sessions[n-1-rapid.IntRange(0, n-1).Draw(t, "token, from the newest")].token
	}
}

// request draws the body and sends the request.
func (m *machine) request(t *rapid.T, c *modelCall) {
	t.Helper()
	c.address = pick(t, "address", machineAddresses...)
	c.broken = oneIn(t, 25, "gateways are down")
	m.drawBody(t, c)
	if need := modelRoutes[c.path].need; len(need) > 0 && oneIn(t, 40, "a field is missing") {
		delete(c.body, pick(t, "field", need...))
	}
	if modelRoutes[c.path].from == nil {
		c.header = ""
	}
	m.send(t, c)
}

// send sends the request and compares the answer.
func (m *machine) send(t *rapid.T, c *modelCall) {
	t.Helper()
	m.serve(t, c)
	m.settle()
	want := m.answer(c)
	m.compare(t, c, want)
}

// settle waits until the store has learned of the activity: it must before the clock moves.
func (m *machine) settle() {
	for _, node := range m.nodes {
		if memory, ok := node.Sessions.(*memory.Memory); ok {
			memory.Wait()
		}
	}
}

// sessionOf returns the session of a token, or nil.
func (m *machine) sessionOf(token string) *modelSession {
	if i := slices.IndexFunc(m.sessions, func(s *modelSession) bool { return s.token == token }); i >= 0 {
		return m.sessions[i]
	}
	return nil
}

// drawBody draws a body that is right most of the time.
func (m *machine) drawBody(t *rapid.T, c *modelCall) {
	var a *modelAccount
	s := m.sessionOf(c.token)
	if s != nil {
		a = s.account
	}
	c.body = object{}
	loginID := func() {
		var sent string
		c.loginID, sent = drawLoginID(t, c.company)
		c.body["login_id"] = sent
		a = c.company.byLoginID(c.loginID)
	}
	secret := func(field, right string, others ...string) {
		if right == "" || oneIn(t, 3, "wrong "+field) {
			right = pick(t, field, others...)
		}
		c.body[field] = right
	}
	captcha := func() {
		// Used responses are known to all companies, and sequences share their
		// stores, so each sequence needs its own.
		good := func(n int) string { return fmt.Sprint("good ", m.companies[0].Code, " ", n) }
		switch pick(t, "captcha_response", "new", "new", "new", "used", "spaced", "bad", "") {
		case "new":
			m.drawn++
			c.body["captcha_response"] = good(m.drawn)
		case "used":
			c.body["captcha_response"] = good(1)
		case "spaced":
			c.body["captcha_response"] = good(m.drawn) + " "
		case "bad":
			c.body["captcha_response"] = "bad"
		}
	}
	accept := func() {
		if accepted := pick(t, "accept_disclaimers", []string{"terms", "privacy"}, []string{"terms", "privacy", "other"}, []string{"terms"}, nil); accepted != nil {
			c.body["accept_disclaimers"] = accepted
		}
	}
	of := func(what func(*modelAccount) string) string {
		if a == nil {
			return ""
		}
		return what(a)
	}
	defer func() { m.drawDevice(t, c, a) }()
	switch c.path {
	case "auth/login":
		loginID()
	case "auth/checkcredentials", "auth/checkpassword":
		if c.path == "auth/checkcredentials" {
			loginID()
		}
		secret("password", of(func(a *modelAccount) string { return a.password }), append([]string{"wrong"}, machinePasswords...)...)
		captcha()
		accept()
	case "auth/checkotp", "auth/recovery/checkotp":
		right := ""
		if s != nil && s.code != nil {
			right = s.code.digits
		}
		if s != nil && s.byApp {
			right = appCode(a.app, m.now.Add(pick(t, "the app's clock", 0, 0, 30*time.Second, -30*time.Second, 60*time.Second)))
		}
		if oneIn(t, 4, "a backup code") {
			secret("backup_code", of(func(a *modelAccount) string { return strings.Join(a.backup[:min(1, len(a.backup))], "") }), "AAAAA-AAAAA", "no code")
		} else {
			secret("otp", right, "000000", "no code")
		}
		if oneIn(t, 20, "both codes") {
			c.body["otp"], c.body["backup_code"] = "000000", "AAAAA-AAAAA"
		}
		accept()
	case "auth/setpassword":
		c.body["new_password"] = pick(t, "new_password", slices.Concat(machinePasswords, c.company.weak())...)
		accept()
	case "auth/oauth":
		c.body["provider_id"] = pick(t, "provider_id", 1, 1, 1, 1, 1, 1, 1, 2)
		m.drawn++
		c.body["code"] = fmt.Sprint(pick(t, "user", "ann", "bob", "ann", "bob", "carol", "bad"), " ", pick(t, "code", m.drawn, m.drawn, m.drawn, 1), m.companies[0].Code)
		c.body["redirect_uri"] = pick(t, "redirect_uri", append(slices.Repeat([]string{modelRedirect}, 7), modelRedirect+"/")...)
	case "auth/acceptdisclaimers":
		accept()
	case "auth/recovery/recover":
		loginID()
		captcha()
		if method := pick(t, "method", "", "PHONE", "MAIL", "QUESTION", "QUESTION", "MAIL", "PHONE", "PIGEON"); method != "" {
			c.body["method"] = method
		}
	case "auth/recovery/checkquestion":
		secret("control_answer", of(func(a *modelAccount) string { return strings.ToUpper(a.answer) }), machineAnswers...)
	case "stepup":
		if wanted := pick(t, "for", "", "", "mfa", "fresh"); wanted != "" {
			c.body["for"] = wanted
		}
		if factor := pick(t, "factor", "", "", "", "sms", "otp", "backup", "pwd", "passkey"); factor != "" {
			c.body["factor"] = factor
		}
	case "stepup/check":
		var begun []*modelStepUp
		for _, u := range m.stepUps {
			if u.session == s || oneIn(t, 20, "another session's") {
				begun = append(begun, u)
			}
		}
		c.body["stepup_token"] = "mgu_x"
		factor := pick(t, "factor", "otp", "backup", "pwd")
		if n := len(begun); n > 0 {
			u := begun[n-1-min(n-1, rapid.IntRange(0, 3).Draw(t, "step-up, from the newest"))]
			c.body["stepup_token"] = u.token
			factor = pick(t, "factor", u.factor, u.factor, u.factor, factor)
		}
		switch factor {
		case "pwd":
			secret("password", of(func(a *modelAccount) string { return a.password }), machinePasswords...)
		case "backup":
			secret("backup_code", of(func(a *modelAccount) string { return strings.Join(a.backup[:min(1, len(a.backup))], "") }), "AAAAAAAAAA", "no code")
		default:
			right := ""
			if factor == "otp" && a != nil && a.app != nil {
				right = appCode(a.app, m.now)
			}
			if factor == "sms" && s != nil && s.code != nil {
				right = s.code.digits
			}
			secret("otp", right, "000000", "no code")
		}
	case "auth/recovery/checklink":
		var links []string
		for _, s := range m.sessions {
			if s.state == record.MailedLink {
				links = append(links, s.token)
			}
		}
		slices.Reverse(links)
		c.body["token"] = pick(t, "link", append(links, "mgl_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "mgs_x")...)
	}
}

// drawDevice draws what a client says about its device: mostly the token of the last one
// of the account, or any other.
func (m *machine) drawDevice(t *rapid.T, c *modelCall, a *modelAccount) {
	if strings.HasPrefix(c.path, "stepup") { // devices_test.go has known devices that step up
		return
	}
	if rapid.Bool().Draw(t, "remember_device") {
		c.body["remember_device"] = true
	}
	tokens := []string{"", "mgd_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", "mgd_short"}
	for _, d := range m.devices {
		tokens = append(tokens, d.token)
		if d.account == a {
			tokens = append(tokens, d.token, d.token)
		}
	}
	token := ""
	if rapid.Bool().Draw(t, "a device's token") {
		token = tokens[len(tokens)-1-rapid.IntRange(0, len(tokens)-1).Draw(t, "device, from the newest")]
	}
	switch {
	case token == "":
	case c.path == "auth/oauth" || oneIn(t, 3, "in the cookie"):
		c.cookie = token
	default:
		c.body["device_token"] = token
	}
}

// rememberOften logs an account's owner in on new devices, until the oldest is dropped.
func (m *machine) rememberOften(t *rapid.T) {
	c := pick(t, "company", m.companies...)
	if c.Devices.For == 0 || len(c.accounts) == 0 || !oneIn(t, 10, "often") {
		t.Skip("no devices")
	}
	a := pick(t, "account", c.accounts...)
	id := cmp.Or(a.loginName, a.email, a.phone)
	if id == "" || a.password == "" {
		t.Skip("no password")
	}
	for range rapid.IntRange(9, record.MaxDevices+1).Draw(t, "times") {
		if m.cut {
			return
		}
		m.send(t, &modelCall{
			company: c, path: "auth/checkcredentials", address: pick(t, "address", machineAddresses...), loginID: id,
			body: object{"login_id": id, "password": a.password, "accept_disclaimers": []string{"terms", "privacy"}, "remember_device": true},
		})
	}
}

// drawLoginID draws a login id and a way to spell it.
func drawLoginID(t *rapid.T, c *modelCompany) (normalised, sent string) {
	ids := slices.Concat(machineEmails, machinePhones, machineNames, []string{"nobody"})
	if !oneIn(t, 6, "any login id") {
		known := slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return c.byLoginID(id) == nil })
		if len(known) > 0 {
			ids = known
		}
	}
	id := pick(t, "login_id", ids...)
	switch {
	case !oneIn(t, 4, "spelled in another way"):
		return id, id
	case id[0] == '+':
		return id, "00" + id[1:4] + " (" + id[4:7] + ") " + id[7:]
	default:
		return id, " " + strings.ToUpper(id)
	}
}

// serve sends a request to a node.
func (m *machine) serve(t *rapid.T, c *modelCall) {
	body, err := json.Marshal(c.body)
	if err != nil {
		t.Fatal(err)
	}
	request := &flows.Request{
		Company: c.company.Code, Route: flows.RouteByPath(c.path), Client: session.Client{Address: c.address, Device: func() (string, error) { return c.cookie, nil }},
		Authorization: authorization(c), Body: func() ([]byte, error) { return body, nil },
	}
	node := pick(t, "node", m.nodes...)
	var reply flows.Reply
	m.watch(t, c, func() (err error) {
		reply, err = node.Serve(t.Context(), request)
		return err
	})
	if err == nil {
		c.got.State, c.got.token, c.got.Mnemocode = reply.SessionState, cmp.Or(reply.SessionToken, c.got.token), reply.ProfileMnemocode
		c.got.Captcha = c.got.Captcha || reply.CaptchaRequired
		c.got.Phone, c.got.Email, c.got.Question, c.got.Method = reply.UserPhone, reply.UserEmail, reply.ControlQuestion, reply.Verification
		c.got.Quality = reply.PasswordQuality != nil
		c.got.ExpiresIn = reply.ExpiresIn
		c.got.stepUp, c.got.Factor, c.got.Methods = reply.StepUpToken, string(reply.Factor), reply.AuthMethods
		for _, factor := range reply.Factors {
			c.got.Factors = append(c.got.Factors, string(factor))
		}
		c.got.device, c.got.Device = reply.DeviceToken, reply.DeviceToken != ""
		if reply.DisclaimersRequired != nil {
			c.got.Disclaimers = codesOf(reply.DisclaimersRequired)
		}
	}
}

func authorization(c *modelCall) []string {
	switch {
	case c.header == "malformed":
		return []string{"Basic " + c.token}
	case c.header == "none" || c.token == "":
		return nil
	}
	return []string{"Bearer " + c.token}
}

func codesOf(disclaimers []wire.Disclaimer) []string {
	codes := []string{}
	for _, d := range disclaimers {
		codes = append(codes, d.Code)
	}
	return codes
}

// watch makes a call and notes its error and the messages to the gateways, including
// those sent after the answer.
func (m *machine) watch(t *rapid.T, c *modelCall, call func() error) {
	before := m.outbox.count()
	m.broken.Store(c.broken)
	err := call()
	for _, node := range m.nodes {
		settle(node)
	}
	m.broken.Store(false)
	if err != nil {
		r := refusal(err)
		c.got.Code, c.got.Captcha, c.got.lock = codeOf(err), r.Captcha, modelLock{r.Reason, r.RetryAfter}
		if r.Err == wire.ErrCredentialsInvalid {
			c.got.Message = r.Message
		}
		if r.Disclaimers != nil {
			c.got.Disclaimers = codesOf(r.Disclaimers)
		}
	}
	m.outbox.mu.Lock()
	defer m.outbox.mu.Unlock()
	for _, message := range m.outbox.sent[before:] {
		c.got.Sent = append(c.got.Sent, message.Type+" "+message.To)
		c.got.digits = cmp.Or(message.Code, c.got.digits)
		c.got.token = cmp.Or(strings.TrimPrefix(message.Link, linkURL), c.got.token)
	}
}

// String returns the call's lines in the transcript of a failure.
func (c *modelCall) String() string {
	company, token := "", c.header
	if c.company != nil {
		company = c.company.Code
	}
	if c.header == "" && len(c.token) > 10 {
		token = c.token[:10]
	}
	s := fmt.Sprint("> ", company, " ", c.path, " ", token, " ", c.body, " from ", c.address, " ", c.cookie)
	if c.broken {
		s += ", gateways down"
	}
	s += fmt.Sprint("\n< ", cmp.Or(c.got.Code, "success"), " ", c.got.State, " ", c.got.Sent)
	if len(c.got.token) > 10 {
		s += " " + c.got.token[:10]
	}
	return s
}

func (m *machine) compare(t *rapid.T, c *modelCall, want modelAnswer) {
	t.Helper()
	t.Log(c)
	differs := !slices.Equal(want.Sent, c.got.Sent) // a store may fail before a gateway that is down
	unsent := m.unsent.Swap(false) && !c.broken && differs
	if m.servers && (unsent || c.got.Code == "service.unavailable" && (differs || want.Code != c.got.Code)) {
		m.cut = true
		return
	}
	outcome := fmt.Sprint(c.path, ": ", cmp.Or(c.got.Code, "success"), " ", c.got.State)
	if c.device != nil {
		outcome += ", known device"
	}
	m.outcomes[outcome]++
	if diff := gocmp.Diff(want, c.got, cmpopts.IgnoreUnexported(modelAnswer{})); diff != "" {
		t.Fatalf("%s %v (-model +service):\n%s", c.path, c.body, diff)
	}
	if want.Code == "auth.restricted" && !slices.Contains(want.locks, c.got.lock) {
		t.Fatalf("%s %v: %v, the model has %v", c.path, c.body, c.got.lock, want.locks)
	}
}

// protected requests the application that mnemogate protects.
func (m *machine) protected(t *rapid.T) {
	c := &modelCall{}
	if len(m.sessions) == 0 {
		t.Skip("no session")
	}
	var authorized []*modelSession
	for _, s := range m.sessions {
		if s.state == record.Authorized && !s.ended && !s.expired {
			authorized = append(authorized, s)
		}
	}
	if n := len(authorized); n > 0 && !oneIn(t, 4, "any token") {
		c.token = authorized[n-1-rapid.IntRange(0, n-1).Draw(t, "session, from the newest")].token
	} else {
		m.anyToken(t, c)
	}
	if rapid.Bool().Draw(t, "a company's path") {
		c.company = pick(t, "company", m.companies...)
	}
	c.twice = oneIn(t, 4, "mfa")
	if oneIn(t, 4, "fresh") {
		c.fresh = 10 * time.Minute
	}
	m.pass(t, c)
}

// raise begins a step-up of the session that began last, or of another one, and mostly ends it.
func (m *machine) raise(t *rapid.T) {
	var authorized []*modelSession
	for _, s := range m.sessions {
		if s.state == record.Authorized && !s.ended && !s.expired {
			authorized = append(authorized, s)
		}
	}
	n := len(authorized)
	if n == 0 {
		t.Skip("nobody is logged in")
	}
	s := authorized[n-1-rapid.IntRange(0, n-1).Draw(t, "session, from the newest")]
	if !oneIn(t, 4, "an earlier step-up") {
		m.request(t, &modelCall{company: s.company, path: "stepup", token: s.token})
	}
	if !m.cut && !oneIn(t, 6, "given up") {
		m.request(t, &modelCall{company: s.company, path: "stepup/check", token: s.token})
	}
}

// logOut ends the session that began last, and requests the protected path before
// and after.
func (m *machine) logOut(t *rapid.T) {
	for _, s := range slices.Backward(m.sessions) {
		if s.state == record.Authorized && !s.ended && !s.expired {
			m.pass(t, &modelCall{token: s.token})
			m.request(t, &modelCall{company: s.company, path: "auth/logout", token: s.token})
			m.pass(t, &modelCall{token: s.token})
			return
		}
	}
	t.Skip("nobody is logged in")
}

// pass requests the protected application.
func (m *machine) pass(t *rapid.T, c *modelCall) {
	t.Helper()
	if m.cut {
		return
	}
	company := ""
	if c.company != nil {
		company = c.company.Code
	}
	node := pick(t, "node", m.nodes...)
	m.watch(t, c, func() error {
		session, err := node.Authorize(t.Context(), session.Requirement{Company: company, Fresh: c.fresh, TwoFactors: func() bool { return c.twice }}, authorization(c))
		m.settle()
		if err == nil {
			c.got.Mnemocode = session.Mnemocode
		}
		return err
	})
	m.compare(t, c, m.model.protected(c))
}
