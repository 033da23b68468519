package accounts

import "net/http"

func (c *Call) newTOTP() error {
	secret, err := c.Admin.NewTOTP(c.Context(), c.mnemocode())
	return c.Reply(http.StatusOK, secret, err)
}

func (c *Call) confirmTOTP() error {
	body, err := c.Texts("code", "keep_session?")
	if err != nil {
		return err
	}
	a, err := c.Admin.ConfirmTOTP(c.Context(), c.mnemocode(), body["code"], body["keep_session"])
	return c.answer(a, err)
}

func (c *Call) removeTOTP() error {
	_, err := c.Admin.RemoveTOTP(c.Context(), c.mnemocode(), c.query.Get("keep_session"))
	return c.Done(err)
}
