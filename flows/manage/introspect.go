package manage

import (
	"context"
	"errors"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Introspection says what a token is worth (RFC 7662, 2.2). One that opens no
// protected path is not active, and of it nothing else is said.
type Introspection struct {
	Active  bool         `json:"active"`
	Sub     string       `json:"sub,omitempty"` // the mnemocode
	Company string       `json:"company,omitempty"`
	State   record.State `json:"state,omitempty"`
	SID     string       `json:"sid,omitempty"` // of the session, not the token
	Issued  int64        `json:"iat,omitempty"` // when its user logged in, in Unix seconds
	Expires int64        `json:"exp,omitempty"` // when it ends unless it is used
}

// Introspect tells of a token of the company. It prolongs nothing. An error means
// that a store did not answer.
func (ad *Admin) Introspect(ctx context.Context, token string) (Introspection, error) {
	session, err := ad.Peek(ctx, ad.Company.Code, token)
	switch {
	case errors.Is(err, wire.ErrTokenInvalid) || errors.Is(err, wire.ErrTokenExpired) || errors.Is(err, wire.ErrSessionInvalid):
		return Introspection{}, nil
	case err != nil:
		return Introspection{}, err
	}
	return Introspection{
		Active:  true,
		Sub:     session.Mnemocode,
		Company: session.Company,
		State:   session.State,
		SID:     session.ID,
		Issued:  session.Created.Unix(),
		Expires: session.Expires.Unix(),
	}, nil
}
