package tokens

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

// keysOf returns the keys of a store with one secret.
func keysOf(secret string) (*Keys, error) {
	return NewKeys([]record.Secret{{Value: []byte(secret)}}, time.Time{})
}

// A store that loses its secrets, or a part of them, gives no keys that everybody knows.
func TestKeysAreMadeOfWholeSecrets(t *testing.T) {
	whole := record.Secret{Value: make([]byte, 32)}
	for name, secrets := range map[string][]record.Secret{
		"none": nil, "an empty one": {{}}, "half of one": {{Value: make([]byte, 16)}}, "a second one that is empty": {whole, {Number: 1}},
	} {
		if keys, err := NewKeys(secrets, time.Time{}); keys != nil || !errors.Is(err, record.ErrDamaged) {
			t.Errorf("%s: got %v, %v", name, keys, err)
		}
	}
}

// What is stored under these names can't be found without the store's secret, and is
// another company's under another name.
func TestNamesInAStoreAreKeyed(t *testing.T) {
	keys, err := keysOf(string(make([]byte, 32)))
	must(t, err)
	other, err := keysOf("the secret of another deployment")
	must(t, err)
	for what, name := range map[string]func(k *Keys, company string) string{
		"CounterName":   func(k *Keys, company string) string { return k.CounterName(company + "/+37060000001") },
		"LoginIDHash":   func(k *Keys, company string) string { return k.LoginIDHash(company, "alice") },
		"PasskeyHandle": func(k *Keys, company string) string { return string(k.PasskeyHandle(company, 1)) },
	} {
		if name(keys, "acme") == name(other, "acme") {
			t.Errorf("%s is the same under another store's secret", what)
		}
		if name(keys, "acme") == name(keys, "umbrella") {
			t.Errorf("%s is the same in another company", what)
		}
	}
}

// While a secret takes the place of another, nodes that know both accept what either made:
// also before it begins, since another node's clock may be ahead. After Overlap, tokens
// and tickets of the old one are refused, and what the store keeps still opens.
func TestTwoSecretsOverlap(t *testing.T) {
	begins := time.Date(2031, 5, 6, 7, 8, 9, 0, time.UTC)
	later := begins.Add(time.Minute)
	secrets := []record.Secret{{Value: bytes.Repeat([]byte("o"), 32)}, {Number: 1, Value: bytes.Repeat([]byte("n"), 32), Begins: begins}}
	at := func(secrets []record.Secret, now time.Time) *Keys {
		keys, err := NewKeys(secrets, now)
		must(t, err)
		return keys
	}
	before, after, alone := at(secrets[:1], begins), at(secrets, begins.Add(Overlap)), at(secrets[1:], begins)
	made := map[string]func(k *Keys) func(*Keys) bool{
		"page key": func(k *Keys) func(*Keys) bool {
			key := k.NewPageKey("acme", later)
			return func(k *Keys) bool { return k.VerifyPageKey("acme", key, begins) }
		},
		"challenge": func(k *Keys) func(*Keys) bool {
			response := k.NewChallenge("acme", later) + ".1"
			return func(k *Keys) bool { _, ok := k.VerifyWork("acme", 0, response, begins); return ok }
		},
		"challenge of a passkey": func(k *Keys) func(*Keys) bool {
			token := FormatPasskeyChallenge(k.NewPasskeyChallenge("acme", 1, k.PasskeyHandle("acme", 1), later))
			handle := before.PasskeyHandle("acme", 1) // stays
			if k == alone {
				handle = k.PasskeyHandle("acme", 1)
			}
			return func(k *Keys) bool { _, ok := k.OpenPasskeyChallenge("acme", 1, handle, token, begins); return ok }
		},
		"contact": func(k *Keys) func(*Keys) bool {
			token := k.SealContact("owner", Contact{Expires: later})
			return func(k *Keys) bool { _, ok := k.OpenContact("owner", token, begins); return ok }
		},
		"step-up": func(k *Keys) func(*Keys) bool {
			token := k.NewStepUp(StepUp{Company: "acme", Session: "id"}, later)
			return func(k *Keys) bool { _, ok := k.OpenStepUp("acme", "id", token, begins); return ok }
		},
		"code": func(k *Keys) func(*Keys) bool {
			hash := k.HashCode("token", record.CheckOTP, "+37060000001", "123456")
			return func(k *Keys) bool { return k.IsCode(hash, "token", record.CheckOTP, "+37060000001", "123456") }
		},
		"token": func(k *Keys) func(*Keys) bool {
			token := k.NewStateless(record.Session{Company: "acme", Expires: later}, "listing")
			return func(k *Keys) bool {
				_, _, listing, ok := k.OpenStateless(token)
				return ok && listing == TagOf("listing")
			}
		},
	}
	for name, issue := range made {
		ofOld, ofNew := issue(before), issue(alone)
		for now, want := range map[time.Time]struct{ old, new bool }{
			begins.Add(-time.Minute):             {true, true},
			begins:                               {true, true},
			begins.Add(Overlap - 1):              {true, true},
			begins.Add(Overlap):                  {false, true},
			begins.Add(Overlap + 24*time.Hour*9): {false, true},
		} {
			k := at(secrets, now)
			if ofOld(k) != want.old || ofNew(k) != want.new {
				t.Errorf("%s at %v: of the old secret %v, of the new %v", name, now.Sub(begins), ofOld(k), ofNew(k))
			}
		}
		if issue(after)(before) || !issue(at(secrets, begins))(alone) || !issue(at(secrets, begins.Add(-1)))(before) {
			t.Errorf("%s: made with the wrong secret", name)
		}
	}
	old, current := before.SealTOTP("acme", []byte("app")), after.SealTOTP("acme", []byte("app"))
	again := after.ResealTOTP("acme", "acme", old)
	if secret, err := alone.OpenTOTP("acme", again); string(secret) != "app" || err != nil {
		t.Errorf("sealed again: %q, %v", secret, err)
	}
	if secret, err := after.OpenTOTP("acme", old); string(secret) != "app" || err != nil {
		t.Errorf("not sealed again: %q, %v", secret, err)
	}
	for _, same := range []string{current, again, "", "rubbish", before.SealTOTP("umbrella", nil)} {
		if after.ResealTOTP("acme", "acme", same) != same {
			t.Errorf("%q was sealed again", same)
		}
	}
	if k := at(secrets, begins.Add(-1)); k.ResealTOTP("acme", "acme", current) != current {
		t.Error("a node whose clock is behind goes back to the old secret")
	}
}
