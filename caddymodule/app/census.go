package app

import (
	"context"
	"fmt"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// This file finds problems in the stored accounts. It finds none if the store does
// not implement record.Census.

// warnOfOrphans logs the orphans. It does not report a store that does not answer.
func (a *App) warnOfOrphans(ctx context.Context) {
	_ = panics.ContainLogged(a.log, "looking for accounts of companies that are not configured", func() error {
		orphans, err := a.Orphans(ctx)
		a.warn(orphans)
		return err
	})
}

// Orphans lists the companies that have accounts but are not configured.
func (a *App) Orphans(ctx context.Context) (found []Weakness, err error) {
	if a.census == nil {
		return nil, nil
	}
	companies, err := a.census.CompaniesWithAccounts(ctx)
	for _, company := range companies {
		if a.Companies[company] == nil {
			found = append(found, Weakness{Company: company, Directive: "company", Weakness: guest.Weakness{
				Message: "it has accounts and is not configured: nobody can log in to them",
				Advice:  "configure it again, if only to export and delete them, unless another Caddy does",
			}})
		}
	}
	return found, err
}

// Stranded counts the users of each company who can't log in because they have no
// second factor.
func (a *App) Stranded(ctx context.Context) (found []Weakness, err error) {
	if a.census == nil {
		return nil, nil
	}
	counts := map[bool]map[string]int{} // whether all accounts are counted, or only those that require a second factor themselves
	for code, c := range a.Sorted() {
		if c.effective.SecondFactor == tenant.SecondFactorOff {
			continue
		}
		all := c.effective.SecondFactor == tenant.SecondFactorRequired
		if counts[all] == nil {
			if counts[all], err = a.census.Stranded(ctx, all); err != nil {
				return nil, err
			}
		}
		if n := counts[all][code]; n > 0 {
			found = append(found, Weakness{Company: code, Directive: "second_factor", At: a.Source.Line("company " + code + " second_factor"), Weakness: guest.Weakness{
				Message: fmt.Sprintf("accounts that can't log in, since they have neither a phone for the code nor an authenticator app nor backup codes: %d", n),
				Advice:  "'caddy mnemogate account list --no-second-factor --company " + code + "' lists them; add a phone to each, an authenticator app, or backup codes",
			}})
		}
	}
	return found, nil
}
