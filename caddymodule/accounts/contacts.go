package accounts

import (
	"net/http"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
)

func (c *Call) sendContact() error {
	body, err := c.Texts("phone?", "email?", "locale?", "address?")
	if err != nil {
		return err
	}
	contact := record.Phone
	switch {
	case body["phone"] != "" && body["email"] != "":
		return &manage.FieldError{Field: "email", Message: "give either phone or email"}
	case body["email"] != "":
		contact = record.Email
	case body["phone"] == "":
		return &manage.FieldError{Field: "phone", Message: "give phone or email"}
	}
	sent, err := c.Admin.SendContact(c.Context(), contact, body[contact.Name], body["locale"], body["address"])
	return c.Reply(http.StatusAccepted, sent, err)
}

func (c *Call) confirmContact() error {
	body, err := c.Texts("contact_token", "code")
	if err != nil {
		return err
	}
	contact, value, proof, err := c.Admin.ConfirmContact(c.Context(), body["contact_token"], body["code"])
	proven := api.ProvenContact{Proof: proof}
	if contact.Name == record.Phone.Name {
		proven.Phone = value
	} else {
		proven.Email = value
	}
	return c.Reply(http.StatusOK, proven, err)
}
