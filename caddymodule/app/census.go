package app

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// This file finds problems in the stored accounts.

// takeStock logs where the stores are and how many accounts they have, and warns of what may
// be wrong there. It does not report a store that does not answer.
func (a *App) takeStock(ctx context.Context) {
	_ = panics.ContainLogged(a.log, "looking at the stores", func() error {
		text, empty, err := a.Inventory(ctx)
		if err == nil {
			a.log.Info("the stores answer: " + text)
		}
		a.warn(empty)
		for _, s := range a.stores {
			if server, ok := s.Store.(guest.FaultyStore); ok {
				faults, _ := server.Faults(ctx)
				for _, f := range faults {
					if f.Advice != "" {
						a.log.Warn(f.What, "advice", f.Advice)
					}
				}
			}
		}
		if err != nil {
			return err
		}
		orphans, err := a.Orphans(ctx)
		a.warn(orphans)
		return err
	})
}

// usedKey is where Caddy's storage has the place of the last store that had accounts.
const usedKey = "mnemogate-store.txt"

// Inventory says where accounts and sessions are, how many accounts there are, and whether
// their store is new. It warns of a store without accounts if this Caddy has used one that
// had some, which it knows only if Caddy's storage took that store's place.
func (a *App) Inventory(ctx context.Context) (text string, empty []Weakness, err error) {
	place, created := placeOf(a.stores[0])
	text = "accounts in " + place
	if created {
		text += ", which this start has created"
	}
	if last := a.stores[len(a.stores)-1]; last != a.stores[0] {
		there, _ := placeOf(last)
		text += "; sessions in " + there
	}
	n, err := a.accounts.Count(ctx)
	if err != nil {
		return text, nil, err
	}
	used, _ := a.storage().Load(ctx, usedKey) // without it, nothing was used
	switch {
	case n > 0 && string(used) != place:
		_ = a.storage().Store(ctx, usedKey, []byte(place)) // Caddy's storage may take no writes, and the accounts answer
	case n == 0 && len(used) > 0:
		empty = []Weakness{{Directive: "store", At: a.Source.Line("store"), Weakness: guest.Weakness{
			Message: place + " has no accounts, and this Caddy has used a store that had some: " + string(used),
			Advice:  "check the file or database, and that its disk is mounted; if all accounts were to go, create the first new one",
		}}}
	}
	return text + fmt.Sprintf("; accounts: %d", n), empty, nil
}

func placeOf(s *PooledStore) (place string, created bool) {
	if placed, ok := s.Store.(guest.PlacedStore); ok {
		return placed.Place()
	}
	return s.Module, false
}

// Deaf returns why this node receives no revocations from others, or nil. It waits for a
// second, because a node that has just started has received nothing yet.
func (a *App) Deaf(ctx context.Context) error {
	last := a.stores[len(a.stores)-1]
	for range 20 {
		if last.memory == nil || last.memory.HasLease() || ctx.Err() != nil {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	if tells, ok := last.Store.(interface{ Deaf() error }); ok && tells.Deaf() != nil {
		return tells.Deaf()
	}
	return errors.New("the store sends none")
}

// Orphans lists the companies that have accounts but are not configured.
func (a *App) Orphans(ctx context.Context) (found []Weakness, err error) {
	companies, err := a.accounts.CompaniesWithAccounts(ctx)
	for _, company := range companies {
		if a.Companies[company] == nil {
			found = append(found, Weakness{Company: company, Directive: "company", Weakness: guest.Weakness{
				Message: "it has accounts and is not configured: nobody can log in to them",
				Advice:  "configure it again, unless another Caddy has it; if its code has changed, run 'caddy mnemogate company rename " + company + " <new code>'; 'caddy mnemogate company erase " + company + "' deletes the accounts",
			}})
		}
	}
	return found, err
}

// Stranded counts the users of each company who can't log in because they have no
// second factor.
func (a *App) Stranded(ctx context.Context) (found []Weakness, err error) {
	counts := map[bool]map[string]int{} // whether all accounts are counted, or only those that require a second factor themselves
	for code, c := range a.Sorted() {
		if c.effective.SecondFactor == tenant.SecondFactorOff {
			continue
		}
		all := c.effective.SecondFactor == tenant.SecondFactorRequired
		if counts[all] == nil {
			if counts[all], err = a.accounts.Stranded(ctx, all); err != nil {
				return nil, err
			}
		}
		if n := counts[all][code]; n > 0 {
			among := ""
			if !all {
				among = ", with those that need no second factor"
			}
			found = append(found, Weakness{Company: code, Directive: "second_factor", At: a.Source.Line("company " + code + " second_factor"), Weakness: guest.Weakness{
				Message: fmt.Sprintf("accounts that can't log in, since they have neither a phone for the code nor an authenticator app nor backup codes: %d", n),
				Advice: "'caddy mnemogate account list --no-second-factor --status active --company " + code + "' lists them" + among +
					"; add a phone to each, an authenticator app, or backup codes; one without a password needs a phone, or first a password, by recovery or 'caddy mnemogate account welcome'",
			}})
		}
	}
	return found, nil
}
