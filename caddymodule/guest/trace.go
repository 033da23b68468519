package guest

import (
	"context"
	"errors"
	"net/http"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Where Caddy's directive tracing is on, the context of a request has a span. Spans
// must name no user and hold no secret, and no path of a URL, which may contain one.

// StartSpan starts a child of the span of ctx, which may have ended: messages are also
// sent after the answer. If that span is not sampled, the new one does nothing.
func StartSpan(ctx context.Context, name string, kind trace.SpanKind) (context.Context, trace.Span) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return ctx, trace.SpanFromContext(context.Background())
	}
	return tracer(parent).Start(ctx, name, trace.WithSpanKind(kind))
}

// TraceCall records a call that has ended as a child of the span of ctx.
func TraceCall(ctx context.Context, system, method string, began time.Time, failed bool) {
	parent := trace.SpanFromContext(ctx)
	if !parent.SpanContext().IsSampled() {
		return
	}
	_, span := tracer(parent).Start(ctx, system+" "+method, trace.WithSpanKind(trace.SpanKindClient), trace.WithTimestamp(began))
	if failed {
		span.SetStatus(codes.Error, "")
	}
	span.End()
}

func tracer(parent trace.Span) trace.Tracer {
	return parent.TracerProvider().Tracer("github.com/mnemogate/mnemogate")
}

// Traceparent returns the span of ctx as W3C Trace Context writes it, or "" if ctx has none.
func Traceparent(ctx context.Context) string {
	carrier := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, carrier)
	return carrier[traceparent]
}

// WithTraceparent returns a context in which requests carry traceparent, as
// Traceparent returned it.
func WithTraceparent(ctx context.Context, of string) context.Context {
	return propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{traceparent: of})
}

const traceparent = "traceparent"

// A tracedTransport has a span for each request, and sends it on in traceparent (W3C
// Trace Context).
type tracedTransport struct{ *http.Transport }

// RoundTrip implements http.RoundTripper.
func (t tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !trace.SpanContextFromContext(r.Context()).IsValid() {
		return t.send(r)
	}
	ctx, span := StartSpan(r.Context(), r.Method, trace.SpanKindClient)
	defer span.End()
	span.SetAttributes(attribute.String("http.request.method", r.Method), attribute.String("server.address", r.URL.Hostname()))
	r = r.Clone(ctx)
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(r.Header))
	resp, err := t.send(r)
	if err != nil {
		span.SetStatus(codes.Error, Cause(err).Error())
		return nil, err
	}
	span.SetAttributes(attribute.Int("http.response.status_code", resp.StatusCode))
	if resp.StatusCode >= http.StatusBadRequest {
		span.SetStatus(codes.Error, "")
	}
	return resp, nil
}

// send sends a request. It takes no 101, which nobody asked for: Go leaves such a connection to
// the caller, and no timeout ends the reading of it.
func (t tracedTransport) send(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		resp.Body.Close()
		return nil, errSwitched
	}
	return resp, err
}

var errSwitched = errors.New("it switches protocols")
