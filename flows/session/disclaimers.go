package session

import (
	"slices"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Pending returns the disclaimers of a company whose current version is neither in the
// account nor in accepted. The texts are in the request's languages (which may be nil)
// or else the account's. The result is never nil.
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

// readBy returns the languages that the user reads, best first.
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

// Pending returns the disclaimers that neither the account nor the earlier steps of the
// login have accepted.
func (c *Call) Pending(a record.Account, accepted []record.Acceptance) []wire.Disclaimer {
	return Pending(c.Company, c.client.Languages, a, accepted)
}

// PendingNow returns the disclaimers that the session's next step must still accept. In
// a hardened company it returns all of them until the client proves a secret of the
// account.
func (c *Call) PendingNow(a record.Account) []wire.Disclaimer {
	if c.Company.Hardened && !c.proven(a) {
		return c.Pending(record.Account{}, nil)
	}
	return c.Pending(a, c.session.Accepted)
}

// Accept adds the disclaimers with these codes to those that the session has accepted,
// and returns them all. It leaves out those of an old version, which would replace a
// newer one. It fails if any disclaimer of the company is still pending.
func (c *Call) Accept(a record.Account, codes []string) ([]record.Acceptance, error) {
	var accepted []record.Acceptance
	if c.session != nil {
		accepted = slices.DeleteFunc(slices.Clone(c.session.Accepted), func(a record.Acceptance) bool {
			return !slices.ContainsFunc(c.Company.Disclaimers, func(d wire.Disclaimer) bool { return d.Code == a.Code && d.Version == a.Version })
		})
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
