package session

import (
	"slices"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Pending returns the disclaimers of a company that neither the account nor accepted has
// in their present version, as the user is shown them: in the languages of the request,
// which may be nil, then in the account's. It is never nil.
func Pending(company *tenant.Company, languages func() []language.Tag, a record.Account, accepted []record.Acceptance) []wire.Disclaimer {
	pending := []wire.Disclaimer{}
	for _, d := range company.Disclaimers {
		has := func(x record.Acceptance) bool { return x.Code == d.Code && x.Version == d.Version }
		if !slices.ContainsFunc(a.Accepted, has) && !slices.ContainsFunc(accepted, has) {
			pending = append(pending, d)
		}
	}
	if slices.ContainsFunc(pending, wire.Disclaimer.Translated) {
		read := readBy(languages, a)
		for i, d := range pending {
			pending[i] = d.In(read)
		}
	}
	return pending
}

// readBy returns the languages that the user reads, the best first.
func readBy(languages func() []language.Tag, a record.Account) []language.Tag {
	var read []language.Tag
	if languages != nil {
		read = languages()
	}
	if tag, err := message.ParseLocale(a.Locale); err == nil {
		read = append(slices.Clip(read), tag)
	}
	return read
}

// Pending is what an account has not yet accepted, nor the steps before with accepted.
func (c *Call) Pending(a record.Account, accepted []record.Acceptance) []wire.Disclaimer {
	return Pending(c.Company, c.client.Languages, a, accepted)
}

// PendingNow is what the session's next step must still accept. In a hardened
// company that is everything, until something of the account's owner is proven.
func (c *Call) PendingNow(a record.Account) []wire.Disclaimer {
	if c.Company.Hardened && !c.proven(a) {
		return c.Pending(record.Account{}, nil)
	}
	return c.Pending(a, c.session.Accepted)
}

// Accept returns what the session has accepted once these codes are added, or
// fails if that leaves any disclaimer of the company pending.
func (c *Call) Accept(a record.Account, codes []string) ([]record.Acceptance, error) {
	var accepted []record.Acceptance
	if c.session != nil {
		accepted = slices.Clone(c.session.Accepted)
	}
	pending := c.Pending(a, accepted)
	for _, d := range pending {
		if !slices.Contains(codes, d.Code) {
			return nil, &wire.Refusal{Err: wire.ErrDisclaimerInvalid, Disclaimers: pending}
		}
		accepted = append(accepted, record.Acceptance{Code: d.Code, Version: d.Version, At: c.Now})
	}
	return accepted, nil
}
