package accounts

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/manage"
)

// This file has the routes of authenticator apps, and of passwords that users change
// themselves.

func (c *Call) newTOTP() error {
	secret, err := c.admin.NewTOTP(c.ctx, c.mnemocode())
	return c.reply(http.StatusOK, secret, err)
}

func (c *Call) confirmTOTP() error {
	body, err := c.Texts("code", "keep_session?")
	if err != nil {
		return err
	}
	a, err := c.admin.ConfirmTOTP(c.ctx, c.mnemocode(), body["code"], body["keep_session"])
	return c.answer(a, err)
}

func (c *Call) removeTOTP() error {
	_, err := c.admin.RemoveTOTP(c.ctx, c.mnemocode(), c.query.Get("keep_session"))
	return c.done(err)
}

func (c *Call) checkPassword() error {
	body, err := c.Texts("current_password", "address?")
	if err != nil {
		return err
	}
	address, err := userAddress(body["address"])
	if err != nil {
		return err
	}
	return c.done(c.admin.CheckPassword(c.ctx, c.mnemocode(), body["current_password"], address))
}

func (c *Call) changePassword() error {
	body, err := c.Texts("current_password", "new_password", "keep_session?", "address?")
	if err != nil {
		return err
	}
	address, err := userAddress(body["address"])
	if err != nil {
		return err
	}
	return c.done(c.admin.ChangePassword(c.ctx, c.mnemocode(), manage.PasswordChange{
		Current: body["current_password"],
		New:     body["new_password"],
		Keep:    body["keep_session"],
		Address: address,
	}))
}

// userAddress returns the address of a user, which a backend may send, or an empty
// string.
func userAddress(text string) (string, error) {
	if text == "" {
		return "", nil
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return "", &manage.FieldError{Field: "address", Message: "it must be the user's IP address, as 198.51.100.7, or left out"}
	}
	return address.String(), nil
}

// Texts reads a body that is an object of strings with the given names. A name that
// ends in a question mark is optional and may be null.
func (c *Call) Texts(names ...string) (map[string]string, error) {
	data, err := c.body()
	if err != nil {
		return nil, err
	}
	values, err := parseObject(data)
	if err != nil {
		return nil, err
	}
	texts := map[string]string{}
	for _, name := range names {
		name, optional := strings.CutSuffix(name, "?")
		if value, given := values[name]; given {
			text, err := stringValue(value)
			if err == nil && utf8.RuneCountInString(text) > maxText {
				err = errors.New("it is too long")
			}
			if err != nil {
				return nil, &manage.FieldError{Field: name, Message: err.Error()}
			}
			texts[name] = text
		}
		if texts[name] == "" && !optional {
			return nil, &manage.FieldError{Field: name, Message: "it is missing"}
		}
		delete(values, name)
	}
	for name := range values {
		return nil, &manage.FieldError{Field: printable(name), Message: "there is no such field; leave it out"}
	}
	return texts, nil
}

// maxText limits the texts that are processed. The rules for passwords have their
// own limit.
const maxText = 1024
