package record

import (
	"context"
	"sync/atomic"
	"time"
)

// An IssuedToken is a token for a machine, a script or support (contract, section 24). It
// opens some paths of the application as its account, and is no login. Pass it by its
// address: Use counts in it.
type IssuedToken struct {
	Hash    TokenHash // of the token
	ID      string    // identifies it to operators; it is not a token
	Company string    // that of its account
	Account int64
	Name    string // for people
	Paths   []string
	Methods []string // in upper case
	Actor   string   // who acts as the user of the account; empty if nobody does
	Reason  string   // why the actor does
	Created time.Time
	Expires time.Time
	// LastUsed is when a request last used it, to the minute; zero if none did.
	LastUsed time.Time

	used atomic.Int64 // the last minute for which Use returned true
}

// Use reports whether a request at the time now is the first of its minute, as far as is
// known of this copy. It may be called concurrently.
func (t *IssuedToken) Use(now time.Time) bool {
	minute, before := now.Unix()/60, t.used.Load()
	return minute > before && minute > t.LastUsed.Unix()/60 && t.used.CompareAndSwap(before, minute)
}

// IssuedTokens keeps the tokens that are issued for accounts. A revocation of all sessions
// of a company also revokes its tokens. So does an Update that revokes those of an account,
// unless Account.SpareTokens is set. No method returns a revoked token.
type IssuedTokens interface {
	// AddToken stores a token of the account a, if the account then has at most limit
	// tokens that have not expired at t.Created. Otherwise it returns ErrConflict. It
	// returns ErrNotFound if the account does not exist any more in a.Generation and
	// a.CompanyGeneration: a revocation also concerns a token that is being issued.
	AddToken(ctx context.Context, a Account, t *IssuedToken, limit int) error
	// Token finds the token with this hash, of any company and even if it has expired. It
	// returns ErrNotFound if there is none.
	Token(ctx context.Context, hash TokenHash) (*IssuedToken, error)
	// Tokens returns the account's tokens that have not expired at now, oldest first.
	Tokens(ctx context.Context, now time.Time, company string, account int64) ([]*IssuedToken, error)
	// UseToken sets LastUsed of a token, unless it is later. It ignores a token that does
	// not exist.
	UseToken(ctx context.Context, hash TokenHash, at time.Time) error
	// DeleteToken removes the account's token with this ID and stores a pending revocation
	// of the account's present Generation, which it returns. That ends no session, but
	// makes each node forget the token. It replaces a pending revocation of the same
	// Generation, and spares the same session. If acting is set, only a token with an Actor
	// is removed. DeleteToken returns ErrNotFound if there is no such token.
	DeleteToken(ctx context.Context, company string, account int64, id string, acting bool) (Revocation, error)
}
