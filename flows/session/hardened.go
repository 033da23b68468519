package session

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"strings"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// hardened does not reveal to strangers which accounts exist (contract, section 4,
// hardened). It answers an unknown login id like a known one, with a decoy: a session of
// account 0 that cannot succeed.
//
// Strangers can cause locks and use up budgets, so they can observe counts. Therefore
// each login id, known or not, has public counts, which are kept under its login id hash.
// The private counts of an account include attempts with any of its login ids. They also
// apply, but show only to users who prove a secret of the account.
//
// Sessions that strangers can't begin (see anyones) are treated as by open.
type hardened struct{ open }

// anyones reports whether strangers can begin a session in this state for any login id.
func anyones(state record.State) bool {
	return state == record.CheckPassword || state == record.RecoveryOTP
}

// toStranger reports whether the call's client may be anyone.
func (c hardened) toStranger() bool { return c.session == nil || anyones(c.session.State) }

// StandIn returns a decoy for an account without a password that can't log in at all. Any
// other such account logs in by a code, which shows that it exists.
func (c hardened) StandIn(a record.Account) record.Account {
	noCode := a.Phone == "" || !c.Company.DeliversTo(a.Phone) && a.BackupCodes == 0
	if a.LogsInByCode() && (noCode || tenant.CheckStatus(a) != nil) {
		return record.Account{CompanyGeneration: a.CompanyGeneration}
	}
	return a
}

func (hardened) Admit(context.Context, record.Account) error { return nil }

func (c hardened) Status(a record.Account) error {
	if c.toStranger() {
		return nil
	}
	return c.open.Status(a)
}

func (c hardened) Counts(ctx context.Context, a record.Account, loginIDHash string) (Counts, error) {
	if !c.toStranger() {
		return c.open.Counts(ctx, a, loginIDHash)
	}
	// An unknown login id has a private key that belongs to no account, so that counting
	// takes the same time.
	counts := Counts{Key: c.FailureKey(record.Account{}, loginIDHash), Private: c.FailureKey(a, loginIDHash+"/private")}
	var err error
	if counts.Now, err = c.FailureCounts.FailureCounts(ctx, counts.Key); err != nil {
		err = wire.Unavailable("loading the counts of wrong attempts", err)
	}
	return counts, err
}

// Pending returns all disclaimers until the client proves a secret of the account.
func (c hardened) Pending(a record.Account, state record.State) []wire.Disclaimer {
	if !proven(a, state) {
		return c.Call.Pending(record.Account{}, nil)
	}
	return c.open.Pending(a, state)
}

// proven reports whether a client must have proven a secret of the account to reach a state.
func proven(a record.Account, state record.State) bool {
	switch state {
	case record.CheckOTP:
		return a.PasswordHash != ""
	case record.RecoveryQuestion:
		return false
	}
	return !anyones(state)
}

func (c hardened) RecoveryMethod(wanted tenant.Method, found record.Account) (record.Account, tenant.Method, error) {
	return c.Company.BlindRecoveryMethod(wanted, found)
}

// MailLink does not reveal whether there is an account. It charges the budget of the login id
// that was sent. After the answer, it charges the budget of the account and mails the link,
// which is stored first, because nobody would see that a mailed link does not work.
func (c hardened) MailLink(ctx context.Context, a record.Account, loginIDHash string) error {
	if err := c.Charge(ctx, c.AccountMails(limits.DecoyBudget(loginIDHash), message.RecoveryLink)...); err != nil {
		return err
	}
	if a.ID == 0 {
		return nil
	}
	c.m.sendDelayed(ctx, c.Company, a, message.RecoveryLink, func(ctx context.Context) error {
		err := c.m.chargePrivate(ctx, c.about(a), c.AccountMails(strconv.FormatInt(a.ID, 10), message.RecoveryLink)...)
		if errors.Is(err, errBudgetSpent) {
			return nil
		}
		if err != nil {
			return err
		}
		link, message := c.newLink(a, message.RecoveryLink)
		if err := c.store(ctx, link); err != nil {
			return err
		}
		err = panics.Contain(func() error { return c.m.send(ctx, c.Company, a, message) })
		if err != nil {
			c.abandon(ctx, link.Hash)
		}
		return err
	})
	return nil
}

// Shown shows nothing but what the client has sent. It invents no phone, because an
// invented one could be told from those of the company's users, for example by its country.
func (c hardened) Shown(loginID string, _ record.Account) Shown {
	phone := typed.Phone(loginID, c.Company.PhoneRegion)
	shown := Shown{Phone: record.MaskPhone(phone), Email: "***@***"}
	if strings.Contains(typed.LoginID(loginID, ""), "@") {
		shown.Email = strings.TrimSpace(loginID)
	}
	// Plain digits may be a login name. To show how they were read would reveal whether
	// that login name exists.
	if phone != loginID && (typed.Phone(loginID, "") != "" || strings.ContainsAny(strings.TrimSpace(loginID), " ()/")) {
		shown.LoginID = phone
	}
	return shown
}

// began also knows that there are no control questions.
func (hardened) began(s record.Session) bool {
	return s.State != record.RecoveryQuestion && (!anyones(s.State) || s.LoginID != "")
}

// loginID keeps what the public counts need.
func (hardened) loginID(state record.State, loginIDHash string) string {
	if anyones(state) {
		return loginIDHash
	}
	return ""
}

// place makes the session of a recovery a decoy for the store, with the ID of its account
// as Mnemocode. Otherwise it would be in the bucket of its account, which a client can
// compute from the token: one bucket for all login ids of the account, for as long as it can
// be recovered.
func (c hardened) place(s *record.Session) int {
	if !anyones(s.State) {
		return c.open.place(s)
	}
	if s.Account != 0 {
		s.Account, s.Mnemocode = 0, strconv.FormatInt(s.Account, 10)
	}
	return record.HashToken(s.LoginID).Bucket()
}

// reveal undoes place, except for the Mnemocode. It reports whether the store has the
// session as a decoy's.
func reveal(s *record.Session) bool {
	if s.Account != 0 || s.Mnemocode == "" {
		return false
	}
	s.Account, _ = strconv.ParseInt(s.Mnemocode, 10, 64) // no error: place has formatted it
	s.Mnemocode = ""
	return true
}

// prepare makes the code of a decoy one that nothing matches. A code uses up the budgets of
// the login id, those of the company it only checks; deliver charges those of the account.
func (c hardened) prepare(code *record.Code, st Step, fixed bool) ([]record.Counter, error) {
	if !anyones(st.State) {
		return c.open.prepare(code, st, fixed)
	}
	if code.Phone = ""; st.Account.ID == 0 { // the phone is part of the hash
		rand.Read(code.Hash[:])
	}
	of := limits.DecoyBudget(st.LoginIDHash)
	return append(c.CountSMS(of, of), record.CheckOnly(c.CompanySMS()...)...), nil
}

// deliver sends the code of a recovery after the answer, which must not reveal it. It does
// as much for a decoy.
func (c hardened) deliver(ctx context.Context, st Step, session record.TokenHash, code newCode) error {
	if !anyones(st.State) {
		return c.open.deliver(ctx, st, session, code)
	}
	if code.send != nil {
		code.send = c.withinPrivate(st.Account, code.send)
	}
	c.sendLater(ctx, st.Account, session, code)
	return nil
}

func (c hardened) replaceCode(ctx context.Context, st Step, code newCode) error {
	if !anyones(st.State) {
		return c.open.replaceCode(ctx, st, code)
	}
	if err := c.setCode(ctx, code.stored); err != nil {
		return err
	}
	return c.deliver(ctx, st, c.session.Hash, code)
}

// sendLater sends the code of a recovery after the answer. If that fails, the code
// becomes void.
func (c hardened) sendLater(ctx context.Context, a record.Account, session record.TokenHash, code newCode) {
	c.m.sendDelayed(ctx, c.Company, a, message.OTPRecovery, func(ctx context.Context) error {
		if code.send == nil {
			return nil
		}
		err := panics.Contain(func() error { return code.send(ctx) })
		if err == nil {
			return nil
		}
		void := c.voidCode(ctx, session, code.stored)
		if errors.Is(err, errBudgetSpent) {
			return void
		}
		return errors.Join(err, void)
	})
}

// voidCode replaces a code that was not sent with one that nothing matches, unless the
// code was spent. Guesses then count as they do for a decoy.
func (c hardened) voidCode(ctx context.Context, hash record.TokenHash, unsent *record.Code) error {
	session, err := c.m.Sessions.SpendCode(ctx, c.m.Now(), c.Company.Code, hash, record.RecoveryOTP)
	if errors.Is(err, record.ErrNotFound) {
		return nil
	}
	if err != nil || session.Code == nil {
		return err
	}
	code := *session.Code
	if code.Hash == unsent.Hash { // otherwise it is the code of a renewal, which is put back
		rand.Read(code.Hash[:])
	}
	err = c.m.Sessions.SetCode(ctx, c.m.Now(), hash, record.RecoveryOTP, code, true)
	if errors.Is(err, record.ErrConflict) { // the session was revoked, or a renewal has set its code meanwhile
		return nil
	}
	return err
}

// revoked continues with a decoy where strangers can begin the session, so that they don't
// learn that the account exists. A password may show its status; a code that was sent before
// shows nothing.
func (c hardened) revoked(state record.State, a record.Account, status error) (record.Account, error) {
	switch {
	case status != nil && state == record.CheckPassword:
		return a, nil
	case anyones(state):
		return record.Account{CompanyGeneration: a.CompanyGeneration}, nil
	case !proven(a, state):
		return record.Account{}, wire.ErrTokenInvalid
	}
	return c.open.revoked(state, a, status)
}

// withinPrivate returns a function that calls send if the account's own budgets and
// locks allow it.
func (c hardened) withinPrivate(a record.Account, send func(context.Context) error) func(context.Context) error {
	budgets := append(c.AccountSMS(strconv.FormatInt(a.ID, 10), a.Phone), c.CompanySMS()...)
	country, full := c.CountrySMS(a.Phone)
	budgets = append(budgets, country...)
	locked := c.CheckCodes(a.FailureCounts) != nil
	return func(ctx context.Context) error {
		if locked {
			return errBudgetSpent
		}
		if full != nil {
			return c.m.spentPrivate(ctx, c.about(a), full)
		}
		if err := c.m.chargePrivate(ctx, c.about(a), budgets...); err != nil {
			return err
		}
		return send(ctx)
	}
}

// about returns an event of the call's client and an account that the answer may not reveal.
func (c hardened) about(a record.Account) record.Event {
	e := c.ClientEvent("")
	e.Company, e.Account, e.Mnemocode, e.Country = c.Company.Code, a.ID, a.Mnemocode, c.country
	return e
}
