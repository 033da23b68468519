package flows

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A NoWelcomeError says, in a sentence, why an account can't be welcomed.
type NoWelcomeError struct {
	Field   string // empty: it is the configuration's
	Message string
}

func (e *NoWelcomeError) Error() string { return e.Message }

// Welcome mails the owner of an account, which is new as a rule, a link to set a
// password with: auth/recovery/checklink exchanges it as it does one that the
// owner asked for, and it is bounded alike. The mail is on its way, and the link
// good, when Welcome returns. By is who asks, for the events and the limits of an address. Its error is also a *NoWelcomeError, or a *Refusal of
// ErrRestricted where the account was mailed too often.
func (s *Service) Welcome(ctx context.Context, company *tenant.Company, a record.Account, by record.Event) error {
	switch {
	case company.Mail == nil || company.Link == "":
		return &NoWelcomeError{"", "the company can mail no links: configure mail and recovery link"}
	case a.Email == "":
		return &NoWelcomeError{"primary_email", "primary_email: the account has none to mail the link to"}
	case admitted(a) != nil:
		return &NoWelcomeError{"status", "status: who is not active could not use the link"}
	}
	c := &call{Attempt: s.attempt(company, by.Address)}
	err := s.mailLink(ctx, c, a, message.WelcomeLink)
	for _, lock := range c.Events {
		s.audit(ctx, company, a, lock.Name, by)
	}
	if err != nil {
		return err
	}
	s.audit(ctx, company, a, record.AccountWelcomed, by)
	return nil
}
