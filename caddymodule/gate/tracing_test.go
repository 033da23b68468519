package gate_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
)

// An otlpCollector keeps the spans that an OTLP collector receives, and the bytes.
type otlpCollector struct {
	mu    sync.Mutex
	raw   bytes.Buffer
	spans []*spans.Span
}

func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var got collector.ExportTraceServiceRequest
	if err := proto.Unmarshal(body, &got); err != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, fmt.Sprint(r.URL.Path, err), http.StatusBadRequest)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw.Write(body)
	for _, resource := range got.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			c.spans = append(c.spans, scope.Spans...)
		}
	}
}

// named returns the span of a trace with this name.
func (c *otlpCollector) named(t *testing.T, traceID, name string) *spans.Span {
	t.Helper()
	i := slices.IndexFunc(c.spans, func(s *spans.Span) bool { return s.Name == name && fmt.Sprintf("%x", s.TraceId) == traceID })
	if i < 0 {
		t.Fatalf("the trace has no span %q", name)
	}
	return c.spans[i]
}

func attributes(s *spans.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

// Contract, section 15: each step has a span, calls to stores and gateways have child
// spans, gateways get traceparent, and audit lines have trace_id. No span has a user
// or a secret.
func TestStepsAreTraced(t *testing.T) {
	guesttest.Environment(t)
	dir, err := os.MkdirTemp("", "mg") // short, for the socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	received := new(otlpCollector)
	otlp := httptest.NewServer(received)
	defer otlp.Close()
	var sent struct{ To, Code, Traceparent string }
	gateway := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_ = json.NewDecoder(r.Body).Decode(&sent)
		sent.Traceparent = r.Header.Get("Traceparent")
	}))
	defer gateway.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	config, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(`{
		admin off
		persist_config off
		auto_https off
		log {
			output file `+dir+`/log
			format json
		}
		mnemogate {
			store sqlite `+dir+`/mnemogate.db
			sms webhook `+gateway.URL+`/secret-path {
				secret whsec_c2VjcmV0IG9mIHRoZSB0ZXN0cw==
			}
			company acme {
				api_key {env.MNEMOGATE_TEST_KEY}
				captcha off
				account alice-0001 {
					login alice@example.com
					phone +37060012345
					password "correct horse battery"
					second_factor
				}
			}
		}
	}
	http:// {
		bind unix/`+dir+`/web.sock
		tracing
		mnemogate
		respond 204
	}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := caddy.Load(config, true); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			_ = caddy.Stop()
		}
	}
	t.Cleanup(stop)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir+"/web.sock")
	}}}
	trace := func(i int) string { return fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e473%d", i) }
	ask := func(i int, method, path, token, body string) (token2 string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://traced.example"+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {"key-of-acme"}, "Traceparent": {"00-" + trace(i) + "-00f067aa0ba902b7-01"}}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		var reply struct {
			Token string `json:"session_token"`
		}
		_ = json.NewDecoder(answer.Body).Decode(&reply)
		return reply.Token
	}
	const password = "correct horse battery"
	ask(1, "POST", "/acme/v2/auth/checkcredentials", "", `{"login_id": "alice@example.com", "password": "wrong horse battery"}`)
	step := ask(2, "POST", "/acme/v2/auth/checkcredentials", "", `{"login_id": "alice@example.com", "password": "`+password+`"}`)
	token := ask(3, "POST", "/acme/v2/auth/checkotp", step, `{"otp": "`+sent.Code+`"}`)
	if token == "" {
		t.Fatal("the login failed")
	}
	ask(4, "GET", "/x", token, "")
	client.CloseIdleConnections()
	stop() // sends what is left
	received.mu.Lock()
	defer received.mu.Unlock()

	for i, want := range []struct{ route, outcome string }{
		1: {"auth/checkcredentials", "auth.credentials.invalid"},
		2: {"auth/checkcredentials", "checkotp"},
		3: {"auth/checkotp", "authorized"},
	} {
		if i == 0 {
			continue
		}
		span := received.named(t, trace(i), want.route)
		got := attributes(span)
		if got["mnemogate.route"] != want.route || got["mnemogate.outcome"] != want.outcome || got["mnemogate.company"] != "acme" || len(got) != 3 {
			t.Errorf("%s: got %v", want.route, got)
		}
		if caddys := received.named(t, trace(i), "handler"); !bytes.Equal(span.ParentSpanId, caddys.SpanId) {
			t.Errorf("%s: its parent is not Caddy's span", want.route)
		}
		store := "accounts by_login_id"
		if i == 3 {
			store = "sessions spend_code"
		}
		if child := received.named(t, trace(i), store); !bytes.Equal(child.ParentSpanId, span.SpanId) {
			t.Errorf("%s: %s is not its child", want.route, store)
		}
	}
	post := received.named(t, trace(2), "POST")
	if got, want := sent.Traceparent, fmt.Sprintf("00-%s-%x-01", trace(2), post.SpanId); got != want {
		t.Errorf("the gateway got the traceparent %q, want %q", got, want)
	}
	if got := attributes(post); got["server.address"] != "127.0.0.1" {
		t.Errorf("the gateway's span has %v", got)
	}
	for _, secret := range []string{password, "wrong horse", sent.Code, sent.To, "alice", step, token, "key-of-acme", "secret-path", "c2VjcmV0"} {
		if secret == "" || bytes.Contains(received.raw.Bytes(), []byte(secret)) {
			t.Errorf("the collector got %q", secret)
		}
	}
	log, err := os.ReadFile(dir + "/log")
	if err != nil {
		t.Fatal(err)
	}
	lines := 0
	for line := range strings.Lines(string(log)) {
		var entry struct{ Logger, Route, Trace_ID string }
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			t.Fatal(err)
		}
		if entry.Logger == "mnemogate.audit" && entry.Route != "" {
			lines++
			if want := trace(lines); entry.Trace_ID != want {
				t.Errorf("trace_id is %q, want %q, in %s", entry.Trace_ID, want, line)
			}
		}
	}
	if lines != 3 {
		t.Errorf("the audit log has %d lines of steps", lines)
	}
}
