package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type checkPasswordRequest struct {
	Password          string   `json:"password" max:"128" need:"y"`
	CaptchaResponse   string   `json:"captcha_response" max:"4096"`
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"129"`
	DeviceToken       string   `json:"device_token" max:"128"`
	RememberDevice    bool     `json:"remember_device"`
}

// checkPassword checks the password of a login (interface, Endpoints 2).
func (s *Service) checkPassword(ctx context.Context, c *session.Call, req *checkPasswordRequest) (Reply, error) {
	a, err := c.LoadAccount(ctx)
	if err != nil {
		return Reply{}, err
	}
	try := session.PasswordAttempt{Account: a, Password: req.Password, Wrong: wire.ErrPasswordInvalid}
	return s.enterByPassword(ctx, &passwordAttempt{s: s, c: c, req: req, try: try, loginIDHash: c.Session().LoginID, told: c.Tells.Status(a)})
}

// passwordStages are what an attempt with a password goes through, in this order. The first
// that fails is the answer. Then follows the next step of the login (see after.go).
var passwordStages = []func(*passwordAttempt, context.Context) error{
	(*passwordAttempt).findDevice,
	(*passwordAttempt).checkLimits,
	(*passwordAttempt).solveCaptcha,
	(*passwordAttempt).tellStatus,
	(*passwordAttempt).comparePassword,
	(*passwordAttempt).checkStatus,
	(*passwordAttempt).acceptDisclaimers,
	(*passwordAttempt).checkBreached,
}

// A passwordAttempt is an attempt of checkpassword or checkcredentials.
type passwordAttempt struct {
	s           *Service
	c           *session.Call
	req         *checkPasswordRequest
	try         session.PasswordAttempt
	loginIDHash string
	told        error // what a client may learn of the account's status without the password; nil for nothing
	captchaDue  bool
	accepted    []record.Acceptance
}

func (s *Service) enterByPassword(ctx context.Context, t *passwordAttempt) (Reply, error) {
	for _, stage := range passwordStages {
		if err := stage(t, ctx); err != nil {
			return Reply{}, err
		}
	}
	return afterPassword(ctx, t.c, session.Step{Account: t.try.Account, By: record.ByPassword, Accepted: t.accepted})
}

// findDevice comes first, because the counts of a known device are its own.
func (t *passwordAttempt) findDevice(ctx context.Context) error {
	t.c.Remember(t.req.RememberDevice)
	return t.c.FindDevice(ctx, t.try.Account, t.req.DeviceToken)
}

// checkLimits checks the limits of the address, then the locks of the password.
func (t *passwordAttempt) checkLimits(ctx context.Context) (err error) {
	if t.try.Counts, err = t.c.PasswordCounts(ctx, t.try.Account, t.loginIDHash); err != nil {
		return err
	}
	wrong := t.try.Counts.Now[record.WrongPasswords]
	locked := t.c.CheckPasswords(wrong)
	t.captchaDue = t.c.CaptchaDue(wrong)
	if locked != nil || t.captchaDue || t.told != nil { // otherwise comparePassword checks the address in its own step
		if err := t.c.CheckLogins(ctx); err != nil {
			return err
		}
	}
	return locked
}

func (t *passwordAttempt) solveCaptcha(ctx context.Context) error {
	if !t.captchaDue {
		return nil
	}
	t.try.Solved = true
	return t.s.solveCaptcha(ctx, t.c, t.req.CaptchaResponse)
}

func (t *passwordAttempt) tellStatus(context.Context) error { return t.told }

func (t *passwordAttempt) comparePassword(ctx context.Context) error {
	return t.s.ComparePassword(ctx, &t.c.Attempt, &t.try)
}

// checkStatus comes after the password, which proves that the client may learn it.
func (t *passwordAttempt) checkStatus(context.Context) error {
	return tenant.CheckStatus(t.try.Account)
}

func (t *passwordAttempt) acceptDisclaimers(ctx context.Context) (err error) {
	t.accepted, err = t.c.Accept(ctx, t.try.Account, t.req.AcceptDisclaimers)
	return err
}

func (t *passwordAttempt) checkBreached(ctx context.Context) error {
	return t.c.CheckBreached(ctx, &t.try.Account, t.req.Password)
}
