package store

import (
	"context"
	"errors"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A store that lost its secrets is of no deployment, and not of the same one as every other.
func TestAStoreWithoutSecretsIsOfNoDeployment(t *testing.T) {
	for _, secrets := range [][]record.Secret{nil, {{}}} {
		if name, err := Deployment(bg, forgetful{secrets: secrets}); name != "" || !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%v: got %q, %v", secrets, name, err)
		}
	}
}

// A forgetful is a store with these secrets.
type forgetful struct {
	record.Accounts
	secrets []record.Secret
}

func (f forgetful) Secrets(context.Context) ([]record.Secret, error) { return f.secrets, nil }
