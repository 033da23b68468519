package flows

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

type recoverRequest struct {
	LoginID         string `json:"login_id" max:"254" need:"y"`
	CaptchaResponse string `json:"captcha_response" max:"4096" need:"y"`
	Method          Method `json:"method"`
}

// recover begins a recovery (interface, Endpoints 10). It changes nothing in
// the account.
func (s *Service) recover(ctx context.Context, c *call, req *recoverRequest) (Reply, error) {
	if req.Method != "" && !slices.Contains([]Method{ByPhone, ByMail, ByQuestion}, req.Method) {
		return Reply{}, invalid("The field method must be PHONE, MAIL or QUESTION.")
	}
	if err := s.checkAddress(ctx, c); err != nil {
		return Reply{}, err
	}
	a, alias, err := s.accountByLoginID(ctx, c, NormalizeLoginID(req.LoginID))
	if err != nil {
		return Reply{}, err
	}
	method, methodErr := c.company.method(req.Method, a)
	if c.company.Hardened {
		a, method, methodErr = c.company.hardenedMethod(req.Method, a)
		// Of an account that can't be recovered so, those of the alias. Asked
		// for in every case, they tell no one which it was.
		if a.Tallies, err = s.tallies(ctx, c.subject(a, alias)); err != nil {
			return Reply{}, err
		}
	}
	if err := c.checkRecovery(a, method); err != nil {
		return Reply{}, err
	}
	if c.company.Captcha != nil {
		if err := s.solveCaptcha(ctx, c, req.CaptchaResponse); err != nil {
			return Reply{}, err
		}
	}
	if c.company.Hardened {
		if methodErr != nil {
			return Reply{}, methodErr
		}
		return s.recoverHardened(ctx, c, a, method, req.LoginID, alias)
	}
	if a.ID == 0 {
		if err := s.failAddress(ctx, c); err != nil {
			return Reply{}, err
		}
		return Reply{}, ErrLoginIDNotFound
	}
	if err := admitted(a); err != nil {
		return Reply{}, err
	}
	if methodErr != nil {
		return Reply{}, methodErr
	}
	return s.recoverBy(ctx, c, a, method)
}

func (s *Service) recoverBy(ctx context.Context, c *call, a Account, method Method) (reply Reply, err error) {
	switch method {
	case ByPhone:
		reply, err = s.enter(ctx, c, step{account: a, state: RecoveryOTP})
	case ByQuestion:
		reply, err = s.enter(ctx, c, step{account: a, state: RecoveryQuestion})
		reply.ControlQuestion = a.Question
	case ByMail:
		err = s.mailLink(ctx, c, a)
		reply.UserEmail = a.Email
	}
	reply.Verification = method
	return reply, err
}

// checkRecovery refuses while the attempts that the method needs are locked.
func (c *call) checkRecovery(a Account, method Method) error {
	switch method {
	case ByPhone:
		return c.checkCodes(a)
	case ByQuestion:
		return c.checkAnswers(a)
	default:
		return nil
	}
}

// method chooses how an account is recovered: by the wanted method or, where
// none is named, by the first allowed one that the account can use.
func (c *Company) method(wanted Method, a Account) (Method, error) {
	if wanted != "" {
		if !slices.Contains(c.Methods, wanted) {
			return wanted, ErrMethodRestricted
		}
		return wanted, c.notSet(wanted, a)
	}
	for _, m := range c.Methods {
		if c.notSet(m, a) == nil {
			return m, nil
		}
	}
	if len(c.Methods) == 0 {
		return "", ErrMethodRestricted
	}
	return c.Methods[0], c.notSet(c.Methods[0], a)
}

// notSet tells what the account lacks for a method, nil if nothing.
func (c *Company) notSet(m Method, a Account) error {
	switch {
	case m == ByPhone && a.Phone == "":
		return ErrPhoneNotSet
	case m == ByMail && a.Email == "":
		return ErrEmailNotSet
	case m == ByQuestion && (a.Question == "" || a.AnswerHash == ""):
		return ErrQuestionNotSet
	}
	return nil
}

// mailLink mails a link that auth/recovery/checklink exchanges for a session.
func (s *Service) mailLink(ctx context.Context, c *call, a Account) error {
	if err := s.chargeMail(ctx, c, strconv.FormatInt(a.ID, 10)); err != nil {
		return err
	}
	if c.company.Hardened {
		s.unseen("mailing a link to "+a.Mnemocode+" of "+c.company.Code, func(ctx context.Context) error {
			link, message := c.newLink(a)
			if err := s.store(ctx, c, link); err != nil {
				return err
			}
			err := Contain(func() error { return s.send(ctx, c.company, c.company.Mail, a, message) })
			if err != nil {
				s.abandon(ctx, link.Hash)
			}
			return err
		})
		return nil
	}
	link, message := c.newLink(a)
	ctx = context.WithoutCancel(ctx) // a link that was mailed must work, also if the client hung up meanwhile
	if err := s.send(ctx, c.company, c.company.Mail, a, message); err != nil {
		return unavailable("mailing the link", err)
	}
	return s.store(ctx, c, link)
}

func (s *Service) chargeMail(ctx context.Context, c *call, account string) error {
	return s.charge(ctx, c, c.counter("mails-per-account", account, c.company.Limits.MailsPerAccount))
}

// newLink is a session that only checklink takes, under a token of another
// prefix, which no Authorization header can carry, and the mail that tells it.
func (c *call) newLink(a Account) (Session, Message) {
	token, hash := newToken(linkPrefix, AccountBucket(c.company.Code, a.ID))
	link := c.newSession(step{account: a, state: MailedLink}, hash)
	link.Expires = c.now.Add(c.company.LinkTTL)
	link.Ends = link.Expires
	return link, Message{
		Type:    RecoveryLink,
		To:      a.Email,
		Link:    strings.ReplaceAll(c.company.Link, "{token}", token),
		Expires: link.Expires,
	}
}

type checkLinkRequest struct {
	Token string `json:"token" max:"128" need:"y"`
}

// checkLink exchanges the token of a mailed link (contract, 4; open in the
// interface).
func (s *Service) checkLink(ctx context.Context, c *call, req *checkLinkRequest) (Reply, error) {
	if err := s.checkAddress(ctx, c); err != nil {
		return Reply{}, err
	}
	link, err := s.lookup(ctx, linkPrefix, req.Token, c.company.Code, c.now, s.Sessions.Get)
	if errors.Is(err, ErrTokenInvalid) {
		if err := s.failAddress(ctx, c); err != nil {
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
	if err := admitted(a); err != nil {
		return Reply{}, err
	}
	return s.enter(ctx, c, step{account: a, state: RecoveryPassword})
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
	if err := s.checkAddress(ctx, c); err != nil {
		return Reply{}, err
	}
	if err := c.checkAnswers(a); err != nil {
		return Reply{}, err
	}
	if err := admitted(a); err != nil {
		return Reply{}, err
	}
	ok, _, err := s.Hasher.Verify(ctx, c.company.Code, c.company.Password.Argon2id, a.AnswerHash, foldAnswer(req.ControlAnswer))
	if err != nil {
		return Reply{}, unavailable("checking the control answer", err)
	}
	if err := s.settleWindow(ctx, c, c.known(a), WrongAnswers, c.company.Limits.WrongAnswers, ok); err != nil {
		return Reply{}, err
	}
	if !ok {
		return Reply{}, ErrAnswerInvalid
	}
	return s.enter(ctx, c, step{account: a, state: RecoveryPassword})
}

// hardenedMethod chooses a method without regard to the account, which comes
// back empty unless it can be recovered so.
func (c *Company) hardenedMethod(wanted Method, a Account) (Account, Method, error) {
	methods := slices.DeleteFunc(slices.Clone(c.Methods), func(m Method) bool { return m == ByQuestion })
	if wanted == "" && len(methods) > 0 {
		wanted = methods[0]
	}
	if !slices.Contains(methods, wanted) {
		return Account{}, wanted, ErrMethodRestricted
	}
	bothFactors := wanted == ByPhone && c.needsSecondFactor(a) // one phone must not be both
	if a.ID == 0 || admitted(a) != nil || c.notSet(wanted, a) != nil || bothFactors {
		return Account{}, wanted, nil
	}
	return a, wanted, nil
}

// recoverHardened answers alike whether or not there is an account that can be
// recovered: where there is none, a decoy is, and what there is to send is sent
// after the answer.
func (s *Service) recoverHardened(ctx context.Context, c *call, a Account, method Method, given, alias string) (Reply, error) {
	if method == ByMail {
		reply := Reply{Verification: ByMail, UserEmail: "***@***"}
		if strings.Contains(NormalizeLoginID(given), "@") { // which the caller knows already
			reply.UserEmail = strings.TrimSpace(given)
		}
		if a.ID == 0 {
			return reply, s.chargeMail(ctx, c, "decoy/"+alias)
		}
		return reply, s.mailLink(ctx, c, a)
	}
	reply, err := s.enter(ctx, c, step{account: a, decoyOf: alias, state: RecoveryOTP})
	if err != nil {
		return Reply{}, err
	}
	reply.Verification = ByPhone
	if a.ID == 0 {
		reply.UserPhone = decoyPhone(NormalizeLoginID(given), alias)
	}
	return reply, nil
}

// decoyPhone is the masked phone that a login id without one seems to have:
// the same at each call, and of no use to tell that it is none.
func decoyPhone(loginID, alias string) string {
	if NormalizePhone(loginID) != "" {
		return maskPhone(loginID)
	}
	sum := sha256.Sum256([]byte(alias))
	codes := []string{"33", "34", "35", "36", "37", "38", "39", "41", "44", "46", "48", "49"}
	code := codes[int(sum[1])%len(codes)]
	return fmt.Sprintf("+%s%s%02d", code, strings.Repeat("*", 7+int(sum[2])%2), sum[3]%100)
}
