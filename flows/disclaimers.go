package flows

import (
	"context"
	"slices"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"golang.org/x/text/language"
)

type acceptDisclaimersRequest struct {
	AcceptDisclaimers []string `json:"accept_disclaimers" max:"64"`
}

// acceptDisclaimers ends a login by OAuth (interface, Endpoints 8).
func (s *Service) acceptDisclaimers(ctx context.Context, c *call, req *acceptDisclaimersRequest) (Reply, error) {
	a, err := s.account(ctx, c)
	if err != nil {
		return Reply{}, err
	}
	if err := tenant.Admitted(a); err != nil {
		return Reply{}, err
	}
	accepted, err := c.accept(a, req.AcceptDisclaimers)
	if err != nil {
		return Reply{}, err
	}
	return s.authorize(ctx, c, step{account: a, accepted: accepted})
}

// pending returns the disclaimers that neither the account nor accepted has in
// their present version, as the user is shown them. It is never nil.
func (c *call) pending(a record.Account, accepted []record.Acceptance) []wire.Disclaimer {
	pending := []wire.Disclaimer{}
	for _, d := range c.Company.Disclaimers {
		has := func(x record.Acceptance) bool { return x.Code == d.Code && x.Version == d.Version }
		if !slices.ContainsFunc(a.Accepted, has) && !slices.ContainsFunc(accepted, has) {
			pending = append(pending, d)
		}
	}
	if slices.ContainsFunc(pending, wire.Disclaimer.Translated) {
		languages := c.read(a)
		for i, d := range pending {
			pending[i] = d.In(languages)
		}
	}
	return pending
}

// read returns the languages that the user reads, the best first: those that the
// request tells of, then the account's.
func (c *call) read(a record.Account) []language.Tag {
	var languages []language.Tag
	if c.languages != nil {
		languages = c.languages()
	}
	if tag, err := message.ParseLocale(a.Locale); err == nil {
		languages = append(slices.Clip(languages), tag)
	}
	return languages
}

// accept returns what the session has accepted once these codes are added, or
// fails if that leaves any disclaimer of the company pending.
func (c *call) accept(a record.Account, codes []string) ([]record.Acceptance, error) {
	var accepted []record.Acceptance
	if c.session != nil {
		accepted = slices.Clone(c.session.Accepted)
	}
	pending := c.pending(a, accepted)
	for _, d := range pending {
		if !slices.Contains(codes, d.Code) {
			return nil, &wire.Refusal{Err: wire.ErrDisclaimerInvalid, Disclaimers: pending}
		}
		accepted = append(accepted, record.Acceptance{Code: d.Code, Version: d.Version, At: c.Now})
	}
	return accepted, nil
}
