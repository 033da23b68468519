package flows

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

type recoverRequest struct {
	LoginID         string        `json:"login_id" max:"254" need:"y"`
	CaptchaResponse string        `json:"captcha_response" max:"4096" need:"y"`
	Method          tenant.Method `json:"method"`
}

// recover begins a recovery (interface, Endpoints 10). It changes nothing in
// the account.
func (s *Service) recover(ctx context.Context, c *call, req *recoverRequest) (Reply, error) {
	if req.Method != "" && !slices.Contains([]tenant.Method{tenant.ByPhone, tenant.ByMail, tenant.ByQuestion}, req.Method) {
		return Reply{}, wire.Invalid("The field method must be PHONE, MAIL or QUESTION.")
	}
	if err := c.CheckAddress(ctx); err != nil {
		return Reply{}, err
	}
	a, alias, err := s.accountByLoginID(ctx, c, record.NormalizeLoginID(req.LoginID))
	if err != nil {
		return Reply{}, err
	}
	if c.Company.Hardened {
		return s.recoverHardened(ctx, c, req, a, alias)
	}
	method, methodErr := c.Company.RecoveryMethod(req.Method, a)
	if err := c.checkRecovery(a.Tallies, method); err != nil {
		return Reply{}, err
	}
	if err := s.checkCaptcha(ctx, c, req.CaptchaResponse); err != nil {
		return Reply{}, err
	}
	if a.ID == 0 {
		if err := c.FailAddress(ctx); err != nil {
			return Reply{}, err
		}
		return Reply{}, wire.ErrLoginIDNotFound
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	if methodErr != nil {
		return Reply{}, methodErr
	}
	return s.recoverBy(ctx, c, a, method)
}

func (s *Service) recoverBy(ctx context.Context, c *call, a record.Account, method tenant.Method) (reply Reply, err error) {
	switch method {
	case tenant.ByPhone:
		reply, err = s.enter(ctx, c, step{account: a, state: record.RecoveryOTP})
	case tenant.ByQuestion:
		reply, err = s.enter(ctx, c, step{account: a, state: record.RecoveryQuestion})
		reply.ControlQuestion = a.Question
	case tenant.ByMail:
		err = s.mailLink(ctx, c, a, message.RecoveryLink)
		reply.UserEmail = a.Email
	}
	reply.Verification = method
	return reply, err
}

// checkRecovery refuses while the attempts that the method needs are locked.
func (c *call) checkRecovery(tallies map[record.Kind]record.Tally, method tenant.Method) error {
	switch method {
	case tenant.ByPhone:
		return c.CheckCodes(record.Account{Tallies: tallies})
	case tenant.ByQuestion:
		return c.CheckAnswers(record.Account{Tallies: tallies})
	default:
		return nil
	}
}

// checkCaptcha verifies the response that each recovery brings.
func (s *Service) checkCaptcha(ctx context.Context, c *call, response string) error {
	if c.Company.Captcha == nil {
		return nil
	}
	return s.solveCaptcha(ctx, c, response)
}

// MailLink mails the owner of an account a link that auth/recovery/checklink
// exchanges for a session, in a mail of a type.
func (s *Service) MailLink(ctx context.Context, at *limits.Attempt, a record.Account, mail string) error {
	c := &call{Attempt: *at}
	err := s.mailLink(ctx, c, a, mail)
	at.Events = c.Events
	return err
}

// mailLink mails a link that auth/recovery/checklink exchanges for a session, in
// a mail of a type.
func (s *Service) mailLink(ctx context.Context, c *call, a record.Account, mail string) error {
	if err := c.Charge(ctx, c.mailBudget(strconv.FormatInt(a.ID, 10))...); err != nil {
		return err
	}
	link, message := c.newLink(a, mail)
	ctx = context.WithoutCancel(ctx) // a link that was mailed must work, also if the client hung up meanwhile
	if err := s.send(ctx, c.Company, c.Company.Mail, a, message); err != nil {
		return wire.Unavailable("mailing the link", err)
	}
	return s.store(ctx, c, link)
}

func (c *call) mailBudget(account string) []record.Counter {
	return c.Budget("mails-per-account", account, c.Company.Limits.MailsPerAccount)
}

// newLink is a session that only checklink takes, under a token of another
// prefix, which no Authorization header can carry, and the mail that tells it.
func (c *call) newLink(a record.Account, mail string) (record.Session, message.Message) {
	token, hash := tokens.New(tokens.LinkPrefix, record.AccountBucket(c.Company.Code, a.ID))
	link := c.newSession(step{account: a, state: record.MailedLink}, hash)
	link.Expires = c.Now.Add(time.Duration(c.Company.Recovery.LinkTTL))
	link.Ends = link.Expires
	return link, message.Message{
		Type:    mail,
		To:      a.Email,
		Link:    strings.ReplaceAll(c.Company.Recovery.Link, "{token}", token),
		Expires: link.Expires,
	}
}

type checkLinkRequest struct {
	Token string `json:"token" max:"128" need:"y"`
}

// checkLink exchanges the token of a mailed link (contract, 4; open in the
// interface).
func (s *Service) checkLink(ctx context.Context, c *call, req *checkLinkRequest) (Reply, error) {
	if err := c.CheckAddress(ctx); err != nil {
		return Reply{}, err
	}
	link, err := s.lookup(ctx, tokens.LinkPrefix, req.Token, Demand{Company: c.Company.Code}, c.Now, s.Sessions.Get)
	if errors.Is(err, wire.ErrTokenInvalid) {
		err = s.whyRevoked(ctx, c, tokens.LinkPrefix, req.Token)
	}
	if errors.Is(err, wire.ErrTokenInvalid) {
		if err := c.FailAddress(ctx); err != nil {
			return Reply{}, err
		}
	}
	if err != nil {
		return Reply{}, err
	}
	c.session = &link // the step replaces it, so it works once
	a, err := s.account(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	return s.enter(ctx, c, step{account: a, state: record.RecoveryPassword})
}

type checkQuestionRequest struct {
	ControlAnswer string `json:"control_answer" max:"256" need:"y"`
}

// checkQuestion takes the answer to the control question (interface, Endpoints 13).
func (s *Service) checkQuestion(ctx context.Context, c *call, req *checkQuestionRequest) (Reply, error) {
	a, err := s.account(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	if err := c.CheckAddress(ctx); err != nil {
		return Reply{}, err
	}
	if err := c.CheckAnswers(a); err != nil {
		return Reply{}, err
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	ok, _, err := s.Hasher.Verify(ctx, c.Turn(), c.Company.Password.Argon2id, a.AnswerHash, record.FoldAnswer(req.ControlAnswer))
	if err != nil {
		return Reply{}, wire.Unavailable("checking the control answer", err)
	}
	if err := c.SettleWindow(ctx, c.Subject(a, ""), record.WrongAnswers, c.Company.Limits.WrongAnswers, ok); err != nil {
		return Reply{}, err
	}
	if !ok {
		return Reply{}, wire.ErrAnswerInvalid
	}
	return s.enter(ctx, c, step{account: a, state: record.RecoveryPassword})
}
