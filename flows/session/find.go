package session

import (
	"context"
	"errors"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Find finds the session of a token for the call. Its company must meet want; that of a
// stateless token must be the call's.
func (c *Call) Find(ctx context.Context, token string, want Requirement) error {
	return c.find(ctx, token, want, c.m.Sessions.Get)
}

// FindAndSpendCode is Find for a request that carries a one-time code. If the session
// is in the given state, its code is spent, even if the request then fails.
func (c *Call) FindAndSpendCode(ctx context.Context, token string, want Requirement, state record.State) error {
	return c.find(ctx, token, want, c.spendCode(state))
}

func (c *Call) find(ctx context.Context, token string, want Requirement, get getter) error {
	c.token = token
	if tokens.IsStateless(token) {
		if err := c.openStateless(ctx, Requirement{Company: c.Company.Code}); err != nil {
			return err
		}
	} else {
		session, err := c.m.lookup(ctx, tokens.Prefix, token, want, c.Now, get)
		if err != nil {
			return err
		}
		c.hidden = reveal(&session)
		c.session = &session
		c.setDevice(session.Device)
	}
	if !c.Tells.began(*c.session) {
		return wire.ErrTokenInvalid
	}
	return nil
}

// setDevice sets the call's device by its ID, which may be empty.
func (c *Call) setDevice(device string) {
	if device != "" {
		c.Device = &record.Device{ID: device}
	}
}

// FindLink finds the call's session by the token of a mailed link. The next step
// replaces the session, so the link works once.
func (c *Call) FindLink(ctx context.Context, token string) error {
	prefix := tokens.LinkPrefix
	if strings.HasPrefix(token, tokens.WelcomePrefix) {
		prefix = tokens.WelcomePrefix
	}
	link, err := c.m.lookup(ctx, prefix, token, Requirement{Company: c.Company.Code}, c.Now, c.m.Sessions.Get)
	if errors.Is(err, wire.ErrTokenInvalid) {
		return c.whyRevoked(ctx, prefix, token)
	}
	if err == nil {
		c.session = &link
	}
	return err
}

// WhyRevoked returns the error for an invalid token: the status of its account if a
// change of the status revoked it, otherwise wire.ErrTokenInvalid.
func (c *Call) WhyRevoked(ctx context.Context) error {
	return c.whyRevoked(ctx, tokens.Prefix, c.token)
}
