package manage

import (
	"context"
	"errors"
	"fmt"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Finding is what stands in the way of a login, or a step of it.
type Finding struct {
	Answer  error // what the login answers, even with the right secrets; nil for a step
	Message string
	Advice  string
}

// Explain says what becomes of a login with the login id, as a user types it, by a client
// that is no known device. If address is empty, it leaves out the limits of addresses. It
// checks what a login checks, in the same order, so the first Answer is that of a login with
// the right password or, if the account has none, of the first step. It counts nothing.
func (ad *Admin) Explain(ctx context.Context, loginID, address string) ([]Finding, error) {
	c, err := ad.CallOf(ctx, ad.Company, "", session.Client{Address: address})
	if err != nil {
		return nil, err
	}
	c.Reported, c.NoAddress = nil, address == ""
	a, loginIDHash, err := c.FindAccount(ctx, loginID)
	if errors.Is(err, wire.ErrValidation) {
		return nil, &FieldError{"login_id", "it has no visible characters"}
	}
	if err != nil {
		return nil, err
	}
	counts, err := c.PasswordCounts(ctx, a, loginIDHash)
	if err != nil {
		return nil, err
	}
	e := explanation{}
	byCode := a.LogsInByCode()
	wrong := counts.Now[record.WrongPasswords]
	check := c.CheckLogins
	if byCode {
		wrong.Count = 0        // there is no password to disable
		check = c.CheckAddress // the first step counts no login
	}
	e.add(check(ctx), "the address has reached a limit", "see 'Shared addresses' in docs/operators.md")
	e.locked(c.CheckPasswords(wrong), a.ID != 0)
	if a.ID == 0 {
		e.add(wire.ErrCredentialsInvalid, "no account has this login id", "'account list --contains' finds similar ones")
		return e.found, e.err
	}
	e.step(fmt.Sprintf("the account is %s, with passkeys: %d, users of OAuth providers: %d", a.Mnemocode, a.Passkeys, len(a.Identities)))
	if c.Company.CaptchaDue(wrong) && !byCode {
		e.step("the password needs a captcha")
	}
	if counts.HasPrivate() && !byCode { // of a hardened company
		private := c.CheckPasswords(a.FailureCounts[record.WrongPasswords])
		if wire.ReasonOf(private) == "lock.disabled" {
			private = wire.ErrCredentialsInvalid
		}
		e.add(private, "passwords of the account are locked, whichever login id it is", unlock)
	}
	if byCode {
		e.add(c.CheckCodes(a.FailureCounts), "codes are locked", unlock)
	} else if !ad.Company.HasPassword(a) {
		e.add(wire.ErrCredentialsInvalid, "only another system knows the password, and password migrate is not configured", "let the user set a password by recovery, or configure it again")
	}
	e.add(tenant.CheckStatus(a), "the status is "+string(a.Status), "'account set --status active' lets the user log in")
	if pending := c.Pending(a, nil); len(pending) > 0 {
		e.step(fmt.Sprintf("the user must accept disclaimers: %d", len(pending)))
	}
	if byCode || ad.Company.NeedsSecondFactor(a) {
		e.step("a code is due")
		e.code(ctx, c, a)
	}
	if ad.Company.PasswordDue(a) {
		e.step("the user must set a password")
	}
	return e.found, e.err
}

// An explanation collects findings. If a store did not answer, err says so.
type explanation struct {
	found []Finding
	err   error
}

const unlock = "'account unlock' ends the lock, if it was the owner"

func (e *explanation) add(answer error, message, advice string) {
	if wire.IsFailure(answer) {
		e.err = answer
	} else if answer != nil {
		e.found = append(e.found, Finding{answer, message, advice})
	}
}

// locked adds a lock of passwords. known says that the login id is an account's.
func (e *explanation) locked(lock error, known bool) {
	switch {
	case !known:
		e.add(lock, "passwords are locked", "'account unlock' can't end the lock of a login id without an account, which is forgotten a day after the last wrong password")
	case wire.ReasonOf(lock) == "lock.disabled":
		e.add(lock, "the password is disabled", "a recovery ends this or, if it was the owner, 'account unlock'")
	default:
		e.add(lock, "passwords are locked", unlock)
	}
}

func (e *explanation) step(message string) { e.found = append(e.found, Finding{Message: message}) }

// code adds what stands in the way of a code.
func (e *explanation) code(ctx context.Context, c *session.Call, a record.Account) {
	byCode := a.LogsInByCode()
	if !byCode {
		e.add(c.CheckCodes(a.FailureCounts), "codes are locked", unlock)
	}
	if byCode && a.Phone == "" {
		e.add(session.ErrNoSecondFactor, "the account has neither a password nor a phone", noPassword(a))
		return
	}
	other := "give the account an app or backup codes"
	if byCode { // then neither helps
		other = "let the user set a password by recovery or a welcome link"
	}
	blocked := c.CheckCode(ctx, a)
	switch _, listed := c.Company.Limits.Country(a.Phone); {
	case a.Phone == "" && c.Company.SMS == nil:
		e.add(blocked, "the account has no way to get the code", "give the account an app or backup codes, or configure sms and give it a phone")
	case a.Phone == "":
		e.add(blocked, "the account has no way to get the code", "give the account a phone, an app or backup codes")
	case !c.Company.DeliversTo(a.Phone):
		e.add(blocked, "the account has no way to get the code, since the company has no sms", "configure sms, or "+other)
	case !c.Company.SendsCodesTo(a.Phone) && listed:
		e.add(blocked, "no SMS are sent to the country of "+a.Phone, "add it to countries of a gateway, or "+other)
	case !c.Company.SendsCodesTo(a.Phone):
		e.add(blocked, "no SMS are sent to the country of "+a.Phone, "add it to limits sms_countries, and to countries of a gateway, or "+other)
	case wire.ReasonOf(blocked) == "limit.sms_company" || wire.ReasonOf(blocked) == "limit.sms_country":
		e.add(blocked, "the company's budget of SMS is used up, so that others get none either", "if its users used it up, raise the limit and reload; otherwise see 'Someone pumps SMS' in docs/runbook.md")
	default:
		e.add(blocked, "no SMS can be sent to "+a.Phone+" now", "'account unlock' does not end this; until the limit does, "+other)
	}
}

// noPassword says how the owner of an account without a password and a phone can log in.
func noPassword(a record.Account) string {
	if a.HasCredential() {
		return "the user logs in with a passkey or at a provider; otherwise set a phone, or let the user set a password by recovery"
	}
	return "set a phone, or let the user set a password by recovery or a welcome link"
}
