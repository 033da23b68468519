package manage

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// wrongKeys limits the wrong keys for the accounts API that an address may send before it
// is refused. Each wrong key counts, on all nodes.
var wrongKeys = tenant.Rate{N: 30, Per: 5 * time.Minute}

// CountWrongKey counts a wrong key for the accounts API. The error is
// wire.ErrRestricted if the address has sent too many, or wire.ErrUnavailable.
func CountWrongKey(ctx context.Context, s *session.Manager, address string) error {
	ctx = context.WithoutCancel(ctx) // it counts even if the client hangs up
	at, err := s.Attempt(ctx, nil, address)
	if err != nil {
		return err
	}
	e := record.Event{Name: record.KeyWrong, Address: address}
	err = s.Sessions.Charge(ctx, at.Now, limits.PerAddress(at.Keys, "", "wrong-keys", address, wrongKeys)...)
	full, limited := errors.AsType[*record.FullError](err)
	switch {
	case limited:
		if e.Reason, _ = record.CutLimit(record.LimitAddress); at.Reported != nil && at.Reported.FirstTime(at.Now, full) {
			s.Emit(ctx, e)
		}
		return wire.Restricted(record.LimitAddress, at.Now, full.Until)
	case err != nil:
		return wire.Unavailable("counting wrong keys", err)
	}
	s.Emit(ctx, e)
	return nil
}
