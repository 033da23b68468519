package gate_test

import (
	"bytes"
	"cmp"
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
	"time"

	"github.com/caddyserver/caddy/v2"
	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/mnemogate/mnemogate/caddymodule/guest/guesttest"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

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

// named waits for the span of a trace with this name, and returns it. The span of a request
// ends shortly after the other side has answered it.
func (c *otlpCollector) named(t *testing.T, traceID, name string) (found *spans.Span) {
	t.Helper()
	storetest.Eventually(t, 20*time.Second, "span "+name+" of the trace "+traceID, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		i := slices.IndexFunc(c.spans, func(s *spans.Span) bool { return s.Name == name && fmt.Sprintf("%x", s.TraceId) == traceID })
		if i >= 0 {
			found = c.spans[i]
		}
		return i >= 0
	})
	return found
}

func attributes(s *spans.Span) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes {
		all[a.Key] = a.Value.GetStringValue()
	}
	return all
}

// A traced request is what a gateway or receiver got.
type tracedRequest struct{ Type, To, Code, Traceparent string }

// Contract, section 15: each step has a span, calls to stores and gateways have child
// spans, gateways and receivers get traceparent, also after the answer, and audit lines
// have trace_id. No span has a user or a secret.
func TestStepsAreTraced(t *testing.T) {
	t.Run("embedded", func(t *testing.T) { tracesSteps(t, "store sqlite DIR/mnemogate.db") })
	t.Run("shared", func(t *testing.T) {
		tracesSteps(t, fmt.Sprintf("store postgres %q\nsessions redis %s", storetest.OwnPostgres(t).DSN("public"), storetest.StartRedis(t).URL()))
	})
}

func tracesSteps(t *testing.T, stores string) {
	guesttest.Environment(t)
	dir, err := os.MkdirTemp("", "mg") // short, for the socket
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	received := new(otlpCollector)
	otlp := httptest.NewServer(received)
	defer otlp.Close()
	arrived := make(chan tracedRequest, 10)
	gateway := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var sent tracedRequest
		_ = json.NewDecoder(r.Body).Decode(&sent)
		sent.Traceparent = r.Header.Get("Traceparent")
		arrived <- sent
	}))
	defer gateway.Close()
	sent := map[string]tracedRequest{} // by type
	await := func(kind string) tracedRequest {
		t.Helper()
		for sent[kind].Type == "" {
			select {
			case r := <-arrived:
				sent[r.Type] = r
			case <-time.After(20 * time.Second):
				t.Fatalf("no %s arrives", kind)
			}
		}
		return sent[kind]
	}
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlp.URL)
	t.Setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "50") // ms
	load(t, `{
		admin off
		persist_config off
		auto_https off
		log {
			output file `+dir+`/log
			format json
		}
		mnemogate {
			`+strings.Replace(stores, "DIR", dir, 1)+`
			sms webhook `+gateway.URL+`/secret-path {
				secret whsec_dGhlIHNlY3JldCBvZiB0aGVzZSB0ZXN0cw==
			}
			events webhook `+gateway.URL+`/secret-path {
				secret whsec_dGhlIHNlY3JldCBvZiB0aGVzZSB0ZXN0cw==
				types password.changed
			}
			recovery {
				methods PHONE
			}
			hardened
			company acme {
				api_key {env.MNEMOGATE_TEST_KEY}
				captcha off
				account alice-0001 {
					login alice@example.com
					phone +37060012345
					password "correct horse battery"
					second_factor
					must_set_password
				}
				account bob-0001 {
					login bob@example.com
					phone +37060012346
				}
			}
		}
	}
	http:// {
		bind unix/`+dir+`/web.sock
		tracing
		mnemogate
		respond 204
	}`)
	client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", dir+"/web.sock")
	}}}
	trace := func(i int) string { return fmt.Sprintf("4bf92f3577b34da6a3ce929d0e0e473%d", i) }
	refs := map[int]string{} // of errors
	ask := func(i int, method, path, token, body string) (token2 string) {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, "http://traced.example"+path, strings.NewReader(body))
		must(t, err)
		r.Header = http.Header{"Content-Type": {"application/json"}, "X-Api-Key": {"key-of-acme"}, "Traceparent": {"00-" + trace(i) + "-00f067aa0ba902b7-01"}}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		answer, err := client.Do(r)
		must(t, err)
		defer answer.Body.Close()
		var reply struct {
			Token string `json:"session_token"`
			Error string `json:"error_code"`
			Ref   string `json:"ref"`
		}
		_ = json.NewDecoder(answer.Body).Decode(&reply)
		refs[i] = reply.Ref
		if i > 1 && i < 7 && reply.Error != "" {
			t.Errorf("%s: %s", path, reply.Error)
		}
		return reply.Token
	}
	const password, newPassword = "correct horse battery", "incorrect horse battery"
	ask(1, "POST", "/acme/v2/auth/checkcredentials", "", `{"login_id": "alice@example.com", "password": "wrong horse battery"}`)
	step := ask(2, "POST", "/acme/v2/auth/checkcredentials", "", `{"login_id": "alice@example.com", "password": "`+password+`"}`)
	code := await("otp.login")
	step2 := ask(3, "POST", "/acme/v2/auth/checkotp", step, `{"otp": "`+code.Code+`"}`)
	token := ask(4, "POST", "/acme/v2/auth/setpassword", step2, `{"new_password": "`+newPassword+`"}`)
	if token == "" {
		t.Fatal("the login failed")
	}
	ask(5, "POST", "/acme/v2/auth/recovery/recover", "", `{"login_id": "bob@example.com", "captcha_response": "x", "method": "PHONE"}`)
	ask(6, "GET", "/x", token, "")
	ask(7, "GET", "/acme/v2/auth/login", "", "")
	await("notice.password_changed")
	await("otp.recovery")
	await("password.changed")

	for i, want := range []struct{ route, outcome string }{
		1: {"auth/checkcredentials", "auth.credentials.invalid"},
		2: {"auth/checkcredentials", "checkotp"},
		3: {"auth/checkotp", "setpassword"},
		4: {"auth/setpassword", "authorized"},
		5: {"auth/recovery/recover", "recovery-checkotp"},
		7: {"auth/login", wire.ErrMethod.Code},
	} {
		if want.route == "" {
			continue
		}
		span := received.named(t, trace(i), want.route)
		got := attributes(span)
		if got["mnemogate.route"] != want.route || got["mnemogate.outcome"] != want.outcome || got["mnemogate.company"] != "acme" || got["mnemogate.ref"] != refs[i] || (i == 1 || i == 7) != (refs[i] != "") {
			t.Errorf("%s: got %v", want.route, got)
		}
		caddys := received.named(t, trace(i), "handler")
		if ref := attributes(caddys)["mnemogate.ref"]; ref != refs[i] {
			t.Errorf("%s: Caddy's span has the ref %q, the answer %q", want.route, ref, refs[i])
		}
		if !bytes.Equal(span.ParentSpanId, caddys.SpanId) {
			t.Errorf("%s: its parent is not Caddy's span", want.route)
		}
		if i == 7 {
			continue // it asks no store
		}
		store := map[string]string{"auth/checkotp": "sessions spend_code", "auth/setpassword": "accounts set_password"}[want.route]
		if child := received.named(t, trace(i), cmp.Or(store, "accounts by_login_id")); !bytes.Equal(child.ParentSpanId, span.SpanId) {
			t.Errorf("%s: %s is not its child", want.route, child.Name)
		}
	}
	for kind, of := range map[string]struct {
		trace int
		step  string
	}{
		"otp.login":               {2, "auth/checkcredentials"},
		"notice.password_changed": {4, "auth/setpassword"},
		"otp.recovery":            {5, "auth/recovery/recover"}, // hardened: after the answer
	} {
		post := received.named(t, trace(of.trace), "POST")
		if !bytes.Equal(post.ParentSpanId, received.named(t, trace(of.trace), of.step).SpanId) || attributes(post)["server.address"] != "127.0.0.1" {
			t.Errorf("%s: the gateway's span is %v", kind, post)
		}
		if got, want := sent[kind].Traceparent, fmt.Sprintf("00-%s-%x-01", trace(of.trace), post.SpanId); got != want {
			t.Errorf("%s: the gateway got the traceparent %q, want %q", kind, got, want)
		}
	}
	// Another node may deliver an event, so it names the step.
	if got, want := sent["password.changed"].Traceparent, fmt.Sprintf("00-%s-%x-01", trace(4), received.named(t, trace(4), "auth/setpassword").SpanId); got != want {
		t.Errorf("the receiver got the traceparent %q, want %q", got, want)
	}
	client.CloseIdleConnections()
	_ = caddy.Stop() // sends what is left
	for _, secret := range []string{password, newPassword, "wrong horse", code.Code, code.To, sent["otp.recovery"].To, "alice", "bob", step, step2, token, "key-of-acme", "secret-path", "c2VjcmV0"} {
		if secret == "" || bytes.Contains(received.raw.Bytes(), []byte(secret)) {
			t.Errorf("the collector got %q", secret)
		}
	}
	log, err := os.ReadFile(dir + "/log")
	must(t, err)
	lines := 0
	for line := range strings.Lines(string(log)) {
		var entry struct{ Logger, Msg, Route, Trace_ID, Ref string }
		must(t, json.Unmarshal([]byte(line), &entry))
		if entry.Logger == "mnemogate.audit" && entry.Route != "" && entry.Msg != record.ContactVerified { // a second line of the code's step
			lines++
			if want := trace(lines); entry.Trace_ID != want {
				t.Errorf("trace_id is %q, want %q, in %s", entry.Trace_ID, want, line)
			}
			if entry.Ref != refs[lines] {
				t.Errorf("the ref is %q, want %q, in %s", entry.Ref, refs[lines], line)
			}
		}
	}
	if lines != 5 {
		t.Errorf("the audit log has %d lines of steps", lines)
	}
}
