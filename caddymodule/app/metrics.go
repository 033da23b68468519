package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/caddymodule/logs"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/memory"
)

// The metrics are in Caddy's registry: at /metrics of the admin endpoint, and on
// routes with the directive metrics. They belong to the process and not to the
// config, so that reloads don't reset them. No label contains text that a client
// sent.
var (
	requests = counters("mnemogate_requests_total",
		"Requests to the routes of the auth API, not to session, me/, client.json or the accounts API. route has no auth/, or is none; result is success, canceled (the client hung up) or the error_code.",
		"company", "route", "result")
	// With the label route alone, these are at most 190 series. With company and result,
	// they could be hundreds of thousands.
	requestSeconds = histogram("mnemogate_request_seconds",
		"Duration of the requests in mnemogate_requests_total, from their header to their answer.",
		[]float64{.1, .25, .5, 1, 2.5, 5, 10},
		"route")
	keyRequests = counters("mnemogate_api_key_requests_total",
		"Requests with a valid API key. key is its place in api_key, from 1, or page.",
		"company", "key")
	protected = counters("mnemogate_protected_requests_total",
		"Requests for the application. result is pass, public (without a user), canceled (the client hung up) or the error_code.",
		"result", "reason")
	locks = counters("mnemogate_locks_total",
		"Locks and limits that were reached.",
		"company", "reason")
	addressLimits = counters("mnemogate_address_limits_total",
		"Addresses that reached a limit, once per window and node. kind is users or strangers.",
		"company", "reason", "kind")
	sessionsBegun = counters("mnemogate_sessions_begun_total",
		"Steps into a state.",
		"company", "state")
	sessionsEnded = counters("mnemogate_sessions_ended_total",
		"Sessions that were revoked, by the reason of mnemogate.session.ended.",
		"company", "reason")
	accountChanges = counters("mnemogate_account_changes_total",
		"Changes of accounts, named like the mnemogate.account events.",
		"company", "change")
	messages = counters("mnemogate_messages_total",
		"SMS and mails for a gateway. result is accepted or failed; country is a calling code, such as +370.",
		"company", "channel", "type", "result", "country", "gateway")
	messagesDropped = counters("mnemogate_messages_dropped_total",
		"Background messages that were dropped because the gateway was too slow. The log names the accounts.",
		"company")
	codesUsed = counters("mnemogate_codes_used_total",
		"Correct codes from SMS.",
		"company", "country")
	deliveries = counters("mnemogate_outbox_deliveries_total",
		"Events for receivers. result is delivered, failed (will be retried), gone (the receiver wants no more until caddy reload --force) or dropped (after three days; its tries were failed).",
		"company", "result")
	captchas = counters("mnemogate_captchas_total",
		"Captcha responses for a provider. result is right, wrong or failed (no answer).",
		"company", "result")
	breachedLookups = counters("mnemogate_breached_lookups_total",
		"Passwords looked up in the breached list. outcome is listed, unlisted or failed (without require, the password passed).",
		"company", "outcome")
	migratePasswords = counters("mnemogate_migrate_passwords_total",
		"Passwords that password migrate asked about. result is right, wrong or failed (no answer).",
		"company", "result")
	providerLogins = counters("mnemogate_provider_logins_total",
		"OAuth codes. provider is the provider_id; result is accepted, refused or failed (a fault of the provider or the configuration).",
		"company", "provider", "result")
	storeSeconds = histogram("mnemogate_store_seconds",
		"Duration of calls to the stores. store is accounts or sessions; result is ok or error (no answer).",
		[]float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5},
		"store", "method", "result")
	replays = counters("mnemogate_replays_total",
		"Requests with an Idempotency-Key that got an earlier answer. No other metric counts them.").WithLabelValues()
	storeDamage = counters("mnemogate_store_damage_total",
		"Times that the SQLite file was found damaged, or not in its place.").WithLabelValues()
	hashWait = histogram("mnemogate_hash_wait_seconds",
		"Time that logins waited to hash. result is turn or busy (refused).",
		[]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2},
		"result")
	eventsDropped = counters("mnemogate_events_dropped_total",
		"Events that handlers of the events app were too slow for.").WithLabelValues()

	buildInfo = desc("mnemogate_build_info", "gauge",
		"Always 1.",
		"version")

	serviceErrors atomic.Uint64
	defects       = desc("mnemogate_defects_total", "counter",
		"Requests that got service.error, defects of the accounts API, and failed background work. The log says why.")

	// These are read from the running config at each scrape.
	up = desc("mnemogate_up", "gauge",
		"1 once the stores have answered and the service has started.")
	memorySessions = desc("mnemogate_memory_sessions", "gauge",
		"Sessions in this node's memory.")
	memoryHits = desc("mnemogate_memory_hits_total", "counter",
		"Tokens whose session was in memory.")
	memoryMisses = desc("mnemogate_memory_misses_total", "counter",
		"Tokens about which the store was asked, also unknown ones.")
	memoryTrusted = desc("mnemogate_memory_trusted", "gauge",
		"1 while this node receives revocations. While it is 0, the node asks the store for every request.")
	hashQueue = desc("mnemogate_hash_queue", "gauge",
		"Logins that wait for a hash or are hashing.")
	hashQueueLimit = desc("mnemogate_hash_queue_limit", "gauge",
		"The maximum of mnemogate_hash_queue. Further logins are refused.")
	outboxEvents = desc("mnemogate_outbox_events", "gauge",
		"Events that wait for a receiver, the same on all nodes. Absent if none wait.",
		"company")
	outboxOldest = desc("mnemogate_outbox_oldest_seconds", "gauge",
		"Age of the oldest waiting event.",
		"company")
	lastBackup = desc("mnemogate_last_backup_timestamp_seconds", "gauge",
		"Unix time of the process's last backup. Absent before the first.")
	logStalled = desc("mnemogate_log_stalled", "gauge",
		"1 while the output of a log does not take its lines.")
	logLinesLost = desc("mnemogate_log_lines_lost_total", "counter",
		"Lines of mnemogate's logs that their output did not take.")
	backgroundMessages = desc("mnemogate_background_messages", "gauge",
		"Messages that are being sent in the background.")

	// These are looked up once, so that counting a request that passes costs one
	// atomic addition. The rare ones begin at 0.
	passed       = protected.WithLabelValues("pass", "")
	passedPublic = protected.WithLabelValues("public", "")
	hashTurn     = hashWait.WithLabelValues("turn")
	hashBusy     = hashWait.WithLabelValues("busy")
)

// A MetricKind documents a metric.
type MetricKind struct {
	Name   string
	Kind   string
	Help   string
	Labels []string
}

var (
	// MetricKinds lists all metrics.
	MetricKinds []MetricKind
	collectors  = []prometheus.Collector{live{}}
	descs       []*prometheus.Desc // of live
)

func counters(name, help string, labels ...string) *prometheus.CounterVec {
	MetricKinds = append(MetricKinds, MetricKind{name, "counter", help, labels})
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	collectors = append(collectors, c)
	return c
}

func histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	MetricKinds = append(MetricKinds, MetricKind{name, "histogram", help, labels})
	h := prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
	collectors = append(collectors, h)
	return h
}

func desc(name, kind, help string, labels ...string) *prometheus.Desc {
	MetricKinds = append(MetricKinds, MetricKind{name, kind, help, labels})
	d := prometheus.NewDesc(name, help, labels, nil)
	descs = append(descs, d)
	return d
}

// RegisterMetrics adds the metrics to the registry of a config, unless they are
// already there.
func RegisterMetrics(ctx caddy.Context) error {
	registry := ctx.GetMetricsRegistry()
	for _, c := range collectors {
		err := registry.Register(c)
		if _, twice := errors.AsType[prometheus.AlreadyRegisteredError](err); err != nil && !twice {
			return fmt.Errorf("registering the metrics: %w", err)
		}
	}
	return nil
}

// registerMetrics also sets rare metrics to 0, as counted does, so that the first event
// shows as an increase.
func (a *App) registerMetrics(ctx caddy.Context) error {
	if err := RegisterMetrics(ctx); err != nil {
		return err
	}
	for code, c := range a.Companies {
		messagesDropped.WithLabelValues(code)
		for i := range c.effective.APIKeys {
			keyRequests.WithLabelValues(code, strconv.Itoa(i+1))
		}
		deliveries.WithLabelValues(code, "dropped") // also without a receiver: events may be left from a former one
		deliveries.WithLabelValues(code, "gone")
		for _, kind := range flows.EventKinds {
			if reason, ok := record.CutLimit(kind.Name); ok {
				locks.WithLabelValues(code, reason)
				if slices.Contains(record.AddressLimits, kind.Name) {
					addressLimits.WithLabelValues(code, reason, record.TrafficOfUsers)
					addressLimits.WithLabelValues(code, reason, record.TrafficOfStrangers)
				}
			}
		}
	}
	return nil
}

// codesUsedBy are the events of a right code.
var codesUsedBy = []string{
	flows.RouteByPath("auth/checkotp").Event(record.Success),
	flows.RouteByPath("auth/recovery/checkotp").Event(record.Success),
	flows.RouteByPath("stepup/check").Event(record.Success),
	record.ContactCodeUsed,
}

// countEvent counts events other than the results of requests. CountRequest and
// CountProtected count those.
func countEvent(e record.Event) {
	if reason, ok := record.CutLimit(e.Name); ok {
		locks.WithLabelValues(e.Company, reason).Inc()
		if e.Traffic != nil {
			addressLimits.WithLabelValues(e.Company, reason, e.Traffic.Guess()).Inc()
		}
	} else if change, ok := strings.CutPrefix(e.Name, record.AccountPrefix); ok {
		accountChanges.WithLabelValues(e.Company, change).Inc()
	} else if e.Name == record.OutboxDropped {
		deliveries.WithLabelValues(e.Company, "dropped").Inc()
	} else if e.Name == record.SessionEnded {
		sessionsEnded.WithLabelValues(e.Company, e.Reason).Inc()
	} else if e.Country != "" && slices.Contains(codesUsedBy, e.Name) {
		codesUsed.WithLabelValues(e.Company, e.Country).Inc()
	}
}

// countSent implements session.Config.Sent.
func countSent(m message.Message, gateway string, err error) {
	channel, country := "mail", ""
	if !message.ByMail(m.To) {
		channel, country = "sms", tenant.CallingCode(m.To)
	}
	messages.WithLabelValues(m.Company, channel, m.Type, orFailed("accepted", err), country, gateway).Inc()
}

// countDropped implements session.Config.Dropped.
func countDropped(company string) { messagesDropped.WithLabelValues(company).Inc() }

// CountRequest counts the response of an auth route whose request came at the time began.
func (a *App) CountRequest(ctx context.Context, company string, route *flows.Route, began time.Time, state record.State, err error) {
	if a.Companies[company] == nil {
		company = "unknown"
	}
	name := "none"
	if route != nil {
		name = strings.TrimPrefix(route.Path, "auth/")
	}
	result, _ := wire.ResultOf(ctx, err)
	requests.WithLabelValues(company, name, result).Inc()
	requestSeconds.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err == nil && state != record.None && (route == nil || !route.StepsUp) { // a step-up raises the session that is there
		sessionsBegun.WithLabelValues(company, string(state)).Inc()
	}
}

// CountReplay counts an answer if it was given before to the same request.
func CountReplay(replayed bool) {
	if replayed {
		replays.Inc()
	}
}

// countKey implements flows.Service.KeyUsed.
func countKey(company, key string) { keyRequests.WithLabelValues(company, key).Inc() }

// CountProtected counts a decision about a request for the backend. On a public
// path, a request may pass without a user (anonymous).
func CountProtected(ctx context.Context, err error, anonymous bool) {
	switch {
	case err != nil:
		result, _ := wire.ResultOf(ctx, err)
		protected.WithLabelValues(result, string(wire.ReasonOf(err))).Inc()
	case anonymous:
		passedPublic.Inc()
	default:
		passed.Inc()
	}
}

// CountDefect counts an answer that says that mnemogate has a defect.
func CountDefect() { serviceErrors.Add(1) }

// counted returns the company with its providers and receivers wrapped, so that calls
// to them are counted.
func counted(c tenant.Company) *tenant.Company {
	if c.Events.Receiver != nil {
		c.Events.Receiver, c.Events.Traceparent = countedReceiver{c.Events.Receiver, c.Code}, guest.Traceparent
	}
	if c.Breached.List != nil {
		c.Breached.List = countedBreachedList{c.Breached.List, c.Code}
		breachedLookups.WithLabelValues(c.Code, "failed")
	}
	if c.Migrate != nil {
		c.Migrate = countedMigrate{c.Migrate, c.Code}
		migratePasswords.WithLabelValues(c.Code, "failed")
	}
	switch c.Captcha.(type) {
	case nil, tenant.ReusableCaptcha, tenant.ProofOfWork: // these ask no provider
	default:
		c.Captcha = countedCaptcha{c.Captcha, c.Code}
		captchas.WithLabelValues(c.Code, "failed")
	}
	c.OAuth = maps.Clone(c.OAuth)
	for id, settings := range c.OAuth {
		settings.Provider = countedProvider{settings.Provider, c.Code, strconv.Itoa(id)}
		providerLogins.WithLabelValues(c.Code, strconv.Itoa(id), "failed")
		c.OAuth[id] = settings
	}
	return &c
}

// orFailed returns the label of the result of a call.
func orFailed(result string, err error) string {
	if err != nil {
		return "failed"
	}
	return result
}

// verdict returns the label of what was verified.
func verdict(ok bool) string {
	if ok {
		return "right"
	}
	return "wrong"
}

type countedReceiver struct {
	tenant.EventReceiver
	company string
}

// Deliver implements tenant.EventReceiver.
func (r countedReceiver) Deliver(ctx context.Context, e record.OutboxEvent) error {
	err := r.EventReceiver.Deliver(guest.WithTraceparent(ctx, e.Traceparent), e)
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return err // this node ends the delivery: the receiver has not failed
	}
	result := orFailed("delivered", err)
	if errors.Is(err, tenant.ErrReceiverGone) {
		result = "gone"
	}
	deliveries.WithLabelValues(r.company, result).Inc()
	return err
}

type countedCaptcha struct {
	tenant.Captcha
	company string
}

// Verify implements tenant.Captcha.
func (c countedCaptcha) Verify(ctx context.Context, response, address string) (bool, error) {
	ok, err := c.Captcha.Verify(ctx, response, address)
	captchas.WithLabelValues(c.company, orFailed(verdict(ok), err)).Inc()
	return ok, err
}

type countedMigrate struct {
	tenant.PasswordVerifier
	company string
}

// VerifyPassword implements tenant.PasswordVerifier.
func (m countedMigrate) VerifyPassword(ctx context.Context, q tenant.PasswordQuestion) (bool, error) {
	ok, err := m.PasswordVerifier.VerifyPassword(ctx, q)
	migratePasswords.WithLabelValues(m.company, orFailed(verdict(ok), err)).Inc()
	return ok, err
}

type countedBreachedList struct {
	tenant.BreachedList
	company string
}

// Has implements tenant.BreachedList.
func (l countedBreachedList) Has(ctx context.Context, password string) (bool, error) {
	listed, err := l.BreachedList.Has(ctx, password)
	outcome := "unlisted"
	if listed {
		outcome = "listed"
	}
	breachedLookups.WithLabelValues(l.company, orFailed(outcome, err)).Inc()
	return listed, err
}

type countedProvider struct {
	tenant.OAuthProvider
	company, id string
}

// Exchange implements tenant.OAuthProvider.
func (p countedProvider) Exchange(ctx context.Context, grant tenant.OAuthGrant) (tenant.OAuthUser, error) {
	user, err := p.OAuthProvider.Exchange(ctx, grant)
	result := orFailed("accepted", err)
	if errors.Is(err, wire.ErrOAuthFailed) && !errors.Is(err, tenant.ErrProviderFault) {
		result = "refused"
	}
	providerLogins.WithLabelValues(p.company, p.id, result).Inc()
	return user, err
}

// observeCall is the observer of the stores.
func observeCall(ctx context.Context, call string, began time.Time, err error) {
	result, failed := "ok", unanswered(noteDamage(err))
	if failed {
		result = "error"
	}
	store, method, _ := strings.Cut(call, ".")
	storeSeconds.WithLabelValues(store, method, result).Observe(time.Since(began).Seconds())
	guest.TraceCall(ctx, store, method, began, failed)
}

// noteDamage counts an error that says that a store is damaged, and returns it.
func noteDamage(err error) error {
	if errors.Is(err, record.ErrDamaged) {
		storeDamage.Inc()
	}
	return err
}

// unanswered reports whether err means that the store did not answer. Other errors
// are answers of the store, or mean that the caller has gone away.
func unanswered(err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) && !record.IsAnswer(err)
}

// hashWaited implements password.Hasher.Waited.
func hashWaited(d time.Duration, got bool) {
	if got {
		hashTurn.Observe(d.Seconds())
	} else {
		hashBusy.Observe(d.Seconds())
	}
}

// live collects metrics from the running config. The config whose registry is
// collected may be another one that failed to load.
type live struct{}

// Describe implements prometheus.Collector.
func (live) Describe(to chan<- *prometheus.Desc) {
	for _, d := range descs {
		to <- d
	}
}

// Collect implements prometheus.Collector.
func (live) Collect(to chan<- prometheus.Metric) {
	app := Running()
	if app == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	counter := func(d *prometheus.Desc, value uint64) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(value))
	}
	gauge(buildInfo, 1, Version())
	counter(defects, serviceErrors.Load()+background.Failures.Load())
	service := app.service.Load()
	gauge(up, number(service != nil))
	if service != nil {
		gauge(backgroundMessages, float64(service.Waiting()))
		for _, b := range service.Backlogs() {
			gauge(outboxEvents, float64(b.Events), b.Company)
			gauge(outboxOldest, time.Since(b.Oldest).Seconds(), b.Company)
		}
	}
	if at := backedUp.Load(); at != 0 {
		gauge(lastBackup, float64(at))
	}
	if memory, ok := app.sessions.(*memory.Memory); ok {
		hits, misses := memory.Asked()
		gauge(memorySessions, float64(memory.Len()))
		counter(memoryHits, hits)
		counter(memoryMisses, misses)
		gauge(memoryTrusted, number(memory.HasLease()))
	}
	gauge(logStalled, number(logs.Stuck()))
	counter(logLinesLost, logs.Lost())
	length, limit := hasher().Queue()
	gauge(hashQueue, float64(length))
	gauge(hashQueueLimit, float64(limit))
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
