package sqlstore

import (
	"context"
	"testing"

	"github.com/mnemogate/mnemogate/store/recordtest"
)

var (
	bg      = context.Background()
	wantErr = recordtest.WantErr
)

func wantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	recordtest.WantEqual(t, what, got, want)
}
