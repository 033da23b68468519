package postgres

import (
	"context"
	"os"
	"testing"

	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Run(m)) }

var (
	bg                    = context.Background()
	must                  = storetest.Must
	wantErr               = recordtest.WantErr
	wantWinners           = recordtest.WantWinners
	wantRefusedUnlessOpen = recordtest.WantRefusedUnlessOpen
	is                    = recordtest.Is
	second                = recordtest.Second
	t0                    = recordtest.T0
	someone               = recordtest.Someone
	plain                 = recordtest.Plain
	create                = recordtest.Create
	device                = recordtest.Device
	namesOf               = recordtest.DeviceIDs
	add                   = recordtest.AddFailures
	happened              = recordtest.Happened
	recorded              = recordtest.Recorded
	nothing               = recordtest.ChangeNothing
	revoking              = recordtest.Revoking
	set                   = recordtest.Set
	bind                  = recordtest.Bind
	callAllAccounts       = recordtest.CallAllAccounts
	answering             = recordtest.Answering
)

const quiet = recordtest.Quiet

func get[T any](t *testing.T) func(v T, err error) T { return recordtest.Get[T](t) }

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	recordtest.WantEqual(t, what, got, want)
}

func race[S any](n int, one, two S, f func(i int, s S) error) []error {
	return recordtest.Race(n, one, two, f)
}

func callers[S any](n, atOnce int, one, two S, f func(i int, s S) error) []error {
	return recordtest.Callers(n, atOnce, one, two, f)
}
