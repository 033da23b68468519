package limits

import (
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// The memory for traffic is bounded for any number of addresses, and the busiest
// address is never forgotten.
func TestTrafficIsBounded(t *testing.T) {
	company := &tenant.Company{Code: "acme", Policy: tenant.DefaultPolicy()}
	company.Limits.FailuresPerAddress.Per = time.Hour
	traffic, now := new(Traffic), time.Now()
	fail := func(address string, account int64) {
		at := &Attempt{Company: company, Address: address, Now: now, Traffic: traffic, counted: []string{addressFailures}}
		at.RecordTraffic(account, false)
	}
	const busy = "203.0.113.7"
	for i := range 100_000 {
		fail(fmt.Sprintf("10.%d.%d.%d", i>>16, i>>8&255, i&255), 1)
		if i%1000 == 0 {
			fail(busy, int64(i+1))
		}
	}
	if kept := len(traffic.recent) + len(traffic.older); kept > 2*maxWindows {
		t.Errorf("%d windows are kept, want at most %d", kept, 2*maxWindows)
	}
	var got record.Traffic
	traffic.describe(&got, windowKey{"acme", addressFailures, busy}, now)
	if want := (record.Traffic{Accounts: maxAccounts, Failures: 100}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}
