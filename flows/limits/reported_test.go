package limits

import (
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A full counter is reported once in its window. If its limit is raised, it can fill again.
func TestAFullCounterIsReportedOnce(t *testing.T) {
	var reported ReportedLimits
	now := time.Now()
	for i, c := range []struct {
		after time.Duration
		limit int
		want  bool
	}{{0, 100, true}, {0, 100, false}, {time.Hour, 200, true}, {time.Hour, 200, false}, {24 * time.Hour, 200, true}} {
		full := &record.FullError{Key: "acme/limit.sms_company/", Limit: c.limit, Until: now.Add(24 * time.Hour)}
		if got := reported.FirstTime(now.Add(c.after), full); got != c.want {
			t.Errorf("%d: got %v", i, got)
		}
	}
}
