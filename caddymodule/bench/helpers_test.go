package bench

import (
	"testing"

	"github.com/mnemogate/mnemogate/store"
	"github.com/mnemogate/mnemogate/store/storetest"
)

const (
	testKey      = "test-api-key"
	testPassword = "correct horse battery"
	smsSecret    = "whsec_c2VjcmV0IG9mIHRoZSB0ZXN0cw=="
)

// startShared starts stores as the nodes that share them do.
func startShared(t testing.TB, accounts *store.Postgres, sessions *store.Redis) {
	t.Helper()
	storetest.Started(t, accounts.Start)
	name, err := store.Deployment(t.Context(), accounts.Accounts())
	if err != nil {
		t.Fatal(err)
	}
	sessions.SetDeployment(name)
	storetest.Started(t, sessions.Start)
}
