package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkPasswordRequest struct {
	Password          string   `json:"password" max:"128" need:"y"`
	CaptchaResponse   string   `json:"captcha_response" max:"4096"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
}

// checkPassword takes the password of a login (interface, Endpoints 2).
func (s *Service) checkPassword(ctx context.Context, c *call, req *checkPasswordRequest) (Reply, error) {
	a, err := s.account(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	attempt := passwordAttempt{
		account:  a,
		alias:    c.session.LoginID,
		password: req.Password,
		captcha:  req.CaptchaResponse,
		wrong:    wire.ErrPasswordInvalid,
	}
	if a.ID != 0 && !c.Company.Hardened {
		attempt.before = tenant.Admitted(a)
	}
	if err := s.tryPassword(ctx, c, attempt); err != nil {
		return Reply{}, err
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	accepted, err := c.accept(a, req.AcceptDisclaimers)
	if err != nil {
		return Reply{}, err
	}
	return s.after(ctx, c, step{account: a, accepted: accepted}, false)
}

// A passwordAttempt is what checkpassword and checkcredentials have in common.
type passwordAttempt struct {
	account  record.Account // empty but for Tallies for an unknown login id
	alias    string         // of the login id that was sent; in a hardened company of a known one, too
	password string
	captcha  string
	before   error       // what refuses the attempt once rates, locks and captcha let it through
	wrong    *wire.Error // what a wrong password is called
}

// tryPassword looks at rates and locks, the captcha, then the password. An
// account without one, or none at all, costs the time of a wrong password.
func (s *Service) tryPassword(ctx context.Context, c *call, t passwordAttempt) error {
	subject, tallies, err := c.Shown(ctx, t.account, t.alias)
	if err != nil {
		return err
	}
	wrong := tallies[record.WrongPasswords]
	locked, due := c.CheckPasswords(wrong), c.CaptchaDue(wrong)
	if locked != nil || due || t.before != nil { // else BeginLogin does, in one step
		if err := c.CheckLogins(ctx); err != nil {
			return err
		}
	}
	if locked != nil {
		return locked
	}
	if due {
		if err := s.solveCaptcha(ctx, c, t.captcha); err != nil {
			return err
		}
	}
	if t.before != nil {
		return t.before
	}
	return s.comparePassword(ctx, &c.Attempt, t, subject, due)
}

// TryPassword looks at rates and locks, then the password, of an account that its
// caller knows: nothing of it is to be hidden. A wrong one is wire.ErrPasswordInvalid.
func (s *Service) TryPassword(ctx context.Context, at *limits.Attempt, a record.Account, typed string) error {
	if err := at.CheckPasswords(a.Tallies[record.WrongPasswords]); err != nil {
		return err
	}
	return s.comparePassword(ctx, at, passwordAttempt{account: a, password: typed, wrong: wire.ErrPasswordInvalid}, at.Subject(a, ""), true)
}

// comparePassword is the attempt itself, which counts for subject. solved tells
// that no captcha is due any more.
func (s *Service) comparePassword(ctx context.Context, at *limits.Attempt, t passwordAttempt, subject record.Subject, solved bool) error {
	if err := at.BeginLogin(ctx); err != nil {
		return err
	}
	ok, stale, err := s.verifyPassword(ctx, at, t.account, t.password)
	if err != nil {
		return wire.Unavailable("checking the password", err)
	}
	if at.Company.Hardened && t.alias != "" { // else subject is the account itself
		if ok, err = at.SettleHidden(ctx, at.Hidden(t.account, t.alias), ok); err != nil {
			return err
		}
	}
	captcha, err := at.SettlePassword(ctx, subject, ok, solved)
	if err != nil {
		return err
	}
	if !ok {
		return &wire.Refusal{Err: t.wrong, Captcha: captcha}
	}
	if stale {
		s.rehash(ctx, at, t.account, password.Normalize(t.password))
	}
	return nil
}

// verifyPassword reports whether a password is right, and whether its hash should
// be replaced.
func (s *Service) verifyPassword(ctx context.Context, at *limits.Attempt, a record.Account, typed string) (ok, stale bool, err error) {
	if a.PasswordHash == record.AskedElsewhere {
		ok, err = s.verifyElsewhere(ctx, at, a, typed)
		return ok, ok, err
	}
	return s.Hasher.Verify(ctx, at.Turn(), at.Company.Password.Argon2id, a.PasswordHash, password.Forms(typed)...)
}

// rehash replaces a weaker hash of a password that was right. Nobody has changed
// the account by that, so Updated stays. If it fails, the next login tries again.
func (s *Service) rehash(ctx context.Context, at *limits.Attempt, a record.Account, password string) {
	hash, err := s.Hasher.Hash(ctx, at.Turn(), at.Company.Password.Argon2id, password)
	if err == nil {
		_, err = s.Accounts.Update(ctx, at.Company.Code, a.ID, func(now *record.Account) (ends bool, err error) {
			if now.PasswordHash != a.PasswordHash {
				return false, record.ErrConflict // another password, or rehashed by another login
			}
			now.PasswordHash = hash
			return false, nil
		})
	}
	if err != nil {
		s.Log.Warn("a weak password hash was not replaced", "company", at.Company.Code, "account", a.Mnemocode, "error", err)
	}
}
