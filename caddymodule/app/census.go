package app

import (
	"context"
	"fmt"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// What the accounts that are stored show to be amiss. A store that is no
// record.Census tells nothing.

// warnOfOrphans logs them. A store that does not answer says so elsewhere.
func (a *App) warnOfOrphans(ctx context.Context) {
	_ = panics.ContainLogged(a.log, "looking for accounts of companies that are not configured", func() error {
		orphans, err := a.Orphans(ctx)
		a.warn(orphans)
		return err
	})
}

// Orphans lists the companies that have accounts and are not configured.
func (a *App) Orphans(ctx context.Context) (found []Weakness, err error) {
	if a.census == nil {
		return nil, nil
	}
	for company := ""; ; {
		if company, err = a.census.CompanyAfter(ctx, company); err != nil || company == "" {
			return found, err
		}
		if a.Companies[company] == nil {
			found = append(found, Weakness{Company: company, Directive: "company", Weakness: guest.Weakness{
				Message: "it has accounts and is not configured: nobody can log in to them",
				Advice:  "configure it again, if only to export and delete them, unless another Caddy does",
			}})
		}
	}
}

// Stranded tells how many of a company's users can't log in for want of a
// second factor.
func (a *App) Stranded(ctx context.Context, company string) (found []Weakness, err error) {
	factor := a.Companies[company].effective.SecondFactor
	if a.census == nil || factor == tenant.SecondFactorOff {
		return nil, nil
	}
	n, err := a.census.Stranded(ctx, company, factor == tenant.SecondFactorRequired)
	if err != nil || n == 0 {
		return nil, err
	}
	return []Weakness{{Company: company, Directive: "second_factor", Weakness: guest.Weakness{
		Message: fmt.Sprintf("accounts that can't log in, since they have neither a phone for the code nor an authenticator app nor backup codes: %d", n),
		Advice:  "add a phone to each, an authenticator app, or backup codes",
	}}}, nil
}
