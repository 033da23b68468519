package tokens

import "testing"

// What is stored under these names can't be found without the store's secret, and is
// another company's under another name.
func TestNamesInAStoreAreKeyed(t *testing.T) {
	keys, err := NewKeys(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	other, err := NewKeys([]byte("another store's secret"))
	if err != nil {
		t.Fatal(err)
	}
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
