package flows

import (
	"cmp"
	"context"
	"crypto/subtle"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkOTPRequest struct {
	OTP               string   `json:"otp" max:"16"`
	BackupCode        string   `json:"backup_code" max:"64"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
}

func (r *checkOTPRequest) bringsCode() bool { return r.OTP != "" && r.BackupCode == "" }

// checkOTP takes the SMS code or a backup code (interface, Endpoints 3).
func (s *Service) checkOTP(ctx context.Context, c *call, req *checkOTPRequest) (Reply, error) {
	if (req.OTP == "") == (req.BackupCode == "") {
		return Reply{}, wire.Invalid("Send exactly one of otp and backup_code.")
	}
	var st step
	var err error
	if req.OTP != "" {
		st, err = s.tryCode(ctx, c, req.OTP)
	} else {
		st, err = s.tryBackupCode(ctx, c, req.BackupCode)
	}
	if err != nil {
		return Reply{}, err
	}
	if st.accepted, err = c.accept(st.account, req.AcceptDisclaimers); err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	return s.after(ctx, c, st, true)
}

type recoveryCheckOTPRequest struct {
	OTP string `json:"otp" max:"16" need:"y"`
}

func (*recoveryCheckOTPRequest) bringsCode() bool { return true }

// recoveryCheckOTP takes the code of a recovery by phone (interface, Endpoints 11).
func (s *Service) recoveryCheckOTP(ctx context.Context, c *call, req *recoveryCheckOTPRequest) (Reply, error) {
	st, err := s.tryCode(ctx, c, req.OTP)
	if err != nil {
		return Reply{}, err
	}
	st.state = record.RecoveryPassword
	return s.enter(ctx, c, st)
}

// renewOTP sends another code (interface, Endpoints 4).
func (s *Service) renewOTP(ctx context.Context, c *call, _ *emptyRequest) (Reply, error) {
	a, err := s.renew(ctx, c)
	return Reply{UserPhone: record.MaskPhone(a.Phone)}, err
}

// recoveryRenewOTP sends another code (interface, Endpoints 12).
func (s *Service) recoveryRenewOTP(ctx context.Context, c *call, _ *emptyRequest) (Reply, error) {
	_, err := s.renew(ctx, c)
	return Reply{}, err
}

// codeAccount is the account of a step with codes, if rates, locks and its
// status let the step go on.
func (s *Service) codeAccount(ctx context.Context, c *call) (record.Account, error) {
	a, err := s.account(ctx, c)
	if err != nil {
		return record.Account{}, err
	}
	if err := c.CheckAddress(ctx); err != nil {
		return record.Account{}, err
	}
	return a, s.mayTryCode(ctx, c, a)
}

func (s *Service) mayTryCode(ctx context.Context, c *call, a record.Account) error {
	if c.hides() {
		_, tallies, err := c.Shown(ctx, a, c.session.LoginID)
		return cmp.Or(err, c.CheckCodes(record.Account{Tallies: tallies}))
	}
	return cmp.Or(c.CheckCodes(a), tenant.Admitted(a))
}

// spendCode returns a Sessions.Get that spends the code of a session in state,
// unless the address has failed too often: that is then told once it is known
// whose session it is.
func (s *Service) spendCode(c *call, state record.State) func(context.Context, record.TokenHash) (record.Session, error) {
	return func(ctx context.Context, hash record.TokenHash) (record.Session, error) {
		session, err := s.Sessions.SpendCode(ctx, c.Now, c.Company.Code, hash, state, c.AddressLook()...)
		if errors.As(err, &c.limited) {
			err = nil
		}
		return session, err
	}
}

// tryCode compares a code with the one that was sent, which has been spent by
// that. Only what is compared counts as an attempt. A right one is settled by
// what was read since it was spent: of codes, that they are not locked; of the
// address, by the step that is returned.
func (s *Service) tryCode(ctx context.Context, c *call, otp string) (step, error) {
	a, err := s.account(ctx, c)
	if err != nil {
		return step{}, err
	}
	if c.limited != nil {
		return step{}, c.Refused(c.limited)
	}
	if err := s.mayTryCode(ctx, c, a); err != nil {
		return step{}, err
	}
	if c.session.ByApp {
		return s.tryApp(ctx, c, a, otp)
	}
	code := c.session.Code
	if code == nil || !c.Now.Before(code.Expires) || code.Phone != a.Phone {
		return step{}, wire.ErrOTPInvalid
	}
	c.aboutSMS(a.Phone)
	sent := tokens.HashCode(c.token, c.session.State, a.Phone, otp)
	right := subtle.ConstantTimeCompare(sent[:], code.Hash[:]) == 1
	switch {
	case right && c.hides(): // what the account has been spared so far shows now
		err = cmp.Or(c.CheckCodes(a), tenant.Admitted(a))
	case right:
	case c.hides():
		err = c.CountWrongCode(ctx, c.Hidden(a, c.session.LoginID))
		err = cmp.Or(err, c.SettleWindow(ctx, c.Subject(record.Account{}, c.session.LoginID), record.WrongCodes, c.Company.Limits.WrongCodes, false))
	default:
		err = c.SettleWindow(ctx, c.Subject(a, ""), record.WrongCodes, c.Company.Limits.WrongCodes, false)
	}
	if err == nil && !right {
		err = wire.ErrOTPInvalid
	}
	return step{account: a, counters: c.AddressLook()}, err
}

// tryBackupCode finds the backup code that was sent. It stays usable until the
// step that is returned succeeds.
func (s *Service) tryBackupCode(ctx context.Context, c *call, sent string) (step, error) {
	a, err := s.codeAccount(ctx, c)
	if err != nil {
		return step{}, err
	}
	hashes, err := s.Accounts.BackupCodes(ctx, c.Company.Code, a.ID)
	if err != nil {
		return step{}, wire.Unavailable("loading the backup codes", err)
	}
	match, err := s.Hasher.Match(ctx, c.Turn(), c.Company.Password.Argon2id, hashes, record.NormalizeBackupCode(sent))
	if err != nil {
		return step{}, wire.Unavailable("checking the backup code", err)
	}
	err = c.SettleWindow(ctx, c.Subject(a, ""), record.WrongCodes, c.Company.Limits.WrongCodes, match != "")
	if err == nil && match == "" {
		err = wire.ErrBackupCodeInvalid
	}
	use := func(ctx context.Context) error { return s.useBackupCode(ctx, c, a, match) }
	return step{account: a, then: []func(context.Context) error{use}}, err
}

func (s *Service) useBackupCode(ctx context.Context, c *call, a record.Account, hash string) error {
	err := s.Accounts.UseBackupCode(ctx, c.Company.Code, a.ID, hash)
	if errors.Is(err, record.ErrConflict) {
		return wire.ErrBackupCodeInvalid // another login used it meanwhile
	}
	if err != nil {
		return wire.Unavailable("spending the backup code", err)
	}
	return nil
}

// renew replaces the code of the call's session. The one before it ends before
// the new one is sent, and neither the token nor its life changes. Of renewals
// that race, the last one's code counts.
func (s *Service) renew(ctx context.Context, c *call) (record.Account, error) {
	a, err := s.codeAccount(ctx, c)
	if err != nil {
		return record.Account{}, err
	}
	if c.session.State == record.CheckOTP && a.Phone == "" {
		return record.Account{}, wire.Invalid("The account has no phone that a code could be sent to.")
	}
	renewals := c.Counter("renewals", c.session.ID, tenant.Rate{N: *c.Company.OTP.Renewals, Per: time.Duration(c.Company.Session.Temporary)})
	same := step{account: a, decoyOf: c.session.LoginID, state: c.session.State}
	code, err := s.newCode(c, same, c.token)
	if err != nil {
		return record.Account{}, err
	}
	if code.stored != nil {
		if err := c.Charge(ctx, append([]record.Counter{renewals}, code.counters...)...); err != nil {
			return record.Account{}, err
		}
	}
	ctx = context.WithoutCancel(ctx) // a code that was sent must work, also if the client hung up meanwhile
	number, err := s.Sessions.OpenCode(ctx, c.Now, c.session.Hash, c.session.State)
	if errors.Is(err, record.ErrConflict) {
		return record.Account{}, wire.ErrTokenInvalid
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("ending the code before", err)
	}
	if c.Company.Hardened && c.session.State == record.RecoveryOTP {
		if err := s.setCode(ctx, c, number, code.stored); err != nil {
			return record.Account{}, err
		}
		s.sendLater(c.Company, a, c.session.Hash, code)
		return a, nil
	}
	if err := s.deliver(ctx, code); err != nil {
		return record.Account{}, err
	}
	return a, s.setCode(ctx, c, number, code.stored)
}

func (s *Service) setCode(ctx context.Context, c *call, number int64, code *record.Code) error {
	if code == nil {
		return nil // the account has backup codes only
	}
	err := s.Sessions.SetCode(ctx, c.session.Hash, number, *code)
	if err != nil && !errors.Is(err, record.ErrConflict) { // ErrConflict: a later renewal's counts
		return wire.Unavailable("storing the code", err)
	}
	return nil
}
