package flows

import (
	"context"
	"crypto/subtle"
	"errors"
	"strings"
)

type checkOTPRequest struct {
	OTP               string   `json:"otp" max:"16"`
	BackupCode        string   `json:"backup_code" max:"64"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
}

// checkOTP takes the SMS code or a backup code (interface, Endpoints 3).
func (s *Service) checkOTP(ctx context.Context, c *call, req *checkOTPRequest) (Reply, error) {
	if (req.OTP == "") == (req.BackupCode == "") {
		return Reply{}, invalid("Send exactly one of otp and backup_code.")
	}
	a, err := s.codeAccount(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	st := step{account: a}
	if req.OTP != "" {
		err = s.tryCode(ctx, c, a, req.OTP)
	} else {
		var used string
		used, err = s.tryBackupCode(ctx, c, a, req.BackupCode)
		st.and = append(st.and, func(ctx context.Context) error { return s.useBackupCode(ctx, c, a, used) })
	}
	if err != nil {
		return Reply{}, err
	}
	if st.accepted, err = c.accept(a, req.AcceptDisclaimers); err != nil {
		return Reply{}, err
	}
	return s.after(ctx, c, st, true)
}

type recoveryCheckOTPRequest struct {
	OTP string `json:"otp" max:"16" need:"y"`
}

// recoveryCheckOTP takes the code of a recovery by phone (interface, Endpoints 11).
func (s *Service) recoveryCheckOTP(ctx context.Context, c *call, req *recoveryCheckOTPRequest) (Reply, error) {
	a, err := s.codeAccount(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	if err := s.tryCode(ctx, c, a, req.OTP); err != nil {
		return Reply{}, err
	}
	return s.enter(ctx, c, step{account: a, state: RecoveryPassword})
}

// renewOTP sends another code (interface, Endpoints 4).
func (s *Service) renewOTP(ctx context.Context, c *call, _ *emptyRequest) (Reply, error) {
	a, err := s.renew(ctx, c)
	return Reply{UserPhone: maskPhone(a.Phone)}, err
}

// recoveryRenewOTP sends another code (interface, Endpoints 12).
func (s *Service) recoveryRenewOTP(ctx context.Context, c *call, _ *emptyRequest) (Reply, error) {
	_, err := s.renew(ctx, c)
	return Reply{}, err
}

// codeAccount is the account of a step with codes, if rates, locks and its
// status let the step go on.
func (s *Service) codeAccount(ctx context.Context, c *call) (Account, error) {
	a, err := s.account(ctx, c)
	if err != nil {
		return Account{}, err
	}
	if err := s.checkAddress(ctx, c); err != nil {
		return Account{}, err
	}
	if err := s.checkCodes(ctx, c, c.known(a)); err != nil {
		return Account{}, err
	}
	if a.ID != 0 {
		err = admitted(a)
	}
	return a, err
}

// checkCodes refuses while codes are locked.
func (s *Service) checkCodes(ctx context.Context, c *call, subject Subject) error {
	return s.checkAttempts(ctx, c, subject, WrongCodes, c.company.Limits.WrongCodes)
}

// tryCode compares a code with the one that was sent, which is spent by that.
// Only what is compared counts as an attempt.
func (s *Service) tryCode(ctx context.Context, c *call, a Account, otp string) error {
	code, err := s.Sessions.SpendCode(ctx, c.session.Hash)
	if err != nil {
		return unavailable("spending the code", err)
	}
	if code == nil || !c.now.Before(code.Expires) || code.Phone != a.Phone {
		return ErrOTPInvalid
	}
	sent := codeHash(c.token, c.session.State, a.Phone, otp)
	ok := subtle.ConstantTimeCompare(sent[:], code.Hash[:]) == 1
	err = s.settleWindow(ctx, c, c.known(a), WrongCodes, c.company.Limits.WrongCodes, ok)
	if err == nil && !ok {
		err = ErrOTPInvalid
	}
	return err
}

// tryBackupCode finds the hash of the backup code that was sent. It stays
// usable until the step succeeds.
func (s *Service) tryBackupCode(ctx context.Context, c *call, a Account, sent string) (string, error) {
	hashes, err := s.Accounts.BackupCodes(ctx, c.company.Code, a.ID)
	if err != nil {
		return "", unavailable("loading the backup codes", err)
	}
	match, err := s.Hasher.Match(ctx, c.company.Code, c.company.Password.Argon2id, hashes, normalizeBackupCode(sent))
	if err != nil {
		return "", unavailable("checking the backup code", err)
	}
	err = s.settleWindow(ctx, c, c.known(a), WrongCodes, c.company.Limits.WrongCodes, match != "")
	if err == nil && match == "" {
		err = ErrBackupCodeInvalid
	}
	return match, err
}

func (s *Service) useBackupCode(ctx context.Context, c *call, a Account, hash string) error {
	err := s.Accounts.UseBackupCode(ctx, c.company.Code, a.ID, hash)
	if errors.Is(err, ErrConflict) {
		return ErrBackupCodeInvalid // another login used it meanwhile
	}
	if err != nil {
		return unavailable("spending the backup code", err)
	}
	return nil
}

// normalizeBackupCode takes the code as people type it: with spaces and
// dashes, in any case.
func normalizeBackupCode(s string) string {
	return strings.NewReplacer(" ", "", "-", "").Replace(strings.ToUpper(s))
}

// renew replaces the code of the call's session. The one before it ends before
// the new one is sent, and neither the token nor its life changes. Of renewals
// that race, the last one's code counts.
func (s *Service) renew(ctx context.Context, c *call) (Account, error) {
	a, err := s.codeAccount(ctx, c)
	if err != nil {
		return Account{}, err
	}
	renewals := c.counter("renewals", c.session.ID, Rate{c.company.OTPRenewals, c.company.Temporary})
	same := step{account: a, decoyOf: c.session.LoginID, state: c.session.State}
	code, send, err := s.newCode(ctx, c, same, c.token, renewals)
	if err != nil {
		return Account{}, err
	}
	ctx = context.WithoutCancel(ctx) // a code that was sent must work, also if the client hung up meanwhile
	number, err := s.Sessions.OpenCode(ctx, c.now, c.session.Hash, c.session.State)
	if errors.Is(err, ErrConflict) {
		return Account{}, ErrTokenInvalid
	}
	if err != nil {
		return Account{}, unavailable("ending the code before", err)
	}
	if c.company.Hardened && c.session.State == RecoveryOTP {
		if err := s.setCode(ctx, c, number, code); err != nil {
			return Account{}, err
		}
		s.sendLater(c.session.Hash, send)
		return a, nil
	}
	if err := send(ctx); err != nil {
		return Account{}, unavailable("sending the code", err)
	}
	return a, s.setCode(ctx, c, number, code)
}

func (s *Service) setCode(ctx context.Context, c *call, number int64, code *Code) error {
	if code == nil {
		return nil // the account has backup codes only
	}
	err := s.Sessions.SetCode(ctx, c.session.Hash, number, *code)
	if err != nil && !errors.Is(err, ErrConflict) { // ErrConflict: a later renewal's counts
		return unavailable("storing the code", err)
	}
	return nil
}
