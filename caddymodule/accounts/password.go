package accounts

import (
	"errors"
	"net/netip"

	"github.com/mnemogate/mnemogate/flows/manage"
)

func (c *Call) checkPassword() error {
	body, err := c.Texts("current_password", "address?")
	if err != nil {
		return err
	}
	return c.Done(c.Admin.CheckPassword(c.Context(), c.mnemocode(), body["current_password"], body["address"]))
}

func (c *Call) changePassword() error {
	body, err := c.Texts("current_password", "new_password", "keep_session?", "address?")
	if err != nil {
		return err
	}
	return c.Done(c.Admin.ChangePassword(c.Context(), c.mnemocode(), manage.PasswordChange{
		Current: body["current_password"],
		New:     body["new_password"],
		Keep:    body["keep_session"],
		Address: body["address"],
	}))
}

// UserAddress returns the address of a user, which a backend may send, or an empty
// string.
func UserAddress(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return "", errors.New("it must be the user's IP address, as 198.51.100.7, or left out")
	}
	return address.String(), nil
}
