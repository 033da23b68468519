package manage

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

// emptyPage is how many accounts EmptyCompany empties at once: stores commit many together.
const emptyPage = 100

// EmptyCompany deletes the company's accounts or, unless to is empty, moves them to the
// company with that code. It revokes all of the company's sessions first, and stops after a
// while: call it again until it is done, which is when it found no account. It then also
// removes what else the store keeps of the company. Only the Code of ad.Company is needed.
func (ad *Admin) EmptyCompany(ctx context.Context, to string, within time.Duration) (accounts int, done bool, err error) {
	began, from := time.Now(), ad.Company.Code
	keys, err := ad.Keys(ctx)
	if err != nil {
		return 0, false, err
	}
	if err := ad.EndAllSessions(ctx); err != nil {
		return 0, false, err
	}
	emptied := ad.actorEvent(to)
	emptied.Name, emptied.Time, emptied.Company = record.CompanyErased, ad.Now(), from
	empty := func(a record.Account) error { return ad.Delete(ctx, a.Mnemocode, nil) }
	if to != "" {
		emptied.Name = record.CompanyRenamed
		empty = func(a record.Account) error {
			return adminError("moving an account", ad.Accounts.MoveAccount(ctx, from, a.ID, to, func(a *record.Account) {
				a.TOTP, a.TOTPPending = keys.ResealTOTP(from, to, a.TOTP), keys.ResealTOTP(from, to, a.TOTPPending)
			}))
		}
	}
	defer ad.emit(ctx, emptied)
	for {
		page, err := ad.List(ctx, "", emptyPage)
		if err != nil {
			return accounts, false, err
		}
		if len(page) == 0 {
			break
		}
		if time.Since(began) > within {
			return accounts, false, nil
		}
		var all sync.WaitGroup
		failed := make([]error, len(page))
		for i, a := range page {
			all.Go(func() { failed[i] = panics.Contain(func() error { return empty(a) }) })
		}
		all.Wait()
		for i, a := range page {
			err := failed[i]
			if taken, ok := errors.AsType[*record.TakenError](err); ok {
				return accounts, false, &Error{409, "to", "", fmt.Sprintf("account %s can't move, since company %s has another with its %s: delete or change one of them, then go on with the rename",
					a.Mnemocode, to, taken.Field), nil}
			}
			if err != nil && !errors.Is(err, record.ErrNotFound) {
				return accounts, false, err
			}
			accounts++
		}
	}
	if accounts > 0 {
		return accounts, false, nil // sessions may have begun since
	}
	err = adminError("forgetting the company", ad.Accounts.ForgetCompany(ctx, from, to))
	return 0, err == nil, err
}
