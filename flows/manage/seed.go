package manage

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A Seed is an account in the configuration, with its secrets as they are written there.
type Seed struct {
	record.Account
	Password string // plain, or a hash (password.LooksLikeHash); empty for none
	Answer   string // plain, to the Question
}

// Seed creates the account, unless the company has or had an account with its mnemocode.
// It does not change an existing account or restore a deleted one.
func (ad *Admin) Seed(ctx context.Context, seed Seed) error {
	done, err := ad.Accounts.Seeded(ctx, ad.Company.Code, seed.Mnemocode)
	if err != nil || done {
		return err
	}
	find := func() error {
		_, err := ad.Accounts.ByMnemocode(ctx, ad.Company.Code, seed.Mnemocode)
		return err
	}
	if err = find(); errors.Is(err, record.ErrNotFound) {
		if _, err = ad.create(ctx, seed.change(), "configuration"); err != nil && find() == nil {
			err = nil // another node that starts up was faster
		}
	}
	if err != nil {
		return err
	}
	return ad.Accounts.SetSeeded(ctx, ad.Company.Code, seed.Mnemocode)
}

func (s Seed) change() Change {
	ch := Change{Password: s.Password, Answer: s.Answer}
	if password.LooksLikeHash(s.Password) {
		s.PasswordHash, ch.Password = s.Password, ""
	}
	ch.Apply = func(a *record.Account) error { *a = s.Account; return nil }
	return ch
}
