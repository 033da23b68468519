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
	Active  bool         `json:"active"`
	Sub     string       `json:"sub,omitempty"` // the mnemocode
	Company string       `json:"company,omitempty"`
	State   record.State `json:"state,omitempty"`
	SID     string       `json:"sid,omitempty"` // the ID of the session, not the token
	Issued  int64        `json:"iat,omitempty"` // the time of the login, in Unix seconds
	Expires int64        `json:"exp,omitempty"` // when it expires if it is not used, in Unix seconds
	// AuthTime is that of the OAuth provider, if it is earlier than Issued.
	AuthTime int64    `json:"auth_time,omitempty"`
	Methods  []string `json:"amr,omitempty"` // see record.AuthMethods
	Role     string   `json:"role,omitempty"`
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
	return Introspection{
		Active:   true,
		Sub:      session.Mnemocode,
		Company:  session.Company,
		State:    session.State,
		SID:      session.ID,
		Issued:   session.Created.Unix(),
		Expires:  session.Expires.Unix(),
		AuthTime: session.LoginTime().Unix(),
		Methods:  session.Profile.Methods().Words(),
		Role:     role,
	}, err
}
