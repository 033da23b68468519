package flows_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Wrong keys are counted per address and, for IPv6, per network, as everywhere.
func TestWrongKeysOfAnAddressAreCounted(t *testing.T) {
	b := newHarness(t)
	limited := func(address string) bool {
		err := manage.CountWrongKey(t.Context(), b.Manager, address)
		if err != nil && !errors.Is(err, wire.ErrRestricted) {
			t.Fatal(err)
		}
		return err != nil
	}
	for i := range 30 {
		if limited("203.0.113.7") || limited(fmt.Sprintf("2001:db8::%x", i+1)) {
			t.Fatalf("limited after %d", i)
		}
	}
	for address, want := range map[string]bool{
		"203.0.113.7": true, "::ffff:203.0.113.7": true, "203.0.113.8": false, "2001:db8::ffff": true, "2001:db8:0:1::1": false,
	} {
		if limited(address) != want {
			t.Errorf("%s: limited is %v", address, !want)
		}
	}
	for i := range 269 { // the /48 has had 31
		if limited(fmt.Sprintf("2001:db8:0:%x::1", i+2)) {
			t.Fatalf("limited after %d networks", i)
		}
	}
	if !limited("2001:db8:0:ffff::1") {
		t.Error("a /48 has no limit of its own")
	}
	b.clock.advance(5*time.Minute + time.Second)
	if limited("203.0.113.7") {
		t.Error("limited for more than five minutes")
	}
}
