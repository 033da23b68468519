package flows_test

import (
	"context"
	"errors"
	"testing"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Wrong keys are counted per address, even if the client hangs up.
// TestFailuresOfAnAddressAreCounted has the forms of addresses.
func TestWrongKeysOfAnAddressAreCounted(t *testing.T) {
	b := newHarness(t)
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	events := b.record()
	for i := range 40 {
		err := manage.CountWrongKey(gone, b.Manager, "203.0.113.7")
		if i < 30 && err != nil || i >= 30 && !errors.Is(err, wire.ErrRestricted) {
			t.Errorf("%d wrong keys: got %v", i+1, err)
		}
	}
	if told := named(events(), record.KeyWrong); len(told) != 31 || told[29].Reason != "" || told[30].Reason != "limit.address" {
		t.Errorf("the events are %v", told)
	}
	if err := manage.CountWrongKey(t.Context(), b.Manager, "203.0.113.8"); err != nil {
		t.Error(err)
	}
}
