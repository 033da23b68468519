package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// A TokenWish is what an issued token is for. The caller has checked Paths.
type TokenWish struct {
	Name    string // if it is empty, the Actor
	Paths   []string
	Methods []string
	Actor   string // who acts as the user of the account; empty if nobody does
	Reason  string // why
	// ExpiresIn is for how many seconds it is valid; nil for as long as the company allows.
	ExpiresIn *int64
}

const (
	maxTokenText    = 128 // characters of a name, an actor or a reason
	maxTokenMethods = 20
)

// check refuses a wish that can't be fulfilled. longest is the longest life.
func (w *TokenWish) check(longest time.Duration) error {
	if err := w.readTexts(); err != nil {
		return err
	}
	w.Name = cmp.Or(w.Name, w.Actor)
	for _, method := range w.Methods {
		if method == "" || len(method) > maxTokenText || strings.Trim(method, "ABCDEFGHIJKLMNOPQRSTUVWXYZ-") != "" {
			return &FieldError{"methods", "write methods in upper case, such as GET and POST"}
		}
	}
	switch {
	case w.Name == "":
		return &FieldError{"name", "it is missing"}
	case len(w.Methods) == 0:
		return &FieldError{"methods", "name at least one, such as GET"}
	case len(w.Methods) > maxTokenMethods:
		return &FieldError{"methods", fmt.Sprintf("name at most %d", maxTokenMethods)}
	case w.Actor == "" && w.Reason != "":
		return &FieldError{"actor", "it is missing: a reason is for those who act as the user"}
	case w.Actor != "" && w.Reason == "":
		return &FieldError{"reason", "it is missing: write why the actor acts as the user"}
	}
	if seconds := w.ExpiresIn; seconds != nil && (*seconds < 1 || *seconds > int64(longest/time.Second)) {
		return &FieldError{"expires_in", fmt.Sprintf("it must be 1 to %d seconds", longest/time.Second)}
	}
	return nil
}

// readTexts checks and trims the texts.
func (w *TokenWish) readTexts() error {
	for _, f := range []struct {
		field string
		text  *string
	}{{"name", &w.Name}, {"actor", &w.Actor}, {"reason", &w.Reason}} {
		text := *f.text
		if !utf8.ValidString(text) || utf8.RuneCountInString(text) > maxTokenText || strings.ContainsFunc(text, unicode.IsControl) {
			return &FieldError{f.field, fmt.Sprintf("it must have at most %d characters, in UTF-8 and without control characters", maxTokenText)}
		}
		if text != "" && typed.LoginID(text, "") == "" {
			return &FieldError{f.field, "it has no visible characters"}
		}
		*f.text = strings.TrimSpace(text)
	}
	if actor := strings.Join(strings.Fields(typed.LoginID(w.Actor, "")), " "); actor == record.ActorUser || actor == record.ActorAdmin {
		return &FieldError{"actor", "in the history, this name means somebody else; write who acts as the user"}
	}
	return nil
}

// tokenOwner returns an account if the Admin may see its tokens. The error is ErrNoTokens.
func (ad *Admin) tokenOwner(ctx context.Context, mnemocode string) (record.Account, error) {
	if ad.isUser() && !ad.Company.IssuedTokens.ByUsers {
		return record.Account{}, ErrNoTokens
	}
	return ad.ByMnemocode(ctx, mnemocode)
}

// IssueToken issues a token for an account. The token itself is returned this once. If
// somebody acts with it as the user, or it is the user who issues it, the owner gets a
// notice. A revocation of all sessions that comes meanwhile leaves no token. The errors are
// ErrNoTokens, ErrTooManyTokens, ErrNotActive, ErrNoSessionToKeep and ErrChanged.
func (ad *Admin) IssueToken(ctx context.Context, mnemocode string, w TokenWish) (string, *record.IssuedToken, error) {
	may := ad.Company.IssuedTokens
	if may.Lifetime == 0 {
		return "", nil, ErrNoTokens
	}
	life := time.Duration(may.Lifetime)
	if w.Actor != "" {
		life = min(life, time.Duration(may.Acting))
	}
	if err := w.check(life); err != nil {
		return "", nil, err
	}
	if w.ExpiresIn != nil {
		life = time.Duration(*w.ExpiresIn) * time.Second
	}
	a, err := ad.tokenOwner(ctx, mnemocode)
	if err != nil {
		return "", nil, err
	}
	if a.Status != record.StatusActive {
		return "", nil, ErrNotActive
	}
	if err := ad.stillIn(ctx, a); err != nil {
		return "", nil, err
	}
	token, hash := tokens.New(tokens.IssuedPrefix, record.AccountBucket(a.Company, a.ID))
	now := ad.Now().UTC().Truncate(time.Microsecond)
	t := &record.IssuedToken{
		Hash: hash, ID: tokens.NewID(), Company: a.Company, Account: a.ID, Name: w.Name, Paths: w.Paths, Methods: w.Methods,
		Actor: w.Actor, Reason: w.Reason, Created: now, Expires: now.Add(life),
	}
	err = ad.Accounts.AddToken(ctx, a, t, may.PerAccount)
	switch {
	case errors.Is(err, record.ErrConflict):
		return "", nil, ErrTooManyTokens
	case errors.Is(err, record.ErrNotFound):
		return "", nil, ErrChanged
	case err != nil:
		return "", nil, adminError("storing the token", err)
	}
	ctx = context.WithoutCancel(ctx) // the token is stored; tell of it
	issued := ad.event(record.AccountTokenIssued, a)
	issued.Reason = t.ID
	switch {
	case t.Actor != "":
		issued.Reason += " " + t.Actor + ": " + t.Reason
		ad.tell(ctx, a, message.NoticeActed)
	case ad.isUser():
		ad.tell(ctx, a, message.NoticeTokenIssued)
	}
	ad.emit(ctx, issued)
	return token, t, nil
}

// IssuedTokens returns an account's tokens that have not expired, oldest first.
func (ad *Admin) IssuedTokens(ctx context.Context, mnemocode string) ([]*record.IssuedToken, error) {
	a, err := ad.tokenOwner(ctx, mnemocode)
	if err != nil {
		return nil, err
	}
	found, err := ad.Accounts.Tokens(ctx, ad.Now(), a.Company, a.ID)
	return found, adminError("listing the tokens", err)
}

// RemoveToken revokes the account's token with this IssuedToken.ID. If acting is set, it
// removes only one with an Actor. It ends no session. The error is ErrNoToken if there is
// none.
func (ad *Admin) RemoveToken(ctx context.Context, mnemocode, id string, acting bool) error {
	a, err := ad.tokenOwner(ctx, mnemocode)
	if err != nil {
		return err
	}
	revocation, err := ad.Accounts.DeleteToken(ctx, a.Company, a.ID, id, acting)
	if errors.Is(err, record.ErrNotFound) {
		if err := ad.revokePending(ctx, a); err != nil { // an earlier request may have removed it
			return err
		}
		return ErrNoToken
	}
	if err != nil {
		return adminError("removing the token", err)
	}
	ctx = context.WithoutCancel(ctx) // the change is stored; finish it
	err = ad.revoke(ctx, revocation, record.EndedByChange)
	removed := ad.event(record.AccountTokenRemoved, a)
	removed.Reason = id
	ad.emit(ctx, removed)
	return err
}
