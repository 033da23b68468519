package manage

import (
	"context"
	"errors"
	"net/url"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Introspection describes a token (RFC 7662, section 2.2). A token that is not valid
// for the protected path has only Active, which is false.
type Introspection struct {
	// Whether the token belongs to an authorized session of the company, or is an issued
	// token of one of its accounts.
	Active bool `json:"active"`
	// The user's profile_mnemocode.
	Sub string `json:"sub,omitempty"`
	// The company's code.
	Company string `json:"company,omitempty"`
	// Always `authorized`.
	State record.State `json:"state,omitempty"`
	// The session's id. It does not work as a token.
	SID string `json:"sid,omitempty"`
	// When the user logged in, or the token was issued, in Unix seconds.
	Issued int64 `json:"iat,omitempty"`
	// When the session expires if it is not used, or the issued token expires, in Unix
	// seconds.
	Expires int64 `json:"exp,omitempty"`
	// When the user logged in, gave another factor since or, with OpenID, logged in at the
	// provider, in Unix seconds.
	AuthTime int64 `json:"auth_time,omitempty"`
	// How the user logged in; `mfa` if by two factors.
	Methods []string `json:"amr,omitempty"`
	// The account's role; absent if it has none.
	Role string `json:"role,omitempty"`
	// The id of an issued token, which has no `sid`, `state` and `auth_time`. The token may
	// open only some paths.
	Token string `json:"token,omitempty"`
	// The person or program that acts as the user with it (RFC 8693).
	Act *Actor `json:"act,omitempty"`
}

// An Actor is who acts as the user.
type Actor struct {
	// The name that was given when the token was issued.
	Sub string `json:"sub"`
}

// Introspect describes a token of the company. It does not extend the session. An error
// means that a store did not answer.
func (ad *Admin) Introspect(ctx context.Context, token string) (Introspection, error) {
	session, err := ad.Peek(ctx, ad.Company.Code, token)
	switch {
	case errors.Is(err, wire.ErrTokenInvalid) || errors.Is(err, wire.ErrTokenExpired) || errors.Is(err, wire.ErrSessionInvalid):
		return Introspection{}, nil
	case err != nil:
		return Introspection{}, err
	}
	role, err := url.PathUnescape(session.Profile.Value(record.ProfileRole))
	found := Introspection{
		Active: true, Sub: session.Mnemocode, Company: session.Company, Issued: session.Created.Unix(), Expires: session.Expires.Unix(),
		Methods: session.Profile.Methods().Words(), Role: role,
	}
	if t := session.Issued; t == nil {
		found.State, found.SID, found.AuthTime = session.State, session.ID, session.LoginTime().Unix()
	} else {
		found.Token = t.ID
		if t.Actor != "" {
			found.Act = &Actor{t.Actor}
		}
	}
	return found, err
}
