package app

import (
	"cmp"
	"fmt"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/causes"
)

// This file finds out for the doctor what users have suffered from in the last minutes. It
// compares metrics with what they were.

// A Symptom is a Weakness that users may notice now.
type Symptom struct {
	Weakness
	Failed bool // users do notice it, or would without another gateway
}

// A watched is a sign of a symptom: the series of a metric whose label has a value.
type watched struct {
	directive    string
	metric       prometheus.Collector
	label, value string  // empty for all series
	least        float64 // this many are a symptom
	share        float64 // and must be at least this share of all of the company's, or of the gateway's
	failed       bool
	what, advice string
}

var (
	lostLines       = prometheus.NewCounterFunc(prometheus.CounterOpts{}, func() float64 { return float64(logs.Lost()) })
	answeredDefects = prometheus.NewCounterFunc(prometheus.CounterOpts{}, func() float64 { return float64(serviceErrors.Load()) })
)

// symptoms lists what is watched. To watch more, add a line.
var symptoms = []watched{
	{"requests", requests, "result", wire.ErrUnavailable.Code, 3, .01, true, "requests got service.unavailable", "see what else failed here, and look for \"a service did not answer\" in the log"},
	{"requests", answeredDefects, "", "", 1, 0, true, "requests got service.error", "look for \"internal error\" in the log, and report it"},
	{"requests", requests, "result", wire.ErrRestricted.Code, 10, .1, false, "requests were refused by limits and locks", "mnemogate_locks_total and the audit log say by which; if users share an address or a proxy, see Shared addresses in docs/operators.md; if the budget of SMS is used up, see Someone pumps SMS in the runbook"},
	{"requests", requests, "result", wire.ErrAPIKeyInvalid.Code, 10, .1, false, "requests had a wrong API key", "find the app that has an old key, or the stranger who has none"},
	{"requests", requests, "result", wire.ErrCredentialsInvalid.Code, 30, .5, false, "logins had a wrong login id or password", "somebody may try stolen passwords: see the runbook"},
	{"requests", requests, "result", wire.ErrPasswordInvalid.Code, 30, .5, false, "passwords were wrong", "somebody may try stolen passwords: see the runbook"},
	{"requests for the application", protected, "result", wire.ErrUnavailable.Code, 3, .01, true, "got service.unavailable", "see what else failed here, and look for \"a service did not answer\" in the log"},
	// Some tokens always end. But a node that does not share its store refuses its part of all.
	{"requests for the application", protected, "result", wire.ErrTokenInvalid.Code, 30, .2, false, "had a token of a session that is not in the store, which is unusual from a fifth on", "if users are logged out at random, see the runbook; ignore this if you have just ended all sessions"},
	{"stores", storeSeconds, "result", "error", 3, .01, false, "calls to the stores had no answer", "see the checks of the stores, and the log"},
	{"hashing", hashWait, "result", "busy", 1, 0, true, "logins were refused because too many passwords waited", "add nodes or CPUs, or find out who sends so many"},
	{"messages", messages, "result", "failed", 1, .1, true, "messages were not taken by the gateway", "the log says why; try caddy mnemogate doctor --send-test sms:<phone> or mail:<address>, unless the gateway has only refused wrong numbers"},
	{"messages", messagesDropped, "", "", 1, 0, true, "messages were dropped because too many waited", "find out why the gateway is slow"},
	{"captcha", captchas, "result", "failed", 1, .1, true, "captchas were not verified", "look for \"a service did not answer\" in the log"},
	{"captcha", captchas, "result", "wrong", 10, .9, false, "captchas were wrong", "compare hostname with the hosts of the pages (the log has \"a captcha was solved on another host\"), and the site key with the secret; or programs try"},
	{"password breached", breachedLookups, "outcome", "failed", 1, .1, false, "passwords were not looked up", "the log says why"},
	{"password migrate", migratePasswords, "result", "failed", 1, .1, true, "passwords were not verified by the old system", "look for \"a service did not answer\" in the log"},
	{"oauth", providerLogins, "result", "failed", 1, .1, true, "logins failed at a provider", "the log says why"},
	{"events", deliveries, "result", "dropped", 1, 0, true, "events were dropped after three days", "let the backend read the accounts again that the audit log names (mnemogate.outbox.dropped)"},
	{"events app", eventsDropped, "", "", 1, 0, false, "events were missed by Caddy's event handlers, which are too slow", "the audit log has all of them"},
	{"logs", lostLines, "", "", 1, 0, true, "lines were lost", "make room on the disk of the log, or see what reads it"},
}

// An origin is what a symptom is told of.
type origin struct{ company, channel, gateway string }

// A sum adds up the series of an origin: all of a metric, and those that a watched is about.
type sum struct{ hits, all float64 }

func (w watched) read() map[origin]sum {
	series := make(chan prometheus.Metric)
	go func() {
		defer close(series)
		w.metric.Collect(series)
	}()
	counts := map[origin]sum{}
	for s := range series {
		var m dto.Metric
		if s.Write(&m) != nil {
			continue
		}
		n, of, hit := m.GetCounter().GetValue()+float64(m.GetHistogram().GetSampleCount()), origin{}, w.label == ""
		for _, l := range m.Label {
			switch l.GetName() {
			case "company":
				of.company = l.GetValue()
			case "channel":
				of.channel = l.GetValue()
			case "gateway":
				of.gateway = l.GetValue()
			case w.label:
				hit = l.GetValue() == w.value
			}
		}
		c := counts[of]
		c.all += n
		if hit {
			c.hits += n
		}
		counts[of] = c
	}
	return counts
}

// UsedUp returns the budgets of SMS that are used up, as far as this node knows.
func (a *App) UsedUp() (found []Symptom) {
	service := a.service.Load()
	if service == nil {
		return nil
	}
	for _, b := range []struct{ event, option, whose string }{
		{record.LimitSMSCompany, "sms_per_company", "the company's budget of SMS"},
		{record.LimitSMSCountry, "sms_per_country", "the budget of SMS to "},
	} {
		for _, full := range service.UsedUp(b.event) {
			found = append(found, Symptom{Weakness{Company: full.Company, Directive: "limits " + b.option, Weakness: guest.Weakness{
				Message: fmt.Sprintf("%s%s is used up: until %s, no such SMS is sent", b.whose, full.Of, full.Until.UTC().Format(time.RFC3339)),
				Advice:  "if its users used it up, raise " + b.option + " and reload; otherwise see Someone pumps SMS in the runbook",
			}}, true})
		}
	}
	return found
}

// sampleEvery is how long after a sample the next one is taken.
const sampleEvery = 2 * time.Minute

// A sample is what was read at a time; zero at the start of the process.
type sample struct {
	at     time.Time
	counts []map[origin]sum // by the index in symptoms
}

var samples = struct {
	sync.Mutex
	older, newer sample
}{older: zero(), newer: zero()}

func zero() sample { return sample{time.Now(), make([]map[origin]sum, len(symptoms))} }

// sampleMetrics takes the next sample if it is time.
func sampleMetrics() {
	samples.Lock()
	defer samples.Unlock()
	if time.Since(samples.newer.at) < sampleEvery {
		return
	}
	next := zero()
	for i, w := range symptoms {
		next.counts[i] = w.read()
	}
	samples.older, samples.newer = samples.newer, next
}

// Symptoms returns what has gone wrong since the older sample, which is some minutes old.
func Symptoms() (found []Symptom) {
	samples.Lock()
	before := samples.older
	samples.Unlock()
	since := time.Since(before.at).Round(time.Second)
	add := func(company, directive, message, advice string, failed bool) {
		found = append(found, Symptom{Weakness{Company: company, Directive: directive, Weakness: guest.Weakness{Message: message, Advice: advice}}, failed})
	}
	for i, w := range symptoms {
		for of, now := range w.read() {
			hits, all := now.hits-before.counts[i][of].hits, now.all-before.counts[i][of].all
			if hits >= w.least && hits >= w.share*all {
				count := fmt.Sprintf("%.0f of %.0f", hits, all)
				if w.label == "" { // the metric counts nothing else
					count = fmt.Sprintf("%.0f", hits)
				}
				what := w.what
				if of.gateway != "" {
					what += " " + of.gateway + " for " + of.channel
				}
				add(of.company, w.directive, fmt.Sprintf("in the last %s, %s %s", since, count, what), w.advice, w.failed)
			}
		}
	}
	if f := background.LastFailure.Load(); f != nil && time.Since(f.At) < since {
		what, step := causes.Split(f.Err)
		add("", "background work", fmt.Sprintf("%s failed %s ago: %s", f.Doing, time.Since(f.At).Round(time.Second), what), cmp.Or(step, "it will be retried; the log has more"), false)
	}
	if length, limit := hasher().Queue(); 2*length > limit {
		add("", "hashing", fmt.Sprintf("logins wait for their turn: %d; further ones are refused from %d", length, limit), "add nodes or CPUs, or find out who sends so many", false)
	}
	return found
}
