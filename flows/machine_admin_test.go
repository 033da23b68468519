package flows_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

func (m *machine) admin(t *rapid.T, c *modelCompany) *manage.Admin {
	return &manage.Admin{Manager: pick(t, "node", m.nodes...).Manager, Company: c.Company}
}

// create adds an account with drawn login ids. Login ids of another account are
// refused.
func (m *machine) create(t *rapid.T, c *modelCompany) {
	m.drawn++
	a := &modelAccount{
		key:          fmt.Sprint(m.drawn),
		mnemocode:    pick(t, "mnemocode", "ann-1", "bob-2", "eve-3"), // may be one that was deleted before
		phone:        pick(t, "phone", append([]string{""}, machinePhones...)...),
		email:        pick(t, "email", append([]string{""}, machineEmails...)...),
		loginName:    pick(t, "login name", append([]string{""}, machineNames...)...),
		status:       record.StatusActive,
		secondFactor: rapid.Bool().Draw(t, "second_factor"),
		mustSet:      oneIn(t, 4, "must_set_password"),
		password:     pick(t, "password", append(machinePasswords, "")...),
		subject:      pick(t, "identity", "", "ann", "bob"),
		accepted:     map[string]modelAcceptance{},
	}
	if rapid.Bool().Draw(t, "question") {
		a.question, a.answer = "Your cat?", pick(t, "answer", machineAnswers...)
	}
	taken := ""
	switch {
	case c.find(func(b *modelAccount) bool { return b.mnemocode == a.mnemocode }) != nil:
		taken = "profile_mnemocode"
	case c.byLoginID(a.phone) != nil, c.byLoginID(a.email) != nil, c.byLoginID(a.loginName) != nil:
		taken = "a login id"
	case a.subject != "" && c.find(func(b *modelAccount) bool { return b.subject == a.subject }) != nil:
		taken = "oauth_identities"
	}
	_, err := m.admin(t, c).Create(t.Context(), manage.Change{
		Password: a.password, Answer: a.answer,
		Apply: func(x *record.Account) error {
			x.Mnemocode, x.Phone, x.Email, x.LoginName = a.mnemocode, a.phone, a.email, a.loginName
			x.SecondFactor, x.MustSetPassword, x.Question = a.secondFactor, a.mustSet, a.question
			if a.subject != "" {
				x.Identities = []record.Identity{{Provider: 1, Subject: a.subject}}
			}
			return nil
		},
	})
	t.Logf("> create %s %+v: %v", c.Code, *a, err)
	m.wantTakenIf(t, err, taken != "")
	if taken == "" {
		c.accounts = append(c.accounts, a)
	}
}

func (m *machine) wantTakenIf(t *rapid.T, err error, taken bool) {
	t.Helper()
	if m.didNotAnswer(err) {
		return
	}
	if _, is := errors.AsType[*record.TakenError](err); is != taken || err != nil && !is {
		t.Fatalf("got %v, want it taken: %v", err, taken)
	}
}

// administer performs one action of an administrator.
func (m *machine) administer(t *rapid.T) {
	c := pick(t, "company", m.companies...)
	action := pick(t, "action", "change", "change", "change", "app", "no app", "backup codes", "create", "unlock", "end sessions", "end the company's", "forget devices", "forget a device", "delete")
	if action == "create" || len(c.accounts) == 0 {
		m.create(t, c)
		return
	}
	a := pick(t, "account", c.accounts...)
	ad := m.admin(t, c)
	t.Log("> ", action, " ", c.Code, " ", a.mnemocode)
	var err error
	switch action {
	case "change":
		m.change(t, c, a, ad)
	case "unlock":
		_, err = ad.Unlock(t.Context(), a.mnemocode)
		a.modelAttempts = modelAttempts{}
		for _, attempts := range c.public(a) {
			*attempts = modelAttempts{}
		}
	case "end sessions":
		err = ad.EndSessions(t.Context(), a.mnemocode)
		m.endAll(a)
	case "end the company's":
		err = ad.EndAllSessions(t.Context())
		m.endThose(func(s *modelSession) bool { return s.company == c })
		for _, a := range c.accounts {
			m.endDevices(a)
		}
		m.forgetBarred(func(s *modelSession) bool { return s.company == c })
	case "backup codes":
		a.backup, err = ad.NewBackupCodes(t.Context(), a.mnemocode)
	case "app":
		err = m.app(t, ad, a)
	case "no app":
		_, err = ad.RemoveTOTP(t.Context(), a.mnemocode, "")
		if a.app != nil {
			m.endAll(a)
		}
		a.app = nil
	case "forget devices":
		err = ad.ForgetDevices(t.Context(), a.mnemocode, "")
		m.endDevices(a)
	case "forget a device":
		err = m.forget(t, ad, a)
	case "delete":
		err = ad.Delete(t.Context(), a.mnemocode, nil)
		m.endAll(a)
		m.forgetBarred(func(s *modelSession) bool { return s.barred == a })
		c.accounts = slices.DeleteFunc(c.accounts, func(b *modelAccount) bool { return a == b })
	}
	m.noError(t, err)
}

// forget removes one of the account's devices.
func (m *machine) forget(t *rapid.T, ad *manage.Admin, a *modelAccount) error {
	stored, err := ad.ByMnemocode(t.Context(), a.mnemocode)
	if err != nil {
		return err
	}
	devices, err := ad.LiveDevices(t.Context(), stored)
	if err != nil || len(devices) == 0 {
		return err
	}
	gone := pick(t, "device", devices...)
	for _, d := range m.devices {
		d.ended = d.ended || record.HashToken(d.token) == gone.Hash
	}
	return ad.ForgetDevices(t.Context(), a.mnemocode, gone.ID)
}

// app gives the account an authenticator app. The code that confirms the app can't
// be used to log in.
func (m *machine) app(t *rapid.T, ad *manage.Admin, a *modelAccount) error {
	made, err := ad.NewTOTP(t.Context(), a.mnemocode)
	if err != nil {
		return err
	}
	secret, err := tokens.ParseTOTPSecret(made.Secret)
	if err != nil {
		return err
	}
	if _, err = ad.ConfirmTOTP(t.Context(), a.mnemocode, appCode(secret, m.now), ""); err != nil {
		return err
	}
	m.endAll(a)
	a.app, a.used = secret, map[int64]bool{m.now.Unix() / 30: true}
	return nil
}

// didNotAnswer ends the sequence if err says that a server did not answer.
func (m *machine) didNotAnswer(err error) bool {
	m.cut = m.cut || m.servers && (errors.Is(err, wire.ErrUnavailable) || errors.Is(err, manage.ErrRevocationPending))
	return m.cut
}

func (m *machine) noError(t *rapid.T, err error) {
	t.Helper()
	if !m.didNotAnswer(err) && err != nil {
		t.Fatal(err)
	}
}

// change changes one field. A new status, password, phone, email or second factor
// revokes all sessions of the account.
func (m *machine) change(t *rapid.T, c *modelCompany, a *modelAccount, ad *manage.Admin) {
	before, ch := *a, manage.Change{}
	defer func() { t.Logf("< %+v", *a) }()
	field := pick(t, "field", "status", "primary_phone", "primary_email", "login_name", "second_factor",
		"must_set_password", "password", "no password", "control_question")
	switch field {
	case "status":
		a.status = pick(t, field, record.StatusActive, record.StatusActive, record.StatusRestricted, record.StatusClosed, record.StatusDenied)
	case "primary_phone":
		a.phone = pick(t, field, append([]string{""}, machinePhones...)...)
	case "primary_email":
		a.email = pick(t, field, append([]string{""}, machineEmails...)...)
	case "login_name":
		a.loginName = pick(t, field, append([]string{""}, machineNames...)...)
	case "second_factor":
		a.secondFactor = rapid.Bool().Draw(t, field)
	case "must_set_password":
		a.mustSet = rapid.Bool().Draw(t, field)
	case "password":
		a.password = pick(t, field, machinePasswords...)
		ch.Password = a.password
	case "no password":
		a.password = ""
	case "control_question":
		a.question, a.answer = "Your cat?", pick(t, field, machineAnswers...)
		ch.Answer = a.answer
	}
	other := func(id string) bool {
		b := c.find(func(b *modelAccount) bool {
			return b != a && id != "" && (b.phone == id || b.email == id || b.loginName == id)
		})
		return b != nil
	}
	taken := other(a.phone) || other(a.email) || other(a.loginName)
	ch.Apply = func(x *record.Account) error {
		x.Status, x.Phone, x.Email, x.LoginName = a.status, a.phone, a.email, a.loginName
		x.SecondFactor, x.MustSetPassword, x.Question = a.secondFactor, a.mustSet, a.question
		if a.password == "" {
			x.PasswordHash = ""
		}
		return nil
	}
	call := &modelCall{path: "change of " + field}
	m.watch(t, call, func() error {
		_, _, err := ad.Change(t.Context(), a.mnemocode, ch)
		m.wantTakenIf(t, err, taken)
		return nil
	})
	var want modelAnswer
	switch {
	case taken:
		*a = before
	case field == "password":
		want.Sent = m.notice(c, message.NoticePasswordChanged, &before)
		a.passwords = modelCount{}
		for _, attempts := range c.public(a) {
			attempts.passwords = modelCount{}
		}
		m.endAll(a)
	case a.status != before.status:
		m.statusChanged(a, before.status)
	case a.password != before.password: // it was removed
		want.Sent = m.notice(c, message.NoticePasswordChanged, &before)
		m.endAll(a)
	case a.phone != before.phone, a.email != before.email, a.secondFactor != before.secondFactor:
		m.endAll(a)
	}
	m.compare(t, call, want)
}

// look compares an account in the store with the model.
func (m *machine) look(t *rapid.T) {
	c := pick(t, "company", m.companies...)
	if len(c.accounts) == 0 {
		t.Skip("no account")
	}
	a := pick(t, "account", c.accounts...)
	ad := m.admin(t, c)
	stored, err := ad.ByMnemocode(t.Context(), a.mnemocode)
	m.noError(t, err)
	accepted, wantedAccepted := map[string]string{}, map[string]string{}
	for _, x := range stored.Accepted {
		accepted[x.Code] = x.Version
	}
	for code, x := range a.accepted {
		wantedAccepted[code] = x.version
	}
	failures, err := ad.Accounts.FailureCounts(t.Context(), record.FailureKey{Company: c.Code, Account: stored.ID})
	m.noError(t, err)
	live, err := ad.LiveSessions(t.Context(), a.mnemocode)
	m.noError(t, err)
	known, err := ad.LiveDevices(t.Context(), stored)
	m.noError(t, err)
	devices, wantedDevices := map[record.TokenHash]int{}, map[record.TokenHash]int{}
	for _, d := range known {
		devices[d.Hash] = d.Failures
	}
	for _, d := range m.devices {
		if d.account == a && d.lives(m.now) {
			wantedDevices[record.HashToken(d.token)] = d.passwords.n
		}
	}
	sessions := map[record.TokenHash]bool{}
	for _, s := range live {
		sessions[s.Hash] = true
	}
	wanted := map[record.TokenHash]bool{}
	for _, s := range m.sessions {
		hash := record.TokenHash(sha256.Sum256([]byte(s.token)))
		if s.account != a || s.ended || s.expired || s.state == record.MailedLink || s.state == record.CheckPassword || !m.now.Before(s.expires) ||
			c.Hardened && s.state == record.RecoveryOTP {
			continue
		}
		if (s.overLimit || s.passed || s.forgotten || !m.now.Before(s.early)) && !sessions[hash] {
			continue
		}
		wanted[hash] = true
	}
	if m.cut {
		return
	}
	type facts struct {
		Accepted                  map[string]string
		Backup                    int
		MustSet                   bool
		Passwords, Codes, Answers int
		Sessions                  map[record.TokenHash]bool
		Devices                   map[record.TokenHash]int // with their wrong passwords
	}
	want := facts{wantedAccepted, len(a.backup), a.mustSet, a.passwords.n, a.codes.n, a.answers.n, wanted, wantedDevices}
	got := facts{accepted, stored.BackupCodes, stored.MustSetPassword, failures[record.WrongPasswords].Count,
		failures[record.WrongCodes].Count, failures[record.WrongAnswers].Count, sessions, devices}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-model +store):\n%s", a.mnemocode, diff)
	}
}
