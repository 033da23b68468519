package openapi

import (
	"fmt"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/caddymodule/bodies"
	"github.com/mnemogate/mnemogate/caddymodule/gate/selfservice"
	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The document of the gate is made of flows.Routes, selfservice.Routes, the errors and the
// overlay.
func TestGateDocument(t *testing.T) {
	w := newWriter(t, readOverlay(t, "../gate/openapi.yaml"))
	w.examples = true
	g := &gate{writer: w, paths: obj(), responses: obj(), shown: obj(), used: map[wire.Error]bool{}}
	for i := range flows.Routes {
		g.addStep(&flows.Routes[i])
	}
	for _, name := range sorted(w.overlay.Operations) {
		method, path, _ := strings.Cut(name, " ")
		if flows.RouteByPath(path) == nil && !strings.HasPrefix(path, "me/") {
			o := w.overlay.Operations[name]
			fails := g.errorsOf(o.Fails)
			if name == "POST session" {
				fails = append(fails, g.repeatable(&o))
			}
			g.add(method, path, o, fails, o.Text)
		}
	}
	for _, r := range selfservice.Routes {
		g.addOwn(&r)
	}
	g.finish("../gate/openapi.json")
}

type gate struct {
	*writer
	paths, responses, shown *object
	used                    map[wire.Error]bool
	operations              int
}

// addStep adds a route of the state machine.
func (g *gate) addStep(r *flows.Route) {
	name := "POST " + r.Path
	o := g.operation(name)
	fails := slices.Clone(flows.Common)
	text := o.Text + " Takes no session token."
	o.Security = "key"
	if r.TakesToken() {
		fails = append(fails, flows.TokenErrors...)
		o.Security = "token"
		var states []string
		for _, s := range r.From {
			states = append(states, "`"+string(s)+"`")
		}
		text = o.Text + " Takes a token in state " + strings.Join(states, " or ") + "."
		if len(r.From) == len(record.States)-1 {
			text = o.Text + " Takes a token in any state."
		}
	}
	if r.StepsUp {
		o.Security, text = "cookie", o.Text+" Takes an authorized token, or the cookie."
	}
	if len(r.Fields()) == 0 {
		text += " Send no body; an empty JSON object is accepted, too."
	} else {
		o.Body = r.Request().String()
	}
	if o.ID == "" {
		o.ID = strings.ReplaceAll(strings.TrimPrefix(r.Path, "auth/"), "/", "_")
	}
	if o.Tag == "" {
		o.Tag = "login"
		if strings.HasPrefix(r.Path, "auth/recovery/") {
			o.Tag = "recovery"
		}
	}
	if !r.Unkept {
		fails = append(fails, g.repeatable(&o))
	}
	g.add(http.MethodPost, r.Path, o, append(fails, r.Fails...), text)
	if diff := cmp.Diff(r.To, g.statesOf(o)); diff != "" {
		g.t.Errorf("%s: its answers lead to other states than the table says: %s", r.Path, diff)
	}
}

// repeatable adds to an operation what its Idempotency-Key needs, and returns its error.
func (w *writer) repeatable(o *operation) *wire.Error {
	o.Parameters = append(slices.Clone(o.Parameters), flows.IdempotencyKeyHeader)
	headers := obj()
	headers.merge(o.Headers)
	headers.set(bodies.ReplayedHeader, ref("headers", bodies.ReplayedHeader))
	o.Headers = headers
	return wire.ErrOtherBody
}

// statesOf returns the states that the answers of an operation lead to.
func (g *gate) statesOf(o operation) (states []record.State) {
	for _, name := range o.Answers {
		s := g.overlay.Schemas[name]
		if s.State != "" {
			states = append(states, record.State(s.State))
		}
		if required := g.schemas.get(name).(*object).get("required").([]any); !slices.Contains(required, any("session_state")) {
			states = append(states, record.None)
		}
	}
	return states
}

var lastID = regexp.MustCompile(`(\w+)s/{id}$`)

// addOwn adds a route of self_service.
func (g *gate) addOwn(r *selfservice.Route) {
	path := lastID.ReplaceAllString(r.Name(), "${1}s/{${1}_id}")
	o := g.operation(r.Method + " " + path)
	o.Tag, o.Security = "self-service", "cookie"
	fails := slices.Concat([]*wire.Error{wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrValidation, wire.ErrUnavailable, wire.ErrService}, flows.TokenErrors)
	text := o.Text
	if r.IsFresh() {
		fails = append(fails, wire.ErrRestricted)
		if !strings.Contains(text, "recent login") {
			text += " Needs a recent login; otherwise `auth.session.invalid` with the reason `too_old`."
		}
		if r.ChangesFactors() {
			text += " Some sites also ask for a second factor, if the account has one, with the reason `mfa`."
		}
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPatch {
		fails = append(fails, wire.ErrTooLarge, wire.ErrMediaType)
	}
	if r.Method == http.MethodPost || r.Method == http.MethodDelete {
		fails = append(fails, g.repeatable(&o))
	}
	g.add(r.Method, path, o, append(fails, g.errorsOf(o.Fails)...), text)
}

func (g *gate) operation(name string) operation {
	o, ok := g.overlay.Operations[name]
	if !ok {
		g.t.Fatalf("caddymodule/gate/openapi.yaml does not describe %s; write it there, below operations", name)
	}
	return o
}

// errorsOf returns the errors with these names.
func (g *gate) errorsOf(names []string) (all []*wire.Error) {
	for _, name := range names {
		switch name {
		case "common":
			all = append(all, flows.Common...)
		case "token":
			all = append(all, flows.TokenErrors...)
		default:
			i := slices.IndexFunc(g.source.errors, func(e wire.Error) bool { return nameOfError(e) == name })
			if i < 0 {
				g.t.Fatalf("there is no error %s", name)
			}
			all = append(all, &g.source.errors[i])
		}
	}
	return all
}

func nameOfError(e wire.Error) string { return fmt.Sprintf("%s.%d", e.Code, e.Status) }

var securities = map[string][]any{
	"none":   {},
	"key":    {obj("apiKey", []any{})},
	"token":  {obj("apiKey", []any{}, "token", []any{})},
	"cookie": {obj("apiKey", []any{}, "token", []any{}), obj("apiKey", []any{}, "cookie", []any{})},
	"only":   {obj("cookie", []any{})},
}

// add adds an operation.
func (g *gate) add(method, path string, o operation, fails []*wire.Error, text string) {
	made := obj("operationId", o.ID, "tags", []any{o.Tag}, "summary", o.Summary, "description", strings.TrimSpace(text), "security", securities[o.Security])
	if o.Parameters != nil {
		made.set("parameters", refs("parameters", o.Parameters))
	}
	if o.Body != "" {
		body := g.request(o.ID, o.Body)
		content := obj("schema", g.requestOf(o.ID, body))
		if !o.Optional {
			content.set("example", g.example(body, o.Shows))
		}
		made.set("requestBody", obj("required", !o.Optional, "content", obj("application/json", content)))
	}
	responses := obj("200", g.success(o))
	byStatus := map[int][]wire.Error{}
	for _, e := range fails {
		if !slices.Contains(byStatus[e.Status], *e) {
			byStatus[e.Status] = append(byStatus[e.Status], *e)
		}
		g.used[*e] = true
	}
	for status := 400; status < 600; status++ {
		if errs := byStatus[status]; errs != nil {
			responses.set(fmt.Sprint(status), g.failure(errs))
		}
	}
	made.set("responses", responses)
	made.merge(o.Literal)

	whole := "/{company_code}/v2/" + path
	if !g.paths.has(whole) {
		parameters := []any{ref("parameters", "company_code")}
		for segment := range strings.SplitSeq(path, "/") {
			if name, ok := strings.CutPrefix(segment, "{"); ok {
				parameters = append(parameters, ref("parameters", strings.TrimSuffix(name, "}")))
			}
		}
		g.paths.set(whole, obj("parameters", parameters))
	}
	g.paths.get(whole).(*object).set(strings.ToLower(method), made)
	g.operations++
}

// success makes the response to a request that succeeds.
func (g *gate) success(o operation) *object {
	var refs []any
	var texts []string
	mapping, by := obj(), "session_state"
	for _, name := range o.Answers {
		refs = append(refs, g.use(name))
		texts = append(texts, g.overlay.Schemas[name].Text)
		if !g.schemas.get(name).(*object).get("properties").(*object).has("session_state") {
			by = "verification"
		}
	}
	text, schema := texts[0], refs[0].(*object)
	if len(refs) > 1 {
		text = "One of:\n\n- " + strings.Join(texts, "\n- ")
		for _, name := range o.Answers {
			one := g.schemas.get(name).(*object).get("properties").(*object).get(by).(*object).get("enum").([]any)[0]
			mapping.set(one.(string), "#/components/schemas/"+name)
		}
		whole := camel(o.ID) + "Answer"
		g.schemas.set(whole, obj("oneOf", refs, "discriminator", obj("propertyName", by, "mapping", mapping)))
		schema = ref("schemas", whole)
	}
	if o.Success != "" {
		text = o.Success
	}
	examples := obj()
	shown := o.Examples
	if shown == nil {
		shown = o.Answers
	}
	for _, name := range shown {
		if g.overlay.Schemas[name].Example == nil {
			g.use(name)
		}
		examples.set(name, g.show(name, g.exampleOf(name)))
	}
	return obj("description", text, "headers", o.Headers, "content", obj("application/json", obj("schema", schema, "examples", examples)))
}

// camel makes LoginAnswer of login, and PasskeyLogin of passkey_login.
func camel(id string) string {
	var b strings.Builder
	for part := range strings.SplitSeq(id, "_") {
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

// show adds an example to the document, and refers to it.
func (g *gate) show(name string, value any) *object {
	g.shown.set(name, obj("value", value))
	return ref("examples", name)
}

// failure makes the response with one of several errors of the same status.
func (g *gate) failure(errs []wire.Error) *object {
	status := errs[0].Status
	var codes []string
	examples := obj()
	for _, e := range errs {
		codes = append(codes, "`"+e.Code+"`")
		value := obj("status", "error", "error_code", e.Code, "message", e.Message, "ref", "7K3M9QXZ2B")
		value.merge(g.overlay.Errors[nameOfError(e)])
		examples.set(nameOfError(e), g.show(nameOfError(e), value))
	}
	made := obj("description", http.StatusText(status)+". "+strings.Join(codes, ", "))
	switch challenge := challengeOf(errs); {
	case challenge != "":
		made.set("headers", obj("WWW-Authenticate", obj("description", "What is missing or wrong (RFC 6750).", "required", false, "schema", obj("type", "string"), "example", challenge)))
	case status == http.StatusMethodNotAllowed:
		made.set("headers", obj("Allow", obj("description", "The methods of this path.", "required", true, "schema", obj("type", "string"), "example", "GET")))
	case status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable:
		made.set("headers", obj("Retry-After", obj("description", "Seconds to wait before trying again.", "required", true, "schema", obj("type", "integer", "minimum", 1), "example", 60)))
	}
	made.set("content", obj("application/json", obj("schema", g.errorSchema(), "examples", examples)))
	if len(errs) > 1 {
		return made
	}
	name := nameOfError(errs[0])
	made.set("description", errs[0].Message)
	made.set("description", g.overlay.Responses[name])
	g.responses.set(name, made)
	return ref("responses", name)
}

// challengeOf returns an example of WWW-Authenticate.
func challengeOf(errs []wire.Error) string {
	has := func(e *wire.Error) bool { return slices.Contains(errs, *e) }
	const realm = `Bearer realm="mnemogate"`
	switch {
	case has(wire.ErrTokenInvalid):
		return realm + `, error="invalid_token"`
	case has(wire.ErrHeaderInvalid):
		return realm + `, error="invalid_request"`
	case has(wire.ErrSessionInvalid):
		return realm + `, error="insufficient_scope"`
	case errs[0].Status == http.StatusUnauthorized:
		return realm
	}
	return ""
}

// errorSchema makes the schema of errors with the codes and reasons of all errors.
func (g *gate) errorSchema() *object {
	if g.schemas.has("Error") {
		return ref("schemas", "Error")
	}
	made := g.use("Error")
	properties := g.schemas.get("Error").(*object).get("properties").(*object)
	properties.get("status").(*object).set("enum", []any{"error"})
	return made
}

// finish writes the document.
func (g *gate) finish(path string) {
	if g.operations != len(g.overlay.Operations) {
		g.t.Errorf("%d operations of the overlay are no routes", len(g.overlay.Operations)-g.operations)
	}
	var codes, reasons []string
	reasonsOf := map[wire.Error][]wire.Reason{}
	for e, all := range wire.Reasons {
		reasonsOf[*e] = all
	}
	for _, e := range g.source.errors {
		if g.used[e] {
			codes = append(codes, e.Code)
			for _, reason := range reasonsOf[e] {
				reasons = append(reasons, string(reason))
			}
		}
	}
	properties := g.schemas.get("Error").(*object).get("properties").(*object)
	properties.get("error_code").(*object).set("enum", list(unique(codes)))
	// No enum: clients that are generated from the document must take the reasons of later versions.
	properties.get("reason").(*object).set("description", "The cause, if an error_code has several: "+open(unique(reasons)))
	const types = "../page/assets/client.d.ts"
	g.union(types, "ErrorCode", unique(codes), "")
	g.union(types, "Reason", unique(reasons), "\n  | (string & {})")
	g.write(path, obj("paths", g.paths), obj("schemas", g.schemas, "responses", g.responses, "examples", g.shown))
}

func unique(all []string) (once []string) {
	for _, one := range all {
		if !slices.Contains(once, one) {
			once = append(once, one)
		}
	}
	return once
}

// union checks the texts of a union type in TypeScript, or writes them with -update. They are in
// order, and before the rest of the union.
func (g *gate) union(path, name string, texts []string, rest string) {
	slices.Sort(texts)
	raw, err := os.ReadFile(path)
	storetest.Must(g.t, err)
	head, tail, _ := strings.Cut(string(raw), "export type "+name+" =\n")
	_, tail, _ = strings.Cut(tail, ";")
	made := head + "export type " + name + " =\n  | '" + strings.Join(texts, "'\n  | '") + "'" + rest + ";" + tail
	g.keep(path, []byte(made))
}
