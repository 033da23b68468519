package manage

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
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
	_, err = ad.Accounts.ByMnemocode(ctx, ad.Company.Code, seed.Mnemocode)
	if errors.Is(err, record.ErrNotFound) {
		err = ad.createSeed(ctx, seed)
	}
	if err != nil {
		return err
	}
	return ad.Accounts.SetSeeded(ctx, ad.Company.Code, seed.Mnemocode)
}

func (ad *Admin) createSeed(ctx context.Context, seed Seed) (err error) {
	a := seed.Account
	a.Company = ad.Company.Code
	Read(ad.Company, &a, record.Account{})
	plain := seed.Password != "" && !password.LooksLikeHash(seed.Password)
	if !plain {
		a.PasswordHash = seed.Password
	}
	a.AnswerHash = seed.Answer // a placeholder; the hash is computed below
	// Check before hashing, because CheckAccount limits the cost of imported hashes. The
	// company's own parameters may be more expensive.
	if err := CheckAccount(a, record.Account{}, password.Argon2id{}); err != nil {
		return err
	}
	if plain {
		if a.PasswordHash, err = ad.hashOne(ctx, password.Normalize(seed.Password)); err != nil {
			return err
		}
	}
	if a.AnswerHash, err = ad.hashOne(ctx, typed.Answer(seed.Answer)); err != nil {
		return err
	}
	created := ad.event(record.AccountCreated, a)
	created.Reason = "configuration"
	a.Outbox = background.OutboxEvents(ctx, ad.Company, created)
	if created.Account, err = ad.Accounts.Create(ctx, created.Time, a); err != nil {
		if _, there := ad.Accounts.ByMnemocode(ctx, ad.Company.Code, seed.Mnemocode); there == nil {
			return nil // another node that starts up was faster
		}
		return err
	}
	ad.Emit(ctx, created)
	return nil
}
