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
	m := message.Message{ID: tokens.NewID(), Type: message.Trial, Company: company.Code, Name: company.Name, Color: company.MailColor, To: company.ReadPhone(to), Locale: company.Locale}
	what := "SMS"
	if mail {
		what = "mails"
		m.To = typed.Email(to)
		m.Subject = "Test mail of " + company.DisplayName()
	}
	switch {
	case !mail && m.To == "":
		return m, &FieldError{"to", noPhone}
	case mail && m.To == "":
		return m, &FieldError{"to", noEmail}
	case mail:
		m.To = typed.Sendable(m.To)
	}
	m.Text = fmt.Sprintf("This is a test: %s of %s arrive here. There is nothing to do.", what, company.DisplayName())
	if !mail {
		return m, nil
	}
	return m, company.Texts.RenderHTML(&m, "en", company.Locale)
}
