package flows

import (
	"cmp"
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type stepUpRequest struct {
	Factor string `json:"factor" max:"16"`
	For    string `json:"for" max:"16"`
}

// stepUp begins to raise a session: it chooses a factor, and sends the code if that is an
// SMS (contract, section 21). It stores nothing else, but extends the session.
func (s *Service) stepUp(ctx context.Context, c *session.Call, req *stepUpRequest) (Reply, error) {
	a, err := c.ActiveAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	wanted := cmp.Or(req.For, session.ForMFA)
	if req.For == "" && c.Session().Profile.Methods().Multi() {
		wanted = session.ForFresh
	}
	if wanted != session.ForMFA && wanted != session.ForFresh {
		return Reply{}, wire.Invalid("The field for must be mfa or fresh.")
	}
	factors := c.StepUpFactors(a, wanted)
	if len(factors) == 0 {
		return Reply{}, errNoFactor
	}
	named := record.AuthMethods(req.Factor)
	if named != "" && !slices.Contains(factors, named) {
		return Reply{}, wire.Invalid("The account can't give this factor now. Leave it out, and see factors in the answer.")
	}
	factor := cmp.Or(named, factors[0])
	if named == "" && c.CheckCodes(a.FailureCounts) != nil { // strangers may have locked them
		factor = uncoded(factors)
	}
	reply, err := beginStepUp(ctx, c, a, wanted, factor)
	if next := slices.Index(factors, record.BySMS) + 1; named == "" && session.IsUnsent(err) && next < len(factors) {
		reply, err = beginStepUp(ctx, c, a, wanted, factors[next]) // as in a login, where a backup code can take the place of the SMS
	}
	if err != nil {
		return Reply{}, err
	}
	reply.Factors = factors
	return reply, nil
}

// uncoded returns the first factor that is no code, or else the first one.
func uncoded(factors []record.AuthMethods) record.AuthMethods {
	for _, factor := range factors {
		if factor == record.ByPasskey || factor == record.ByPassword {
			return factor
		}
	}
	return factors[0]
}

// beginStepUp begins a step-up with a factor.
func beginStepUp(ctx context.Context, c *session.Call, a record.Account, wanted string, factor record.AuthMethods) (Reply, error) {
	reply := Reply{Factor: factor}
	if reply.Factor == record.ByPasskey {
		challenge, err := challengeOf(c, a.ID, stepUpHandle(c))
		if err != nil {
			return Reply{}, err
		}
		reply.ChallengeToken, reply.PublicKey = challenge.ChallengeToken, challenge.PublicKey
	}
	token, expiresIn, err := c.NewStepUp(ctx, a, wanted, reply.Factor)
	if err != nil {
		return Reply{}, err
	}
	reply.StepUpToken, reply.ExpiresIn = token, &expiresIn
	if reply.Factor == record.BySMS {
		reply.UserPhone = record.MaskPhone(a.Phone)
	}
	return reply, nil
}

var errNoFactor = &wire.Refusal{
	Err:     wire.ErrUserRestricted,
	Message: "The account has no factor that it could give for this. Let the user set one up, or log in another way.",
	Reason:  wire.NoSecondFactor,
}

// stepUpHandle binds the challenge of a passkey to the call's session. It is no user handle.
func stepUpHandle(c *session.Call) []byte { return []byte("step-up of " + c.Session().ID) }

type checkStepUpRequest struct {
	StepUpToken string `json:"stepup_token" max:"256" need:"y"`
	OTP         string `json:"otp" max:"16"`
	// One of the user's backup codes.
	BackupCode string `json:"backup_code" max:"64"`
	Password   string `json:"password" max:"128"`
	// The challenge_token that came with the answer to stepup.
	ChallengeToken string         `json:"challenge_token" max:"256"`
	Credential     jsontext.Value `json:"credential"`
}

// factor returns the factor that the request gives. A code by SMS counts as one of the app.
func (r *checkStepUpRequest) factor() (given record.AuthMethods, err error) {
	n := 0
	for _, field := range []struct {
		sent   bool
		factor record.AuthMethods
	}{
		{r.OTP != "", record.ByApp},
		{r.BackupCode != "", record.ByBackupCode},
		{r.Password != "", record.ByPassword},
		{r.Credential != nil, record.ByPasskey},
	} {
		if field.sent {
			given, n = field.factor, n+1
		}
	}
	if n != 1 || (r.Credential != nil) != (r.ChallengeToken != "") {
		err = wire.Invalid("Send exactly one of otp, backup_code, password, and challenge_token with credential.")
	}
	return given, err
}

// checkStepUp raises a session by the factor that was asked for, or another one that would
// raise it (contract, section 21).
func (s *Service) checkStepUp(ctx context.Context, c *session.Call, req *checkStepUpRequest) (Reply, error) {
	factor, err := req.factor()
	if err != nil {
		return Reply{}, err
	}
	with, err := c.OpenStepUp(ctx, req.StepUpToken)
	if err != nil {
		return Reply{}, err
	}
	a, err := c.ActiveAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	if factor == record.ByApp && with.Factor == record.BySMS {
		factor = record.BySMS
	}
	if with.Wanted == session.ForMFA && c.Session().Profile.Methods().Multi() { // another tab was faster
		with.Wanted = session.ForFresh
	}
	if !slices.Contains(c.StepUpFactors(a, with.Wanted), factor) {
		return Reply{}, wire.Invalid("The account can't give this factor now. Call stepup again, and see factors in the answer.")
	}
	st, err := s.proveFactor(ctx, with, a, factor, req)
	if err != nil {
		return Reply{}, err
	}
	raised, err := with.Raise(ctx, st)
	if err != nil {
		return Reply{}, err
	}
	return Reply{
		SessionState: raised.State, ExpiresIn: new(c.SecondsUntil(raised.Expires)), AuthMethods: raised.Profile.Methods().Words(),
	}, nil
}

// proveFactor checks a factor, and counts it as in a login.
func (s *Service) proveFactor(ctx context.Context, with *session.StepUp, a record.Account, factor record.AuthMethods, req *checkStepUpRequest) (st session.Step, err error) {
	c := with.Call
	switch factor {
	case record.ByPassword:
		return session.Step{Account: a, By: factor}, s.provePassword(ctx, c, a, req.Password)
	case record.ByPasskey:
		assertion, err := c.Company.Passkeys.ReadAssertion(req.Credential)
		if err != nil {
			return session.Step{}, errNoCredential
		}
		challenge, ok := c.Keys.OpenPasskeyChallenge(c.Company.Code, a.ID, stepUpHandle(c), req.ChallengeToken, c.Now)
		_, err = s.accountOfPasskey(ctx, c, challenge, ok, assertion)
		return session.Step{Account: a, By: factor}, err
	case record.ByBackupCode:
		st, err = c.TryBackupCode(ctx, req.BackupCode)
	default:
		st, err = with.TryCode(ctx, factor, req.OTP)
	}
	c.RecordSecondFactor(ctx, st.Account, err)
	return st, err
}

// provePassword checks a password as checkpassword does, but needs no captcha. A known device
// has counts of its own only if the client shows that it is one: the session's may have been
// forgotten since.
func (s *Service) provePassword(ctx context.Context, c *session.Call, a record.Account, password string) error {
	c.Device = ""
	if err := c.FindDevice(ctx, a, ""); err != nil {
		return err
	}
	counts, err := c.PasswordCounts(ctx, a, "")
	if err != nil {
		return err
	}
	return s.TryPassword(ctx, &c.Attempt, a, counts, password)
}
