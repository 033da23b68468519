package accounts

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file has the routes of authenticator apps, and of passwords that users change
// themselves.

func (c *Call) newTOTP() error {
	ctx, cancel := c.within()
	defer cancel()
	secret, err := c.admin.NewTOTP(ctx, c.mnemocode())
	if err != nil {
		return err
	}
	c.WriteJSON(http.StatusOK, secret)
	return nil
}

func (c *Call) confirmTOTP() error {
	ctx, cancel := c.within()
	defer cancel()
	body, err := c.Texts("code", "keep_session?")
	if err != nil {
		return err
	}
	a, err := c.admin.ConfirmTOTP(ctx, c.mnemocode(), body["code"], body["keep_session"])
	switch {
	case errors.Is(err, manage.ErrAppCode):
		return &Error{Status: http.StatusUnprocessableEntity, Field: "code", Message: err.Error()}
	case errors.Is(err, manage.ErrNoTOTP):
		return &Error{Status: http.StatusConflict, Message: err.Error()}
	case err != nil:
		return err
	}
	return c.answer(http.StatusOK, a)
}

func (c *Call) removeTOTP() error {
	ctx, cancel := c.within()
	defer cancel()
	query, err := c.query("keep_session")
	if err != nil {
		return err
	}
	if _, err := c.admin.RemoveTOTP(ctx, c.mnemocode(), query.Get("keep_session")); err != nil {
		return err
	}
	c.noContent()
	return nil
}

func (c *Call) checkPassword() error {
	ctx, cancel := c.within()
	defer cancel()
	body, err := c.Texts("current_password", "address?")
	if err != nil {
		return err
	}
	address, err := userAddress(body["address"])
	if err != nil {
		return err
	}
	if err := c.admin.CheckPassword(ctx, c.mnemocode(), body["current_password"], address); err != nil {
		return ownError(err)
	}
	c.noContent()
	return nil
}

func (c *Call) changePassword() error {
	ctx, cancel := c.within()
	defer cancel()
	body, err := c.Texts("current_password", "new_password", "keep_session?", "address?")
	if err != nil {
		return err
	}
	address, err := userAddress(body["address"])
	if err != nil {
		return err
	}
	err = c.admin.ChangePassword(ctx, c.mnemocode(), manage.OwnChange{
		Current: body["current_password"],
		New:     body["new_password"],
		Keep:    body["keep_session"],
		Address: address,
	})
	if err != nil {
		return ownError(err)
	}
	c.noContent()
	return nil
}

// ownError turns an error of the flows for a user's own password into a response.
func ownError(err error) error {
	switch {
	case errors.Is(err, manage.ErrPasswordWrong):
		return &Error{Status: http.StatusUnauthorized, Field: "current_password", Reason: "password.wrong", Message: "current_password: it is wrong"}
	case errors.Is(err, manage.ErrNotActive):
		return &Error{Status: http.StatusConflict, Field: "status", Message: "status: the account is not active, so its user can't log in"}
	case errors.Is(err, wire.ErrPasswordSame):
		return &tenant.RuleError{Field: "new_password", Text: "Not the present password."}
	case errors.Is(err, manage.ErrChanged):
		return &Error{Status: http.StatusConflict, Message: err.Error()}
	default:
		return err
	}
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
		return nil, &manage.FieldError{Field: printable(name), Message: "there is no such field"}
	}
	return texts, nil
}

// maxText limits the texts that are processed. The rules for passwords have their
// own limit.
const maxText = 1024
