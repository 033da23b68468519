package store

import (
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

func signingKeys(t *testing.T, s record.Accounts, company string) []record.SigningKey {
	t.Helper()
	return get[[]record.SigningKey](t)(s.SigningKeys(bg, company))
}

func signingKey(number int64) record.SigningKey {
	return record.SigningKey{Number: number, Sealed: odd, Created: t0.Add(time.Duration(number) * time.Hour)}
}

var signingKeyCases = []accountsCase{
	{
		name:    "signing keys",
		promise: "SigningKeys returns the company's keys, ordered by Number. RemoveSigningKeys deletes those below a number.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := one, two
			wantEqual(t, "at first", len(signingKeys(t, one, "acme")), 0)
			must(t, a.RemoveSigningKeys(bg, "acme", 5))
			for _, n := range []int64{1, 3, 2, 10} {
				must(t, a.AddSigningKey(bg, "acme", signingKey(n)))
			}
			must(t, b.AddSigningKey(bg, "Acme", signingKey(1)))
			wantEqual(t, "keys", signingKeys(t, two, "acme"), []record.SigningKey{signingKey(1), signingKey(2), signingKey(3), signingKey(10)})
			must(t, b.RemoveSigningKeys(bg, "acme", 3))
			wantEqual(t, "keys that are left", signingKeys(t, one, "acme"), []record.SigningKey{signingKey(3), signingKey(10)})
			wantEqual(t, "another company's", signingKeys(t, one, "Acme"), []record.SigningKey{signingKey(1)})
			wantEqual(t, "of none", len(signingKeys(t, one, "acm")), 0)
		},
	},
	{
		name:    "one signing key for each number",
		promise: "AddSigningKey returns ErrConflict if the company has a key with this Number. Of several callers, one succeeds.",
		run: func(t *testing.T, one, two record.Accounts) {
			wantWinners(t, race(20, one, two, func(i int, s record.Accounts) error {
				key := signingKey(7)
				key.Created = t0.Add(time.Duration(i) * time.Second)
				return s.AddSigningKey(bg, "acme", key)
			}), 1, is(record.ErrConflict))
			before := signingKeys(t, one, "acme")
			wantEqual(t, "keys", len(before), 1)
			wantErr(t, "AddSigningKey", two.AddSigningKey(bg, "acme", signingKey(7)), record.ErrConflict)
			wantEqual(t, "the key", signingKeys(t, two, "acme"), before)
		},
	},
}
