package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/sqlite"
)

// The dashboard and the alerts ask only for metrics and labels that exist.
func TestDashboardAndAlertsUseOurMetrics(t *testing.T) {
	known := map[string][]string{}
	for _, k := range MetricKinds {
		known[k.Name] = append([]string{"instance"}, k.Labels...)
		if k.Kind == "histogram" {
			known[k.Name+"_bucket"], known[k.Name+"_count"], known[k.Name+"_sum"] = append(known[k.Name], "le"), known[k.Name], known[k.Name]
			delete(known, k.Name)
		}
	}
	metric := regexp.MustCompile(`(mnemogate_\w+)(?:\{([^}]*)\})?`)
	label := regexp.MustCompile(`(\w+)(?:=|!=|=~|!~)"([^"]*)"`)
	locks := func(value string) bool {
		return slices.ContainsFunc(flows.EventKinds, func(k record.EventKind) bool { return k.Name == record.EventPrefix+value })
	}
	for _, file := range []string{"grafana.json", "alerts.yaml"} {
		content, err := os.ReadFile(file)
		must(t, err)
		if strings.HasSuffix(file, ".json") && !json.Valid(content) {
			t.Errorf("%s is no JSON", file)
		}
		text := strings.ReplaceAll(string(content), `\"`, `"`)
		found := metric.FindAllStringSubmatch(text, -1)
		if len(found) < 10 {
			t.Errorf("%s: only %d metrics were found", file, len(found))
		}
		for _, m := range found {
			labels, ok := known[m[1]]
			if !ok {
				t.Errorf("%s: there is no metric %s", file, m[1])
			}
			for _, l := range label.FindAllStringSubmatch(m[2], -1) {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: %s has no label %s", file, m[1], l[1])
				}
				for value := range strings.SplitSeq(l[2], "|") {
					if l[1] == "reason" && strings.Contains(m[1], "_l") && !locks(value) {
						t.Errorf("%s: there is no lock %s", file, value)
					}
				}
			}
		}
	}
}

// An oldSystem answers about passwords as it is told.
type oldSystem struct {
	right bool
	err   error
}

func (o *oldSystem) VerifyPassword(context.Context, tenant.PasswordQuestion) (bool, error) {
	return o.right, o.err
}

func TestPasswordsOfAnOldSystemAreCounted(t *testing.T) {
	old := new(oldSystem)
	c := counted(tenant.Company{Code: "moving", Migrate: old})
	for range 3 {
		c.Migrate.VerifyPassword(t.Context(), tenant.PasswordQuestion{})
	}
	old.right = true
	c.Migrate.VerifyPassword(t.Context(), tenant.PasswordQuestion{})
	old.right, old.err = false, errors.New("down")
	for range 2 {
		c.Migrate.VerifyPassword(t.Context(), tenant.PasswordQuestion{})
	}
	for result, want := range map[string]float64{"wrong": 3, "right": 1, "failed": 2} {
		m := new(dto.Metric)
		if err := migratePasswords.WithLabelValues("moving", result).Write(m); err != nil || m.GetCounter().GetValue() != want {
			t.Errorf("%s: got %v, %v, want %v", result, m, err, want)
		}
	}
}

// A receiver whose delivery a reload ends has not failed. One that was too slow has.
func TestDeliveriesThatEndAreNotCounted(t *testing.T) {
	failed := deliveries.WithLabelValues("reloading", "failed")
	c := counted(tenant.Company{Code: "reloading", Events: tenant.Events{Receiver: deaf{}}})
	ended, end := context.WithCancel(t.Context())
	end()
	late, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	for ctx, want := range map[context.Context]float64{ended: 0, late: 1, t.Context(): 1} {
		count := func() float64 {
			m := new(dto.Metric)
			must(t, failed.Write(m))
			return m.GetCounter().GetValue()
		}
		before := count()
		if c.Events.Receiver.Deliver(ctx, record.OutboxEvent{}) == nil {
			t.Error("the error is lost")
		}
		if got := count() - before; got != want {
			t.Errorf("counted %v times, want %v", got, want)
		}
	}
}

// A deaf is a receiver that does not answer.
type deaf struct{}

func (deaf) Deliver(context.Context, record.OutboxEvent) error { return errors.New("no answer") }

// A client that hung up is no sign that a service does not answer.
func TestClientsThatHangUpHaveALabel(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	for _, c := range []struct {
		ctx    context.Context
		cause  error
		result string
	}{
		{ended, fmt.Errorf("reading: %w", context.Canceled), "canceled"},
		{ended, io.ErrUnexpectedEOF, "service.unavailable"},
		{t.Context(), fmt.Errorf("reading: %w", context.Canceled), "service.unavailable"}, // a store has canceled what it was asked
	} {
		count := func() float64 {
			m := new(dto.Metric)
			_ = protected.WithLabelValues(c.result, "").Write(m)
			return m.GetCounter().GetValue()
		}
		before := count()
		CountProtected(c.ctx, wire.Unavailable("loading the session", c.cause), false)
		if got := count() - before; got != 1 {
			t.Errorf("%s: counted %v times", c.result, got)
		}
	}
}

// Only a store that did not answer counts as an error.
func TestStoreAnswersAreNoErrors(t *testing.T) {
	for err, want := range map[error]bool{
		record.ErrNotFound: false,
		fmt.Errorf("loading: %w", record.ErrConflict):  false,
		&record.FullError{}:                            false,
		&record.TakenError{Field: "login_name"}:        false,
		context.Canceled:                               false,
		context.DeadlineExceeded:                       true,
		errors.New("connection refused"):               true,
		fmt.Errorf("dialing: %w", io.ErrUnexpectedEOF): true,
	} {
		if got := unanswered(err); got != want {
			t.Errorf("%v: got %v, want %v", err, got, want)
		}
	}
	if unanswered(nil) {
		t.Error("a success counts as an error")
	}
	db := sqlite.Open(t.TempDir() + "/a.db")
	db.Observe(observeCall)
	must(t, db.Start(t.Context()))
	defer db.Close()
	failures := storeSeconds.WithLabelValues("accounts", "update_failures", "error").(prometheus.Histogram)
	count := func() uint64 {
		m := new(dto.Metric)
		must(t, failures.Write(m))
		return m.GetHistogram().GetSampleCount()
	}
	before := count()
	refuse := func(*record.FailureCount) error { return errors.New("not so") }
	if db.Accounts().UpdateFailures(t.Context(), time.Now(), record.FailureKey{Company: "acme", Account: 1}, record.WrongCodes, refuse) == nil {
		t.Error("the function's error is lost")
	}
	if count() != before {
		t.Error("the error of a function that the store was handed counts as its own")
	}
}
