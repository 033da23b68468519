package manage

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// UntilUnlocked is the end of a lock that stays until an operator unlocks the account
// or a new password is set.
var UntilUnlocked = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// ByMnemocode finds an account by its mnemocode. That of a Self is the user's own, even if
// another account has the mnemocode by now.
func (ad *Admin) ByMnemocode(ctx context.Context, mnemocode string) (a record.Account, err error) {
	if ad.isUser() {
		a, err = ad.Accounts.ByID(ctx, ad.Company.Code, ad.user.account)
	} else {
		a, err = ad.Accounts.ByMnemocode(ctx, ad.Company.Code, mnemocode)
	}
	return a, adminError("loading the account", err)
}

// ByLoginID finds an account by any of its login ids, in any spelling.
func (ad *Admin) ByLoginID(ctx context.Context, loginID string) (record.Account, error) {
	read, exact := ad.Company.ReadLoginID(loginID)
	a, err := ad.Accounts.ByLoginID(ctx, ad.Company.Code, exact, "")
	if errors.Is(err, record.ErrNotFound) {
		a, err = ad.Accounts.ByLoginID(ctx, ad.Company.Code, read, "")
	}
	return a, adminError("looking up the login id", err)
}

// ByIdentity finds an account by the user of a provider that is bound to it.
func (ad *Admin) ByIdentity(ctx context.Context, identity record.Identity) (record.Account, error) {
	a, err := ad.Accounts.ByIdentity(ctx, ad.Company.Code, identity)
	return a, adminError("looking up the identity", err)
}

// List returns up to limit accounts that follow the mnemocode after, ordered by mnemocode.
func (ad *Admin) List(ctx context.Context, after string, limit int) ([]record.Account, error) {
	accounts, err := ad.Accounts.List(ctx, ad.Company.Code, after, limit)
	return accounts, adminError("listing the accounts", err)
}

// searchReach is the maximum number of accounts that one call to the store looks at.
const searchReach = 10_000

// Search returns up to limit accounts that follow the mnemocode after and match. match.Part is
// as it was typed. With match.Failed, it returns only accounts that are locked.
func (ad *Admin) Search(ctx context.Context, match record.Match, after string, limit int) (found []record.Account, err error) {
	match.Part, match.Reach = typed.LoginIDPart(match.Part), searchReach
	for {
		more, last, err := ad.Accounts.Search(ctx, ad.Company.Code, match, after, limit-len(found))
		if len(more) > 0 && len(more) == limit-len(found) {
			last = more[len(more)-1].Mnemocode // there may be others behind it
		}
		found = append(found, slices.DeleteFunc(more, func(a record.Account) bool { return match.Failed && ad.LockedUntil(a).IsZero() })...)
		if err != nil || last == "" || len(found) == limit {
			return found, adminError("searching the accounts", err)
		}
		after = last
	}
}

// LockedUntil returns when the last of the account's locks ends. Locks result from wrong
// passwords, codes or control answers. The zero time means no lock. A disabled password
// is locked until UntilUnlocked.
func (ad *Admin) LockedUntil(a record.Account) time.Time {
	failures, limits, now := a.FailureCounts, &ad.Company.Limits, ad.Now()
	until := limits.PasswordsLocked(failures[record.WrongPasswords], now)
	if failures[record.WrongPasswords].Count >= limits.DisableAfter {
		return UntilUnlocked
	}
	for _, kind := range []record.FailureKind{record.WrongCodes, record.WrongAnswers} {
		if locked := limits.WindowLocked(kind, failures[kind], now); locked.After(until) {
			until = locked
		}
	}
	return until
}
