// Package store is where mnemogate keeps its data. Its packages implement record.Accounts
// and record.Sessions, whose comments say what every method promises: sqlite keeps
// accounts and sessions, postgres accounts, and redis sessions. A memory remembers
// sessions. What the SQL stores share is in sqlstore.
//
// Read record first and then one store, beginning with sqlite/sqlite.go. All stores pass
// the same tests, in conformance*_test.go. To fix a store, first add a test there.
package store

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Deployment returns a name for the deployment that accounts belongs to, derived from its
// first Secret, so that the name stays. Deployments that share a Redis use it to keep their
// data apart: see redis.Store.SetDeployment. Its errors are those of Secrets.
func Deployment(ctx context.Context, accounts record.Accounts) (string, error) {
	secrets, err := accounts.Secrets(ctx)
	if err == nil {
		err = record.CheckSecrets(secrets)
	}
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, secrets[0].Value)
	mac.Write([]byte("mnemogate deployment"))
	return hex.EncodeToString(mac.Sum(nil)[:8]), nil
}
