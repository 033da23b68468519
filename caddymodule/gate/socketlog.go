package gate

import (
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"
	"github.com/caddyserver/certmagic"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/mnemogate/mnemogate/flows/session"
)

// A redactedLog logs a request that had tokens among its protocols, or whose answer says
// who the user is. Caddy copies a request's headers for its logs before any handler runs,
// and hides neither. So this handler suppresses Caddy's own entry and writes one without
// them. For a handshake it writes a line with its own logger instead. An error, which Caddy
// does not get, has such a line in any case.
type redactedLog struct {
	handler   *Handler
	request   *http.Request // as the client sent it, without the tokens
	began     time.Time
	loggers   []*zap.Logger // of the access log; nil if the request is not logged there
	handshake bool
	hidden    []string    // the headers of the answer that are not logged
	who, why  []zap.Field // whose request it was, and why it was refused
}

// redactedLogVar is the variable with the redactedLog of a request, which redactedLogOf returns;
// nil for none.
const redactedLogVar = "mnemogate.log"

func redactedLogOf(r *http.Request) *redactedLog {
	l, _ := caddyhttp.GetVar(r.Context(), redactedLogVar).(*redactedLog)
	return l
}

// logCheck starts the log of a question, or returns nil if Caddy's own may show the
// question and the answer.
func (h *Handler) logCheck(r *http.Request) *redactedLog {
	hidden := h.sender.Private()
	mayHaveToken := h.WebSocketToken && r.Header[socketProtocols] != nil
	if hidden == nil && !mayHaveToken || h.accessLoggers(r) == nil {
		return nil
	}
	l := h.instead(r)
	l.hidden = hidden
	redact(l.request.Header, socketProtocols)
	return l
}

// logWithoutTokens starts the log of a request whose tokens were removed.
func (h *Handler) logWithoutTokens(r *http.Request) *redactedLog {
	l := h.instead(r)
	l.handshake = isHandshake(r)
	l.request.Header[socketProtocols] = []string{"REDACTED"}
	return l
}

// instead starts the log of a request that Caddy does not log.
func (h *Handler) instead(r *http.Request) *redactedLog {
	l := &redactedLog{handler: h, request: r.Clone(r.Context()), began: time.Now()}
	if original, ok := r.Context().Value(caddyhttp.OriginalRequestCtxKey).(http.Request); ok {
		l.request.Method, l.request.RequestURI = original.Method, original.RequestURI
	}
	if skip, _ := caddyhttp.GetVar(r.Context(), caddyhttp.LogSkipVar).(bool); !skip {
		l.loggers = h.accessLoggers(r)
	}
	caddyhttp.SetVar(r.Context(), caddyhttp.LogSkipVar, true)
	caddyhttp.SetVar(r.Context(), redactedLogVar, l)
	return l
}

// redact replaces the values of headers.
func redact(header http.Header, names ...string) {
	for _, name := range names {
		if header[name] != nil {
			header[name] = []string{"REDACTED"}
		}
	}
}

func (l *redactedLog) write(w caddyhttp.ResponseRecorder, err error) {
	r, took, user := l.request, time.Since(l.began), ""
	if repl, ok := r.Context().Value(caddy.ReplacerCtxKey).(*caddy.Replacer); ok {
		user, _ = repl.GetString("http.auth.user.id")
	}
	traceID, _ := caddyhttp.GetVar(r.Context(), "trace_id").(string)
	spanID, _ := caddyhttp.GetVar(r.Context(), "span_id").(string)
	more := slices.Concat(l.why, l.who, notEmpty("traceID", traceID, "spanID", spanID))
	level, ours := zapcore.InfoLevel, slog.LevelInfo
	if w.Status() >= http.StatusInternalServerError {
		level, ours = zapcore.ErrorLevel, slog.LevelError
	}
	if err != nil || l.handshake && l.loggers != nil {
		args := []any{
			"client_ip", clientAddress(r), "method", r.Method, "host", r.Host, "path", originalURL(r).EscapedPath(), "user_agent", session.KeptUserAgent(r.UserAgent()),
			"status", w.Status(),
		}
		for _, field := range append(notEmpty("user_id", user), more...) {
			args = append(args, field.Key, field.String)
		}
		args = append(args, "duration", took)
		if err != nil {
			args = append(args, "error", err)
		}
		l.handler.log.Log(r.Context(), ours, "a request with a token among its WebSocket protocols; if it is a handshake, the access log has no entry of it", args...)
	}
	if l.handshake {
		return
	}
	header := w.Header().Clone()
	redact(header, l.hidden...)
	for _, logger := range l.loggers { // as in caddyhttp.Server.logRequest
		if entry := logger.Check(level, "handled request"); entry != nil {
			entry.Write(append([]zap.Field{
				zap.Object("request", caddyhttp.LoggableHTTPRequest{Request: r}), zap.String("user_id", user), zap.Duration("duration", took),
				zap.Int("size", w.Size()), zap.Int("status", w.Status()), zap.Object("resp_headers", caddyhttp.LoggableHTTPHeader{Header: header}),
			}, more...)...)
		}
	}
}

// notEmpty returns the fields of a line whose values are not empty, from keys and values.
func notEmpty(pairs ...string) (fields []zap.Field) {
	for pair := range slices.Chunk(pairs, 2) {
		if pair[1] != "" {
			fields = append(fields, zap.String(pair[0], pair[1]))
		}
	}
	return fields
}

// accessLoggers returns the loggers that Caddy's access log uses for a request, or
// nil if it would not log the request. Caddy chooses them in shouldLogRequest and
// wrapLogger, which are not public. If this differs, the entries of these requests are in
// other logs than those of others, or in none.
func (h *Handler) accessLoggers(r *http.Request) (loggers []*zap.Logger) {
	server, ok := r.Context().Value(caddyhttp.ServerCtxKey).(*caddyhttp.Server)
	if !ok || server.Logs == nil {
		return nil
	}
	host := hostOf(r)
	matches := func(pattern string) bool { return certmagic.MatchWildcard(host, pattern) }
	names, mapped := server.Logs.LoggerNames[host]
	for pattern, theirs := range server.Logs.LoggerNames {
		if !mapped && matches(pattern) {
			names, mapped = theirs, true
		}
	}
	switch {
	case mapped:
	case server.Logs.SkipUnmappedHosts || slices.ContainsFunc(server.Logs.SkipHosts, matches):
		return nil
	default:
		names = []string{server.Logs.DefaultLoggerName}
	}
	if chosen, ok := caddyhttp.GetVar(r.Context(), caddyhttp.AccessLoggerNameVarKey).([]any); ok { // log_name
		names = nil
		for _, name := range chosen {
			names = append(names, name.(string))
		}
	}
	for _, name := range names {
		loggers = append(loggers, h.accessLog.Named(name))
	}
	return loggers
}

// statusOf returns the status with which Caddy answers an error.
func statusOf(err error) int {
	if handlers, ok := errors.AsType[caddyhttp.HandlerError](err); ok && handlers.StatusCode != 0 {
		return handlers.StatusCode
	}
	return http.StatusInternalServerError
}
