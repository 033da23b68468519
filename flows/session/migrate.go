package session

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// verifyTimeout is how long the other system may take.
const verifyTimeout = 5 * time.Second

// verifyExternally asks the other system about a password, after waiting for a turn at
// hashing. This limits strangers to the rate of local password checks. If no other
// system is configured, every password is wrong.
func (p *Passwords) verifyExternally(ctx context.Context, at *limits.Attempt, a record.Account, typed string) (bool, error) {
	if _, _, err := p.Hasher.Verify(ctx, at.Turn(), at.Company.Password.Argon2id, "", password.Normalize(typed)); err != nil {
		return false, err
	}
	if at.Company.Migrate == nil {
		p.Warn("the password is known only to another system, and password migrate is not configured: configure it, or let the user recover the account",
			"company", at.Company.Code, "mnemocode", a.Mnemocode)
		return false, nil
	}
	question := tenant.PasswordQuestion{ID: tokens.NewID(), Company: at.Company.Code, Mnemocode: a.Mnemocode, Password: typed}
	for _, id := range []string{a.Phone, a.Email, a.LoginName} {
		if id != "" {
			question.LoginIDs = append(question.LoginIDs, id)
		}
	}
	return Ask(ctx, at, verifyTimeout, func(ctx context.Context) (bool, error) { return at.Company.Migrate.VerifyPassword(ctx, question) })
}
