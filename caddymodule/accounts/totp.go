package accounts

import "net/http"

func (c *Call) newTOTP() error {
	secret, err := c.admin.NewTOTP(c.Context(), c.mnemocode())
	return c.Reply(http.StatusOK, secret, err)
}

func (c *Call) confirmTOTP() error {
	body, err := c.Texts("code", "keep_session?")
	if err != nil {
		return err
	}
	a, err := c.admin.ConfirmTOTP(c.Context(), c.mnemocode(), body["code"], body["keep_session"])
	return c.answer(a, err)
}

func (c *Call) removeTOTP() error {
	_, err := c.admin.RemoveTOTP(c.Context(), c.mnemocode(), c.query.Get("keep_session"))
	return c.done(err)
}
