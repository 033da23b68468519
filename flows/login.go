package flows

import "context"

type loginRequest struct {
	LoginID string `json:"login_id" max:"254" need:"y"`
}

// login issues the first token of a login (interface, Endpoints 1).
func (s *Service) login(ctx context.Context, c *call, req *loginRequest) (Reply, error) {
	loginID := NormalizeLoginID(req.LoginID)
	if err := s.checkAddress(ctx, c); err != nil {
		return Reply{}, err
	}
	a, err := s.accountByLoginID(ctx, c, loginID)
	if err != nil {
		return Reply{}, err
	}
	subject, err := s.subject(ctx, c, a, loginID)
	if err != nil {
		return Reply{}, err
	}
	tallies, err := s.tallies(ctx, subject)
	if err != nil {
		return Reply{}, err
	}
	passwords := tallies[WrongPasswords]
	if a.ID != 0 && a.PasswordHash == "" {
		passwords.Count = 0 // strangers can lock the account, but there is no password to disable
	}
	if err := c.checkPasswords(passwords); err != nil {
		return Reply{}, err
	}
	if a.ID == 0 {
		return s.loginUnknown(ctx, c, subject.LoginID, tallies)
	}
	if err := admitted(a); err != nil {
		return Reply{}, err
	}
	state := CheckPassword
	if a.PasswordHash == "" {
		if a.Phone == "" {
			return Reply{}, ErrUserRestricted
		}
		if err := c.checkWindow(WrongCodes, tallies[WrongCodes], c.company.Limits.WrongCodes); err != nil {
			return Reply{}, err
		}
		state = CheckOTP
	}
	reply, err := s.enter(ctx, c, step{account: a, state: state})
	reply.DisclaimersRequired = c.company.pending(a, nil)
	reply.CaptchaRequired = state == CheckPassword && c.captchaDue(tallies[WrongPasswords])
	return reply, err
}

// loginUnknown answers for a login id that no account has: not found or, where
// the company is hardened, a decoy whose password is never right.
func (s *Service) loginUnknown(ctx context.Context, c *call, alias string, tallies map[Kind]Tally) (Reply, error) {
	if !c.company.Hardened {
		if err := s.failAddress(ctx, c); err != nil {
			return Reply{}, err
		}
		return Reply{}, ErrLoginIDNotFound
	}
	// Counted as a failure, it could be told from a known one by the count.
	reply, err := s.enter(ctx, c, step{state: CheckPassword, decoyOf: alias})
	reply.DisclaimersRequired = []Disclaimer{}
	reply.CaptchaRequired = c.captchaDue(tallies[WrongPasswords])
	return reply, err
}
