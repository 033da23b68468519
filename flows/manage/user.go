package manage

import (
	"context"

	"github.com/mnemogate/mnemogate/flows"
)

// CheckPassword checks a user's present password, see Service.CheckPassword.
func (ad *Admin) CheckPassword(ctx context.Context, mnemocode, current, address string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	return ad.Service.CheckPassword(ctx, ad.Company, a, current, address, ad.by(""))
}

// ChangePassword changes a user's password, see Service.ChangePassword.
func (ad *Admin) ChangePassword(ctx context.Context, mnemocode string, ch flows.OwnChange) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	return ad.Service.ChangePassword(ctx, ad.Company, a, ch, ad.by(""))
}

// Welcome mails the owner of an account a link to set a password with, see
// Service.Welcome.
func (ad *Admin) Welcome(ctx context.Context, mnemocode string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	return ad.Service.Welcome(ctx, ad.Company, a, ad.by(""))
}
