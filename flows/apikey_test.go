package flows_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Whatever asks for an API key tells which it was, and events do. Nothing is told of
// a wrong one but the company that it was sent to, if there is one.
func TestWhichAPIKeyIsUsed(t *testing.T) {
	b := newKeyedBench(t)
	b.company.APIKeys = append(b.company.APIKeys, sha256.Sum256([]byte("new key")))
	var used []string
	b.KeyUsed = func(company, key string) { used = append(used, company+" "+key) }
	asks := len(b.asks(code))
	events := b.record()
	for _, c := range []struct {
		company, key string
		told         string // what the key is called; empty if it is wrong
		about        string // the company of events
	}{
		{code, "key", "1", code},
		{code, "new key", "2", code},
		{code, b.pageKey(code), flows.KeyOfPage, code},
		{code, "wrong", "", code},
		{code, b.pageKey("other"), "", code},
		{"other", "new key", "", "other"},
		{"nobody", "key", "", ""},
	} {
		used, *events = nil, nil
		b.asks(c.company, c.key)
		var want []string
		if c.told != "" {
			want = slices.Repeat([]string{c.company + " " + c.told}, asks)
		}
		if !slices.Equal(used, want) {
			t.Errorf("%s with %s: used %q, want %q", c.company, c.key, used, want)
		}
		if len(*events) != len(flows.Routes) {
			t.Errorf("%s with %s: %d events", c.company, c.key, len(*events))
		}
		for _, e := range *events {
			if e.Key != c.told || e.Company != c.about || (e.Result == wire.ErrAPIKeyInvalid.Code) != (c.told == "") {
				t.Errorf("%s with %s: %+v", c.company, c.key, e)
			}
			checkEvent(t, e)
		}
	}

	used = nil
	owner, err := b.CompanyByKey([]string{"new key"})
	if err != nil || owner != b.company || fmt.Sprint(used) != "["+code+" 2]" {
		t.Errorf("by its key: %v, %q", err, used)
	}
	used = nil
	if _, err := b.CompanyByKey([]string{"new key", "key"}); !errors.Is(err, wire.ErrAPIKeyInvalid) || used != nil {
		t.Errorf("two keys: %v, %q", err, used)
	}
	b.company.NoAPIKey, *events = true, nil
	if b.asks(code, "key"); used != nil || (*events)[0].Key != "" {
		t.Errorf("no key is asked for: %q, %+v", used, (*events)[0])
	}
}
