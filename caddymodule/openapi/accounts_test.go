package openapi

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/accounts"
	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The document of the accounts API is made of accounts.Routes, api.Fields, the types of api and
// the overlay.
func TestAccountsDocument(t *testing.T) {
	w := newWriter(t, readOverlay(t, "../accounts/openapi.yaml"))
	w.bare = true
	a := &accountsAPI{writer: w, paths: obj(), responses: obj()}
	w.schemas.set("NewAccount", a.writable())
	w.schemas.set("AccountPatch", obj())
	w.schemas.get("AccountPatch").(*object).merge(w.schemas.get("NewAccount").(*object))
	kept := obj("type", []any{"string", "null"})
	a.annotate(kept, "AccountPatch", field{name: api.KeepSession})
	patched := obj()
	patched.merge(w.schemas.get("NewAccount").(*object).get("properties").(*object))
	patched.set(api.KeepSession, kept)
	w.schemas.get("AccountPatch").(*object).set("properties", patched)
	w.schemas.get("NewAccount").(*object).set("required", []any{"profile_mnemocode"})
	for i := range accounts.Routes {
		a.add(&accounts.Routes[i])
	}
	if len(w.overlay.Operations) != len(accounts.Routes) {
		t.Errorf("the overlay has %d operations, not those of %d routes", len(w.overlay.Operations), len(accounts.Routes))
	}
	for _, name := range []string{"Session", "Event"} { // backends only show them, also those of later versions
		state := w.schemas.get(name).(*object).get("properties").(*object).get("session_state").(*object)
		state.set("description", strings.TrimSuffix(state.get("description").(string), ".")+": "+open(record.States[1:]))
		state.remove("enum")
	}
	reasons := slices.Concat([]wire.Reason{manage.ErrPasswordWrong.Reason, wire.PasswordTooLong}, wire.Reasons[wire.ErrQuality], wire.Reasons[wire.ErrRestricted])
	reason := w.schemas.get("Error").(*object).get("properties").(*object).get("reason").(*object)
	reason.set("description", strings.TrimSuffix(reason.get("description").(string), ".")+": "+open(reasons))
	hooks := w.hooks()
	w.write("../accounts/openapi.json", obj("paths", a.paths, "webhooks", hooks), obj("schemas", w.schemas, "responses", a.responses))
}

type accountsAPI struct {
	*writer
	paths, responses *object
}

func (a *accountsAPI) add(r *accounts.Route) {
	o, ok := a.overlay.Operations[r.Method+" /"+r.Pattern]
	if !ok {
		a.t.Fatalf("openapi.yaml does not describe %s /%s", r.Method, r.Pattern)
	}
	text := o.Text
	if r.Rights != nil {
		text = strings.TrimSpace("Needs the right `" + string(r.Rights[0]) + "`. " + text)
	}
	made := obj("operationId", o.ID, "tags", []any{"accounts"}, "summary", strings.TrimSuffix(r.Summary, "."), "description", text)
	statuses := []int{400, 401, 403, 429, 500, 503}
	var parameters []any
	for segment := range strings.SplitSeq(r.Pattern, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			parameters = append(parameters, a.parameter(o.ID, strings.TrimSuffix(name, "}"), "path"))
			statuses = append(statuses, 404)
		}
	}
	for _, name := range r.Query {
		parameters = append(parameters, a.parameter(o.ID, name, "query"))
	}
	if r.MayRepeat() {
		a.repeatable(&o)
		statuses = append(statuses, http.StatusUnprocessableEntity)
	}
	parameters = append(parameters, refs("parameters", o.Parameters)...)
	if parameters != nil {
		made.set("parameters", parameters)
	}
	if body := a.body(o); body != nil {
		made.set("requestBody", body)
	}
	made.merge(o.Literal)
	if r.Method != http.MethodGet && made.has("requestBody") == r.Is(accounts.NoBody) {
		a.t.Errorf("NoBody of %s /%s is %v", r.Method, r.Pattern, r.Is(accounts.NoBody))
	}
	if r.Method != http.MethodGet && o.Body != "lines" {
		statuses = append(statuses, http.StatusRequestEntityTooLarge)
	}
	for _, status := range o.Fails {
		var n int
		_, _ = fmt.Sscan(status, &n)
		statuses = append(statuses, n)
	}
	slices.Sort(statuses)
	status, success := a.success(o)
	responses := obj(fmt.Sprint(status), success)
	for _, status := range slices.Compact(statuses) {
		responses.set(fmt.Sprint(status), a.failure(status))
	}
	made.set("responses", responses)
	path := "/" + r.Pattern
	if !a.paths.has(path) {
		a.paths.set(path, obj())
	}
	a.paths.get(path).(*object).set(strings.ToLower(r.Method), made)
}

// parameter refers to a parameter of the overlay. Where one of the path is named like one of a
// query, it is called …_in_path there; one of a single operation has its id before it.
func (a *accountsAPI) parameter(operation, name, in string) *object {
	known := a.overlay.Document.get("components").(*object).get("parameters").(*object)
	if in == "path" && known.has(name+"_in_path") {
		name += "_in_path"
	}
	if known.has(operation + "." + name) {
		name = operation + "." + name
	}
	if one, ok := known.get(name).(*object); !ok || one.get("in") != in {
		a.t.Errorf("openapi.yaml does not describe %s as a parameter of a %s", name, in)
	}
	return ref("parameters", name)
}

func (a *accountsAPI) body(o operation) *object {
	switch {
	case o.Texts != "":
		var required []any
		properties := obj()
		for one := range strings.FieldsSeq(o.Texts) {
			name, optional := strings.CutSuffix(one, "?")
			s := obj("type", "string")
			if optional {
				s = obj("type", []any{"string", "null"})
			} else {
				required = append(required, name)
				s.set("minLength", 1)
			}
			s.set("maxLength", tokens.MaxContact)
			a.annotate(s, o.ID, field{name: name})
			properties.set(name, s)
		}
		return jsonBody(a.requestOf(o.ID, shape(required, properties, true)))
	case o.Body == "lines":
		return obj("required", true, "content", lines)
	case o.Body != "":
		return jsonBody(a.use(o.Body))
	}
	return nil
}

func jsonBody(schema *object) *object {
	return obj("required", true, "content", obj("application/json", obj("schema", schema)))
}

// lines is a body of JSON objects, one a line.
var lines = obj("application/x-ndjson", obj("schema", obj("type", "string")))

func (a *accountsAPI) success(o operation) (status int, made *object) {
	status = o.Status
	made = obj("description", o.Success, "headers", o.Headers)
	if len(o.Answers) == 0 {
		return http.StatusNoContent, made
	}
	if status == 0 {
		status = http.StatusOK
	}
	var schema *object
	switch name := o.Answers[0]; name {
	case "lines":
		made.set("content", lines)
		return status, made
	case "object":
		schema = obj("type", "object", "additionalProperties", true)
	default:
		schema = a.use(name)
	}
	if len(o.Answers) > 1 {
		schemas := []any{schema}
		for _, name := range o.Answers[1:] {
			schemas = append(schemas, a.use(name))
		}
		whole := strings.Join(o.Answers, "Or")
		a.schemas.set(whole, obj("oneOf", schemas))
		schema = ref("schemas", whole)
	}
	made.set("content", obj("application/json", obj("schema", schema)))
	return status, made
}

func (a *accountsAPI) failure(status int) *object {
	name := strings.ReplaceAll(http.StatusText(status), " ", "")
	text := a.overlay.Responses[fmt.Sprint(status)]
	if text == "" {
		a.t.Errorf("openapi.yaml does not describe the response %d", status)
	}
	made := obj("description", text)
	switch status {
	case http.StatusUnauthorized:
		made.set("headers", obj("WWW-Authenticate", obj("description", "`Bearer realm=\"mnemogate\"`, with `error=\"invalid_token\"` if the key is wrong.", "required", true, "schema", obj("type", "string"))))
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		made.set("headers", obj("Retry-After", obj("description", "Seconds to wait before trying again.", "required", true, "schema", obj("type", "integer", "minimum", 1))))
	}
	made.set("content", obj("application/json", obj("schema", a.use("Error"))))
	a.responses.set(name, made)
	return ref("responses", name)
}

// writable makes the schema of an account that is written. null removes a value.
func (a *accountsAPI) writable() *object {
	shown := a.source.fields(a.t, "api.Account")
	properties := obj()
	for _, name := range slices.Concat(api.Fields, api.Proofs) {
		if slices.Contains(api.OnlyImported, name) {
			continue
		}
		of := field{name: name}
		s := obj("type", "string")
		if i := slices.IndexFunc(shown, func(f field) bool { return f.name == name }); i >= 0 {
			of = shown[i]
			s = a.typed("NewAccount", of)
		}
		if _, nullable := s.get("type").([]any); !nullable {
			s.set("type", []any{s.get("type"), "null"})
		}
		if limit := record.FieldNamed(name).Limit; limit > 0 && !a.overlay.Fields["NewAccount."+name].has("type") {
			s.set("maxLength", limit)
		}
		a.annotate(s, "NewAccount", of)
		properties.set(name, s)
	}
	return shape(nil, properties, true)
}
