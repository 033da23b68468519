package session

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
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

// Accept adds the disclaimers with these codes to those that the session has accepted,
// and returns them all. It leaves out those of an old version, which would replace a
// newer one. It fails if any disclaimer of the company is still pending, or if no answer to
// this login has listed the present versions: an acceptance is evidence. Calls without a
// session list nothing before, so there a code means the present version, and code@version
// names one.
func (c *Call) Accept(ctx context.Context, a record.Account, codes []string) ([]record.Acceptance, error) {
	var accepted []record.Acceptance
	if c.session != nil {
		accepted = slices.DeleteFunc(slices.Clone(c.session.Accepted), func(a record.Acceptance) bool {
			return !slices.ContainsFunc(c.Company.Disclaimers, func(d wire.Disclaimer) bool { return d.Code == a.Code && d.Version == a.Version })
		})
	}
	pending := c.Pending(a, accepted)
	if len(pending) == 0 {
		return accepted, nil
	}
	listed, err := c.hasListed(ctx)
	if err != nil {
		return nil, err
	}
	refusal := &wire.Refusal{Err: wire.ErrDisclaimerInvalid, Disclaimers: pending}
	if !listed { // the refusal lists them
		_, err = c.MarkUsed(ctx, c.listed(c.session.ID))
		return nil, cmp.Or(err, error(refusal))
	}
	for _, d := range pending {
		if !slices.Contains(codes, d.Code) && !slices.Contains(codes, d.Code+"@"+d.Version) {
			return nil, refusal
		}
		accepted = append(accepted, record.Acceptance{Code: d.Code, Version: d.Version, At: c.Now})
	}
	return accepted, nil
}

// listing stands for the versions of all disclaimers of the company. While it stays the
// same, nothing becomes pending that an answer to the login has not listed.
func (c *Call) listing() string {
	sum := sha256.New()
	for _, d := range c.Company.Disclaimers {
		fmt.Fprintf(sum, "%q %q\n", d.Code, d.Version)
	}
	return hex.EncodeToString(sum.Sum(nil)[:16])
}

// listedMemory is usually more than the time from the first step of a login to its last.
// After it, the user gets the list once more.
const listedMemory = time.Hour

// listed returns the mark of a session that an answer has listed its pending disclaimers as
// they are now.
func (c *Call) listed(session string) record.Counter {
	return c.Counter("disclaimers-listed", session+"/"+c.listing(), tenant.Rate{N: 1, Per: listedMemory})
}

// hasListed reports whether an answer to this login has listed the disclaimers that are
// pending now.
func (c *Call) hasListed(ctx context.Context) (bool, error) {
	if c.session == nil || c.stateless != nil && c.stateless.listing == tokens.TagOf(c.listing()) {
		return true, nil
	}
	return c.IsUsed(ctx, c.listed(c.session.ID))
}
