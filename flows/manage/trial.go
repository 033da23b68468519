package manage

import (
	"fmt"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// NewTrial returns a test SMS or a test mail, or a *FieldError if the recipient is not
// valid. The message has no code and no link. Callers do not count it against a budget.
func NewTrial(company *tenant.Company, to string, mail bool) (message.Message, error) {
	m := message.Message{ID: tokens.NewID(), Type: message.Trial, Company: company.Code, Name: company.Name, Color: company.MailColor, Locale: company.Locale}
	const text = "This is a test: %s of %s arrive here. There is nothing to do."
	if !mail {
		if m.To = company.ReadPhone(to); m.To == "" {
			return m, &FieldError{"to", noPhone}
		}
		m.Text = fmt.Sprintf(text, "SMS", company.DisplayName())
		return m, nil
	}
	address := typed.Email(to)
	if address == "" {
		return m, &FieldError{"to", noEmail}
	}
	m.To, m.Subject = typed.Sendable(address), "Test mail of "+company.DisplayName()
	m.Text = fmt.Sprintf(text, "mails", company.DisplayName())
	err := company.Texts.RenderHTML(&m, "en", company.Locale)
	return m, err
}
