package admin

import (
	"net/http"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/caddymodule/captured"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// emptyFor is how long a call of empty goes on. Calls have a time limit.
const emptyFor = 10 * time.Second

// empty erases a company or, with to, renames it. The client repeats it until it is done.
func empty(c *accounts.Call) error {
	body, err := c.Texts("company", "to?", "resume?")
	if err != nil {
		return err
	}
	of := func(code string) *manage.Admin {
		return &manage.Admin{Manager: c.Service.Manager, Company: &tenant.Company{Code: code}, Address: c.Address, Actor: record.ActorAdmin, Bulk: true}
	}
	company, to := body["company"], body["to"]
	switch {
	case to == company || to != "" && !app.IsCompanyCode(to):
		return &manage.FieldError{Field: "to", Message: "it must be another code, of 1 to 64 letters, digits, _ and -"}
	case !app.IsCompanyCode(company):
		return &manage.FieldError{Field: "company", Message: "it must be the code of a company"}
	case to == "" && c.Service.Companies[company] != nil:
		return &accounts.Error{Status: http.StatusConflict, Field: "company", Message: "company " + company +
			" is still configured, and could get new accounts: remove it from the configuration of each node, reload them, then erase it"}
	case to != "" && body["resume"] == "":
		taken, err := of(to).List(c.Context(), "", 1)
		if err != nil {
			return err
		}
		if len(taken) > 0 {
			return &accounts.Error{Status: http.StatusConflict, Field: "to", Message: "company " + to +
				" has accounts already: choose another code or, to go on with a rename that was interrupted, add --resume"}
		}
	}
	var part api.Emptied
	if part.Accounts, part.Done, err = of(company).EmptyCompany(c.Context(), to, emptyFor); err != nil {
		return err
	}
	captured.Forget(company, "")
	return c.Reply(http.StatusOK, part, nil)
}

// rotateSigningKey gives a company a new key that signs assertions.
func rotateSigningKey(c *accounts.Call) error {
	err := c.App.SigningKeys().Rotate(c.Context(), c.Admin.Company.Code)
	if err == nil {
		c.Admin.Emit(c.Context(), record.Event{Name: record.CompanyKeyRotated, Company: c.Admin.Company.Code, Address: c.Address, Actor: c.Admin.Actor})
	}
	return c.Done(err)
}
