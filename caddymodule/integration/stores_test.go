package integration

import (
	"context"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
)

func init() { caddy.RegisterModule(accountsGuest{}) }

// accountsGuest is a third-party store that keeps no sessions and can't be reached.
type accountsGuest struct{}

func (accountsGuest) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "mnemogate.accounts.accounts_only", New: func() caddy.Module { return new(accountsGuest) }}
}

func (*accountsGuest) UnmarshalCaddyfile(*caddyfile.Dispenser) error { return nil }

func (*accountsGuest) Key() string { return "accounts_only" }

func (*accountsGuest) Store() (guest.Store, error) { return new(accountsOnly), nil }

type accountsOnly struct{}

func (*accountsOnly) Start(context.Context) error { return record.ErrUnreachable }

func (*accountsOnly) Close() error { return nil }

func (*accountsOnly) Accounts() record.Accounts { return nil }
