package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// documented is openapi.json with one change: a response must not have fields that
// the document does not name.
var documented = sync.OnceValues(func() (*apiDocument, error) {
	var closeSchema func(s *openapi3.SchemaRef)
	closeSchema = func(s *openapi3.SchemaRef) {
		if s.Value.Type.Is("object") {
			s.Value.AdditionalProperties.Has = new(bool)
		}
		for _, property := range s.Value.Properties {
			closeSchema(property)
		}
		if s.Value.Items != nil {
			closeSchema(s.Value.Items)
		}
	}
	return loadDocument(openAPIName, func(doc *openapi3.T) {
		for _, schema := range doc.Components.Schemas {
			closeSchema(schema)
		}
	})
})

func document(t *testing.T) *apiDocument {
	t.Helper()
	return get(documented())(t)
}

var (
	routePath   = regexp.MustCompile(`^/[A-Za-z0-9_-]{1,64}/v2/(auth/.+|me/.+|captcha|session|client.json|jwks.json)$`)
	sessionPath = regexp.MustCompile(`^me/sessions/.+`)
	devicePath  = regexp.MustCompile(`^me/devices/.+`)
	passkeyPath = regexp.MustCompile(`^me/passkeys/[^o].+`) // not me/passkeys/options
)

// checkDocumented checks that the OpenAPI document describes the answer of a route
// and, if it was a success, the request.
func (s *site) checkDocumented(r *http.Request, a answer) {
	s.t.Helper()
	found := routePath.FindStringSubmatch(strings.TrimPrefix(r.URL.EscapedPath(), s.base))
	if found == nil {
		return
	}
	doc := document(s.t)
	path := sessionPath.ReplaceAllString(found[1], "me/sessions/{session_id}")
	path = devicePath.ReplaceAllString(path, "me/devices/{device_id}")
	path = "/{company_code}/v2/" + passkeyPath.ReplaceAllString(path, "me/passkeys/{passkey_id}")
	call := doc.call(path, r)
	if call == nil {
		if flows.RouteByPath(found[1]) != nil && doc.Paths.Value(path) == nil {
			s.t.Errorf("%s is not in the OpenAPI document", path)
		}
		return
	}
	call.checkAnswer(s.t, a)
	if a.Status == http.StatusOK {
		call.checkRequest(s.t)
	} else if response := call.operation.Responses.Status(a.Status); response != nil && !slices.Contains(codesOf(response), a.str("error_code")) {
		s.t.Errorf("%s: the code of %d %s is not in the OpenAPI document", path, a.Status, a.Body)
	}
}

const openAPIName = "../gate/openapi.json"

func TestOpenAPIFileIsWhatIsServed(t *testing.T) {
	t.Parallel()
	golden := get(os.ReadFile(openAPIName))(t)
	s := startSite(t, siteConfig{more: `
		company open {
			api_key off
			captcha off
		}`, company: "captcha off", site: `
		handle /api/* {
			mnemogate {
				base_path /api
			}
			reverse_proxy BACKEND
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`})
	ask := func(method, path string, keys ...string) answer {
		s.t.Helper()
		r := s.request(method, path, "")
		r.Header["X-Api-Key"] = keys
		return s.do(r)
	}
	for _, path := range []string{"/acme/v2/openapi.json", "/open/v2/openapi.json"} {
		a := ask("GET", path, testKey)
		if a.Status != http.StatusOK || !bytes.Equal(a.Body, golden) || a.JSON == nil {
			t.Errorf("%s: got %d %s, want 200 and openapi.json", path, a.Status, a.Body)
		}
	}
	based := string(ask("GET", "/api/acme/v2/openapi.json", testKey).Body)
	if want := strings.Replace(string(golden), `"url": "/"`, `"url": "/api"`, 1); based != want || want == string(golden) {
		t.Errorf("with a base path: %s", cmp.Diff(want, based))
	}
	s.run("the key as on the routes", func(*testing.T) {
		ask("GET", "/acme/v2/openapi.json").want(wire.ErrAPIKeyMissing)
		ask("GET", "/acme/v2/openapi.json", "another").want(wire.ErrAPIKeyInvalid)
		ask("GET", "/acme/v2/openapi.json", testKey, testKey).want(wire.ErrAPIKeyInvalid)
		a := ask("GET", "/nobody/v2/openapi.json", testKey).want(wire.ErrAPIKeyInvalid)
		if got := a.Header.Get("WWW-Authenticate"); got != `Bearer realm="mnemogate"` {
			t.Errorf("WWW-Authenticate is %q", got)
		}
		ask("GET", "/nobody/v2/openapi.json").want(wire.ErrAPIKeyMissing)
	})
	s.run("GET only", func(*testing.T) {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE"} {
			a := ask(method, "/acme/v2/openapi.json", testKey).want(wire.ErrMethod)
			if got := a.Header.Get("Allow"); got != "GET" {
				t.Errorf("%s: Allow is %q", method, got)
			}
		}
		head := "HEAD /acme/v2/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: " + testKey + "\r\n\r\n"
		if a := s.exchange(head); a.Status != http.StatusMethodNotAllowed || a.Header.Get("Allow") != "GET" {
			t.Errorf("HEAD: got %d %v", a.Status, a.Header)
		}
	})
	if got := s.backend.requests(); len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
}

// extensions are the operations that flows.Routes does not have, with their errors.
var extensions = map[string][]*wire.Error{
	"GET captcha":     {wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrNoRoute, wire.ErrUnavailable, wire.ErrService},
	"GET client.json": {wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrUnavailable, wire.ErrService},
	"GET jwks.json":   {wire.ErrNoRoute, wire.ErrUnavailable, wire.ErrService},
	"GET session": {
		wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrHeaderMissing, wire.ErrHeaderInvalid, wire.ErrTokenInvalid, wire.ErrTokenExpired,
		wire.ErrUnavailable, wire.ErrService,
	},
	"POST session":   append(append([]*wire.Error{wire.ErrMethod}, flows.Common...), flows.TokenErrors...),
	"DELETE session": append([]*wire.Error{wire.ErrMethod, wire.ErrUnavailable, wire.ErrService}, flows.TokenErrors...),

	"GET me/factors":                  ownErrors(),
	"GET me/sessions":                 ownErrors(),
	"DELETE me/sessions":              changeErrors(),
	"DELETE me/sessions/{session_id}": changeErrors(wire.ErrNoRoute),
	"GET me/devices":                  ownErrors(),
	"DELETE me/devices":               changeErrors(),
	"DELETE me/devices/{device_id}":   changeErrors(wire.ErrNoRoute),
	"POST me/password":                bodyErrors(wire.ErrPasswordInvalid, wire.ErrPasswordSame, wire.ErrQuality),
	"POST me/totp":                    bodyErrors(),
	"DELETE me/totp":                  changeErrors(wire.ErrConflict),
	"POST me/totp/confirm":            bodyErrors(wire.ErrOTPInvalid),
	"POST me/second_factor":           bodyErrors(wire.ErrUserRestricted, wire.ErrConflict),
	"POST me/backup-codes":            bodyErrors(),
	"GET me/passkeys":                 ownErrors(),
	"POST me/passkeys":                bodyErrors(wire.ErrCredentialsInvalid, wire.ErrNoRoute),
	"POST me/passkeys/options":        bodyErrors(wire.ErrNoRoute),
	"PATCH me/passkeys/{passkey_id}":  bodyErrors(wire.ErrNoRoute),
	"DELETE me/passkeys/{passkey_id}": changeErrors(wire.ErrNoRoute, wire.ErrConflict),
}

// ownErrors returns the errors of a route of self_service, changeErrors those of a change,
// bodyErrors those of a change with a body.
func ownErrors(more ...*wire.Error) []*wire.Error {
	return slices.Concat([]*wire.Error{wire.ErrAPIKeyMissing, wire.ErrAPIKeyInvalid, wire.ErrValidation, wire.ErrUnavailable, wire.ErrService}, flows.TokenErrors, more)
}

func changeErrors(more ...*wire.Error) []*wire.Error {
	return ownErrors(append(more, wire.ErrRestricted)...)
}

func bodyErrors(more ...*wire.Error) []*wire.Error {
	return changeErrors(append(more, wire.ErrTooLarge, wire.ErrMediaType)...)
}

// The document has the operations of the table and the extensions, with their
// states, fields and errors, and no others.
func TestOpenAPISaysWhatTheTableSays(t *testing.T) {
	doc := document(t)
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	operations := map[string]*openapi3.Operation{}
	for path, item := range doc.Paths.Map() {
		for method, operation := range item.Operations() {
			operations[method+" "+strings.TrimPrefix(path, "/{company_code}/v2/")] = operation
		}
	}
	if got, want := len(operations), len(flows.Routes)+len(extensions); got != want {
		t.Errorf("it has %d operations, want %d", got, want)
	}
	all, answered := map[*wire.Error]bool{}, map[string]bool{}
	check := func(name string, errs []*wire.Error) *openapi3.Operation {
		operation := operations[name]
		if operation == nil {
			t.Fatalf("it has no %s", name)
		}
		checkErrors(t, name, operation, errs)
		for _, schema := range answersOf(operation) {
			checkDescribed(t, schema)
			for name := range schema.Properties {
				answered[name] = true
			}
		}
		for _, e := range errs {
			all[e] = true
		}
		return operation
	}
	for name, errs := range extensions {
		check(name, errs)
	}
	for i := range flows.Routes {
		route := &flows.Routes[i]
		errs := slices.Concat(flows.Common, route.Fails)
		if route.TakesToken() {
			errs = append(errs, flows.TokenErrors...)
		}
		operation := check("POST "+route.Path, errs)
		checkStates(t, route, operation)
		checkFields(t, route, operation)
	}
	for _, f := range slices.Concat(reflect.VisibleFields(reflect.TypeFor[flows.Reply]()), reflect.VisibleFields(reflect.TypeFor[wire.Disclaimer]())) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !answered[name] && doc.Components.Schemas["Disclaimer"].Value.Properties[name] == nil {
			t.Errorf("no answer has %s", name)
		}
	}
	var codes, reasons []any
	for e := range all {
		codes = append(codes, e.Code)
		for _, reason := range wire.Reasons[e] {
			reasons = append(reasons, string(reason))
		}
	}
	schema := doc.Components.Schemas["Error"].Value
	wantSet(t, "the schema of errors: error_code", schema.Properties["error_code"].Value.Enum, codes)
	wantSet(t, "the schema of errors: reason", schema.Properties["reason"].Value.Enum, reasons)
}

// wantSet compares two lists, ignoring their order.
func wantSet(t *testing.T, of string, got, want []any) {
	t.Helper()
	sorted := func(list []any) []string {
		set := map[string]bool{}
		for _, one := range list {
			set[fmt.Sprint(one)] = true
		}
		return slices.Sorted(maps.Keys(set))
	}
	if diff := cmp.Diff(sorted(want), sorted(got)); diff != "" {
		t.Errorf("%s: %s", of, diff)
	}
}

// checkErrors compares the examples of an operation's errors, and their headers,
// with the errors that it can return.
func checkErrors(t *testing.T, name string, operation *openapi3.Operation, errs []*wire.Error) {
	t.Helper()
	var got, want []any
	for status, response := range operation.Responses.Map() {
		for _, example := range response.Value.Content.Get("application/json").Examples {
			if value := example.Value.Value.(map[string]any); value["error_code"] != nil {
				got = append(got, fmt.Sprintln(status, value["error_code"], value["message"]))
			}
		}
		if retry := response.Value.Headers["Retry-After"] != nil; retry != (status == "429" || status == "503") {
			t.Errorf("%s: %s has Retry-After: %v", name, status, retry)
		}
		if response.Value.Headers["WWW-Authenticate"] == nil && status == "401" {
			t.Errorf("%s: 401 has no WWW-Authenticate", name)
		}
	}
	for _, e := range errs {
		want = append(want, fmt.Sprintln(e.Status, e.Code, e.Message))
	}
	wantSet(t, name, got, want)
}

// checkStates compares the states that a route accepts and the states that it leads
// to.
func checkStates(t *testing.T, route *flows.Route, operation *openapi3.Operation) {
	t.Helper()
	states := []record.State{}
	for _, answer := range answersOf(operation) {
		if schema, ok := answer.Properties["session_state"]; ok {
			states = append(states, record.State(schema.Value.Enum[0].(string)))
		}
		if !slices.Contains(answer.Required, "session_state") {
			states = append(states, record.None)
		}
	}
	if diff := cmp.Diff(route.To, states); diff != "" {
		t.Errorf("%s: its states: %s", route.Path, diff)
	}
	if _, takes := (*operation.Security)[0]["token"]; takes != route.TakesToken() {
		t.Errorf("%s: takes a token: %v", route.Path, takes)
	}
	for _, state := range record.States[1:] {
		takes := slices.Contains(route.From, state) && len(route.From) < len(record.States)-1 // otherwise any state
		if named := strings.Contains(operation.Description, "`"+string(state)+"`"); named != takes {
			t.Errorf("%s: its description names %s: %v", route.Path, state, named)
		}
	}
}

// checkFields compares the fields of a route's request body.
func checkFields(t *testing.T, route *flows.Route, operation *openapi3.Operation) {
	t.Helper()
	fields := route.Fields()
	if operation.RequestBody == nil {
		if len(fields) > 0 {
			t.Errorf("%s: it has no body", route.Path)
		}
		return
	}
	body := operation.RequestBody.Value.Content.Get("application/json").Schema.Value
	checkDescribed(t, body)
	if got, want := len(body.Properties), len(fields); got != want {
		t.Errorf("%s: it has %d fields, want %d", route.Path, got, want)
	}
	kinds := map[reflect.Kind]string{reflect.String: "string", reflect.Int: "integer", reflect.Slice: "array", reflect.Bool: "boolean", reflect.Map: "object"}
	for _, field := range fields {
		property := body.Properties[field.Name]
		if property == nil {
			t.Errorf("%s: it has no %s", route.Path, field.Name)
			continue
		}
		schema := property.Value
		optional := schema.Type.Includes("null")
		required := slices.Contains(body.Required, field.Name)
		longest, most := schema.MaxLength, schema.MaxItems
		if field.MaxItems > 0 {
			longest = schema.Items.Value.MaxLength
		}
		if !schema.Type.Includes(kinds[field.Kind]) || required != field.Required || optional == field.Required ||
			!sameBound(longest, field.Max) || !sameBound(most, field.MaxItems) {
			t.Errorf("%s: the document differs from %+v", route.Path, field)
		}
	}
}

// sameBound compares a bound in the document with one in the code, where 0 means
// none.
func sameBound(got *uint64, want int) bool {
	return got == nil && want == 0 || got != nil && *got == uint64(want)
}

// answersOf returns the schemas of an operation's successful responses.
func answersOf(o *openapi3.Operation) []*openapi3.Schema {
	schema := o.Responses.Status(http.StatusOK).Value.Content.Get("application/json").Schema.Value
	if schema.OneOf == nil {
		return []*openapi3.Schema{schema}
	}
	var all []*openapi3.Schema
	for _, one := range schema.OneOf {
		all = append(all, one.Value)
	}
	return all
}

// codesOf returns the error codes in the response's examples. All errors share one
// schema.
func codesOf(response *openapi3.ResponseRef) []string {
	var codes []string
	for _, example := range response.Value.Content.Get("application/json").Examples {
		if code, ok := example.Value.Value.(map[string]any)["error_code"].(string); ok {
			codes = append(codes, code)
		}
	}
	return codes
}

// checkDescribed checks that each field of a schema except status has a description
// and, if it is a single value, an example.
func checkDescribed(t *testing.T, schema *openapi3.Schema) {
	t.Helper()
	for name, p := range schema.Properties {
		if name == "status" {
			continue
		}
		single := !p.Value.Type.Is("object") && !p.Value.Type.Is("array")
		if p.Value.Description == "" || single && p.Value.Examples == nil && len(p.Value.Enum) == 0 {
			t.Errorf("%s has no description or no example", name)
		}
	}
}

// Redocly accepts the document, and a TypeScript client that uses types generated
// from it can log in.
func TestClientFromTheDocument(t *testing.T) {
	t.Parallel()
	storetest.NeedPeers(t, peersDir)
	s := startSite(t, siteConfig{
		company: fmt.Sprintf(`
			captcha off
			disclaimer terms 1 {
				title Terms
				description "Terms of use"
				link https://example.com/terms
			}
			account alice {
				email alice@example.com
				password "%s"
			}`, testPassword),
		handler: "base_path /api",
	})
	r := s.request("GET", "/api/acme/v2/openapi.json", "")
	r.Header.Set("X-Api-Key", testKey)
	served := s.do(r).Body

	w := newWorkshop(t, map[string]string{"openapi.json": string(served)}, peersDir+"/client.mts")
	if out := w.node(t, "node_modules/@redocly/cli/bin/cli.js", "lint", "openapi.json"); strings.Contains(out, "warning.") {
		t.Error(out)
	}
	w.node(t, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "--output", "schema.ts")
	w.tsc(t, "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--types", "node", "client.mts")
	config, err := json.Marshal(fields{
		"document": s.URL + "/api/acme/v2/openapi.json",
		"company":  "acme",
		"key":      testKey,
		"loginID":  "alice@example.com",
		"password": testPassword,
	})
	must(t, err)
	if got := w.node(t, "client.mjs", string(config)); got != `{"profile_mnemocode":"alice"}`+"\n" {
		t.Errorf("the client says %s", got)
	}
}
