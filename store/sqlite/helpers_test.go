package sqlite

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
	second                = recordtest.Second
	wantGone              = recordtest.WantGone
	wantSession           = recordtest.WantSession
	wantRefusedUnlessOpen = recordtest.WantRefusedUnlessOpen
	t0                    = recordtest.T0
	plain                 = recordtest.Plain
	create                = recordtest.Create
	hash                  = recordtest.Hash
	session               = recordtest.Session
)

func get[T any](t *testing.T) func(v T, err error) T { return recordtest.Get[T](t) }

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	recordtest.WantEqual(t, what, got, want)
}

func race[S any](n int, one, two S, f func(i int, s S) error) []error {
	return recordtest.Race(n, one, two, f)
}
