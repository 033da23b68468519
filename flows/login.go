package flows

import "context"

type loginRequest struct {
	LoginID string `json:"login_id" max:"254" need:"y"`
}

// login issues the first token of a login (interface, Endpoints 1).
func (s *Service) login(ctx context.Context, c *call, req *loginRequest) (Reply, error) {
	a, alias, err := s.accountByLoginID(ctx, c, NormalizeLoginID(req.LoginID))
	if err != nil {
		return Reply{}, s.addressFirst(ctx, c, err)
	}
	state, err := c.loginState(a)
	if err != nil {
		return Reply{}, s.addressFirst(ctx, c, err)
	}
	if a.ID == 0 && !c.company.Hardened {
		if err := s.failAddress(ctx, c); err != nil {
			return Reply{}, err
		}
		return Reply{}, ErrLoginIDNotFound
	}
	st := step{account: a, state: state, counters: []Counter{c.addressLook()}}
	if a.ID == 0 {
		// Counted as a failure, it could be told from a known one by the count.
		st.decoyOf = alias
	}
	reply, err := s.enter(ctx, c, st)
	reply.DisclaimersRequired = []Disclaimer{}
	if a.ID != 0 {
		reply.DisclaimersRequired = c.company.pending(a, nil)
	}
	reply.CaptchaRequired = state == CheckPassword && c.captchaDue(a.Tallies[WrongPasswords])
	return reply, err
}

// loginState is the state that a login begins in. An unknown login id is as one
// with a password, which is never right.
func (c *call) loginState(a Account) (State, error) {
	passwords := a.Tallies[WrongPasswords]
	byCode := a.ID != 0 && a.PasswordHash == ""
	if byCode {
		passwords.Count = 0 // strangers can lock the account, but there is no password to disable
	}
	if err := c.checkPasswords(passwords); err != nil {
		return None, err
	}
	if byCode {
		if err := c.checkCodes(a); err != nil {
			return None, err
		}
	}
	if a.ID == 0 {
		return CheckPassword, nil
	}
	if err := admitted(a); err != nil {
		return None, err
	}
	switch {
	case !byCode:
		return CheckPassword, nil
	case a.Phone == "":
		return None, ErrUserRestricted
	default:
		return CheckOTP, nil
	}
}
