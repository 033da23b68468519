package store

import (
	"context"
	"os"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(storetest.Run(m)) }

var (
	bg              = context.Background()
	must            = storetest.Must
	wantErr         = recordtest.WantErr
	wantFull        = recordtest.WantFull
	wantWinners     = recordtest.WantWinners
	wantGone        = recordtest.WantGone
	wantSession     = recordtest.WantSession
	is              = recordtest.Is
	second          = recordtest.Second
	t0              = recordtest.T0
	odd             = recordtest.Odd
	someone         = recordtest.Someone
	plain           = recordtest.Plain
	create          = recordtest.Create
	device          = recordtest.Device
	namesOf         = recordtest.DeviceIDs
	passkey         = recordtest.Passkey
	add             = recordtest.AddFailures
	happened        = recordtest.Happened
	recorded        = recordtest.Recorded
	nothing         = recordtest.ChangeNothing
	revoking        = recordtest.Revoking
	set             = recordtest.Set
	bind            = recordtest.Bind
	callAllAccounts = recordtest.CallAllAccounts
	hash            = recordtest.Hash
	session         = recordtest.Session
	names           = recordtest.SessionIDs
	newCode         = recordtest.NewCode
	callAllSessions = recordtest.CallAllSessions
)

const noisy, quiet = recordtest.Noisy, recordtest.Quiet

func get[T any](t *testing.T) func(v T, err error) T { return recordtest.Get[T](t) }

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	recordtest.WantEqual(t, what, got, want)
}

func race[S any](n int, one, two S, f func(i int, s S) error) []error {
	return recordtest.Race(n, one, two, f)
}

// inGeneration returns a in another generation.
func inGeneration(generation int64, a record.Account) record.Account {
	a.Generation = generation
	return a
}
