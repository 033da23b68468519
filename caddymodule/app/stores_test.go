package app

import (
	"context"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
)

type accountsOnly struct{}

func (*accountsOnly) Start(context.Context) error { return guest.ErrUnreachable }

func (*accountsOnly) Close() error { return nil }

func (*accountsOnly) Accounts() record.Accounts { return nil }
