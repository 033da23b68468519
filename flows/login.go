package flows

import (
	"context"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type loginRequest struct {
	LoginID     string `json:"login_id" max:"254" need:"y"`
	DeviceToken string `json:"device_token" max:"128"`
}

// login issues the first token of a login (interface, Endpoints 1).
func (s *Service) login(ctx context.Context, c *session.Call, req *loginRequest) (Reply, error) {
	a, loginIDHash, err := c.FindAccount(ctx, req.LoginID)
	if err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	if c.Company.Hardened {
		reply, err := s.loginHardened(ctx, c, a, loginIDHash)
		reply.LoginID = hardenedPhone(c.Company, req.LoginID)
		return reply, err
	}
	if err := c.FindDevice(ctx, a, req.DeviceToken); err != nil {
		return Reply{}, err
	}
	_, failures, err := c.PublicFailures(ctx, a, "")
	if err != nil {
		return Reply{}, err
	}
	passwords := failures[record.WrongPasswords]
	state, err := loginState(c, a, passwords)
	if err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	if a.ID == 0 {
		if err := c.CountAddressFailure(ctx); err != nil {
			return Reply{}, err
		}
		return Reply{}, wire.ErrLoginIDNotFound
	}
	pending := c.Pending(a, nil)
	reply, err := issued(c.Enter(ctx, session.Step{Account: a, State: state, Lists: pending, Counters: c.AddressCounters()}))
	if phone := c.Company.ReadPhone(req.LoginID); phone == a.Phone && phone != req.LoginID {
		reply.LoginID = phone
	}
	reply.DisclaimersRequired = pending
	reply.CaptchaRequired = state == record.CheckPassword && c.CaptchaDue(passwords)
	return reply, err
}

// hardenedPhone returns a phone as mnemogate read it, or "" if the user wrote it so. It
// also returns "" for plain digits, which may be a login name: otherwise the answer would
// reveal whether that login name exists.
func hardenedPhone(company *tenant.Company, text string) string {
	phone := company.ReadPhone(text)
	if phone == text || typed.Phone(text, "") == "" && !strings.ContainsAny(strings.TrimSpace(text), " ()/") {
		return ""
	}
	return phone
}

// loginState returns the state in which a login begins. passwords counts wrong passwords.
// An unknown login id is locked like one of an account with a password.
func loginState(c *session.Call, a record.Account, passwords record.FailureCount) (record.State, error) {
	byCode := a.ID != 0 && a.PasswordHash == ""
	if byCode {
		passwords.Count = 0 // wrong passwords lock the account for a time, but there is no password to disable
	}
	if err := c.CheckPasswords(passwords); err != nil {
		return record.None, err
	}
	if byCode {
		if err := c.CheckCodes(a); err != nil {
			return record.None, err
		}
	}
	if a.ID == 0 {
		return record.CheckPassword, nil
	}
	if err := tenant.CheckStatus(a); err != nil {
		return record.None, err
	}
	switch {
	case !byCode:
		return record.CheckPassword, nil
	case a.Phone == "":
		return record.None, session.ErrNoSecondFactor
	default:
		return record.CheckOTP, nil
	}
}
