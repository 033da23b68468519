package memory

import (
	"context"
	"testing"

	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var (
	bg      = context.Background()
	must    = storetest.Must
	wantErr = recordtest.WantErr
	second  = recordtest.Second
	t0      = recordtest.T0
	hash    = recordtest.Hash
	session = recordtest.Session
)

func get[T any](t *testing.T) func(v T, err error) T { return recordtest.Get[T](t) }

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	recordtest.WantEqual(t, what, got, want)
}
