package flows

import "context"

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
		subject:  c.known(a),
		password: req.Password,
		captcha:  req.CaptchaResponse,
		wrong:    ErrPasswordInvalid,
	}
	if a.ID != 0 {
		attempt.before = admitted(a)
	}
	if err := s.tryPassword(ctx, c, attempt); err != nil {
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
	account  Account // empty but for Tallies for an unknown login id
	subject  Subject
	password string
	captcha  string
	before   error  // what refuses the attempt once rates, locks and captcha let it through
	wrong    *Error // what a wrong password is called
}

// tryPassword looks at rates and locks, the captcha, then the password. An
// account without one, or none at all, costs the time of a wrong password.
func (s *Service) tryPassword(ctx context.Context, c *call, t passwordAttempt) error {
	if err := s.checkAddress(ctx, c); err != nil {
		return err
	}
	wrong := t.account.Tallies[WrongPasswords]
	if err := c.checkPasswords(wrong); err != nil {
		return err
	}
	due := c.captchaDue(wrong)
	if due {
		if err := s.solveCaptcha(ctx, c, t.captcha); err != nil {
			return err
		}
	}
	if t.before != nil {
		return t.before
	}
	password := normalizePassword(t.password)
	ok, stale, err := s.Hasher.Verify(ctx, c.company.Code, c.company.Password.Argon2id, t.account.PasswordHash, password)
	if err != nil {
		return unavailable("checking the password", err)
	}
	captcha, err := s.settlePassword(ctx, c, t.subject, ok, due)
	if err != nil {
		return err
	}
	if !ok {
		return &Refusal{Err: t.wrong, Captcha: captcha}
	}
	if stale {
		s.rehash(ctx, c, t.account, password)
	}
	return nil
}

// rehash replaces a weaker hash of a password that was right. If it fails, the
// next login tries again.
func (s *Service) rehash(ctx context.Context, c *call, a Account, password string) {
	hash, err := s.Hasher.Hash(ctx, c.company.Code, c.company.Password.Argon2id, password)
	if err == nil {
		err = s.Accounts.Rehash(ctx, c.company.Code, a.ID, a.PasswordHash, hash)
	}
	if err != nil {
		s.Log.Warn("a weak password hash was not replaced", "company", c.company.Code, "account", a.Mnemocode, "error", err)
	}
}
