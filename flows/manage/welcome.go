package manage

import (
	"context"
	"math"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// Welcome mails the owner of an account, usually a new one, a link to set a password. The
// link works like a recovery link: auth/recovery/checklink exchanges it, and the same
// limits apply. When Welcome returns nil, the mail is on its way and the link is valid.
// With once, it refuses an account that got one within a year.
func (ad *Admin) Welcome(ctx context.Context, mnemocode string, once bool) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	if err := ad.mayWelcome(a); err != nil {
		return err
	}
	c, err := ad.CallOf(ctx, ad.Company, "", session.Client{Address: ad.Address})
	if err != nil {
		return err
	}
	mark := c.Counter("welcomed", strconv.FormatInt(a.ID, 10), tenant.Rate{N: 1, Per: 366 * 24 * time.Hour})
	got, err := c.IsUsed(ctx, mark)
	if err != nil {
		return err
	}
	if once && got {
		return &Error{403, "", "", "the account got a welcome mail already, and the key has only the right create: use one with write", nil}
	}
	mark.Limit = math.MaxInt32 // it is never full, so each mail is followed by its link, even of two calls at once
	err = c.MailLink(ctx, a, message.WelcomeLink, mark)
	ad.emitLocks(ctx, &c.Attempt, a)
	if err != nil {
		return err
	}
	welcomed := ad.event(record.AccountWelcomed, a)
	welcomed.Gateway = c.Event().Gateway
	ad.emit(ctx, welcomed)
	return nil
}

// mayWelcome returns why the owner of an account can't get a welcome mail, or nil.
func (ad *Admin) mayWelcome(a record.Account) error {
	switch {
	case ad.Company.Mail == nil || ad.Company.Recovery.Link == "":
		return noWelcome("", "the company can mail no links: configure mail and recovery link")
	case a.Email == "":
		return noWelcome("primary_email", "primary_email: the account has none to mail the link to")
	case a.HasCredential():
		return noWelcome("password_set", "the account can log in already, and the link would be a long-lived way to reset its password: let its owner recover it")
	case tenant.CheckStatus(a) != nil:
		return noWelcome("status", "status: an account that is not active could not use the link")
	}
	return nil
}

// noWelcome says why the owner of an account can't get a welcome mail. No field: the
// configuration is at fault.
func noWelcome(field, why string) error { return &Error{409, field, "", why, nil} }
