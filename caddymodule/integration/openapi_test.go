package integration

import (
	"bytes"
	"encoding/json"
	"fmt"
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

// documented is openapi.json as it was read, but for one thing: an answer may
// have no field that it does not name.
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
	doc, err := documented()
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

var routePath = regexp.MustCompile(`^/[A-Za-z0-9_-]{1,64}/v2/(auth/.+|captcha|session|client.json)$`)

// checkDocumented checks that what a route answered is in the OpenAPI document
// and, if it was a success, what it was asked, too.
func (s *site) checkDocumented(r *http.Request, a answer) {
	s.t.Helper()
	found := routePath.FindStringSubmatch(strings.TrimPrefix(r.URL.EscapedPath(), s.base))
	if found == nil {
		return
	}
	doc := document(s.t)
	path := "/{company_code}/v2/" + found[1]
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
	golden, err := os.ReadFile(openAPIName)
	if err != nil {
		t.Fatal(err)
	}
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
	s.run("one spelling", func(*testing.T) {
		for _, path := range []string{"/acme/v2/openapi.json/", "/acme/v2/openapi%2ejson", "/acme/v2/OpenAPI.json", "/acme//v2/openapi.json"} {
			ask("GET", path, testKey).want(wire.ErrHeaderMissing)
		}
	})
	if got := s.backend.requests(); len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
}

// The document has exactly the routes, states and codes of the one table, and
// a word on each field.
func TestOpenAPISaysWhatTheTableSays(t *testing.T) {
	doc := document(t)
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	if got, want := doc.Paths.Len(), len(flows.Routes)+3; got != want { // and captcha, client.json and session
		t.Errorf("it has %d paths, want %d", got, want)
	}
	checkDescribed(t, doc.Components.Schemas["Challenge"].Value)
	checkDescribed(t, doc.Components.Schemas["Session"].Value)
	answered := map[string]bool{}
	for i := range flows.Routes {
		route := &flows.Routes[i]
		t.Run(route.Path, func(t *testing.T) {
			operation := doc.Paths.Value("/{company_code}/v2/" + route.Path).Post
			states := []record.State{}
			for _, answer := range answersOf(operation) {
				schema, ok := answer.Properties["session_state"]
				if ok {
					states = append(states, record.State(schema.Value.Enum[0].(string)))
				}
				if !slices.Contains(answer.Required, "session_state") {
					states = append(states, record.None)
				}
				for name := range answer.Properties {
					answered[name] = true
				}
				checkDescribed(t, answer)
			}
			if diff := cmp.Diff(route.To, states); diff != "" {
				t.Errorf("its states: %s", diff)
			}
			got, want := []string{}, []string{}
			for status, response := range operation.Responses.Map() {
				for _, code := range codesOf(response) {
					got = append(got, status+" "+code)
				}
			}
			for name, e := range everyError() {
				if route.MayFail(e) {
					want = append(want, name)
				}
			}
			slices.Sort(got)
			slices.Sort(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("its codes: %s", diff)
			}
			if (operation.RequestBody != nil) != (len(route.Fields()) > 0) {
				t.Error("it has a body without fields, or fields without a body")
			}
			if operation.RequestBody == nil {
				return
			}
			body := operation.RequestBody.Value.Content.Get("application/json").Schema.Value
			checkDescribed(t, body)
			for _, field := range route.Fields() {
				if schema := body.Properties[field.Name]; schema == nil || slices.Contains(body.Required, field.Name) != field.Required {
					t.Errorf("the request's %s is missing, or required where it is not", field.Name)
				}
			}
		})
	}
	for _, f := range slices.Concat(reflect.VisibleFields(reflect.TypeFor[flows.Reply]()), reflect.VisibleFields(reflect.TypeFor[wire.Disclaimer]())) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name != "" && name != "-" && !answered[name] && doc.Components.Schemas["Disclaimer"].Value.Properties[name] == nil {
			t.Errorf("no answer has %s", name)
		}
	}
}

// answersOf returns the schemas of an operation's successful answers.
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

// codesOf returns the codes of the response's examples: the schema is one for all
// errors.
func codesOf(response *openapi3.ResponseRef) []string {
	var codes []string
	for _, example := range response.Value.Content.Get("application/json").Examples {
		if code, ok := example.Value.Value.(map[string]any)["error_code"].(string); ok {
			codes = append(codes, code)
		}
	}
	return codes
}

// everyError returns all errors that any route may answer with, by status and
// code.
func everyError() map[string]*wire.Error {
	all := map[string]*wire.Error{}
	for i := range flows.Routes {
		for _, e := range errorsOf(&flows.Routes[i]) {
			all[fmt.Sprintf("%d %s", e.Status, e.Code)] = e
		}
	}
	return all
}

// checkDescribed checks that each field of a schema but status is described and
// has an example.
func checkDescribed(t *testing.T, schema *openapi3.Schema) {
	t.Helper()
	for name, p := range schema.Properties {
		if name == "status" {
			continue
		}
		if p.Value.Description == "" || p.Value.Examples == nil && len(p.Value.Enum) == 0 {
			t.Errorf("%s has no description or no example", name)
		}
	}
}

// Redocly finds no fault with the document, and a client in TypeScript whose
// types are made from it logs in.
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
	w.node(t, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "--output", "schema.d.ts")
	w.tsc(t, "--target", "es2022", "--module", "nodenext", "--types", "node", "client.mts")
	config, err := json.Marshal(fields{
		"document": s.URL + "/api/acme/v2/openapi.json",
		"company":  "acme",
		"key":      testKey,
		"loginID":  "alice@example.com",
		"password": testPassword,
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := w.node(t, "client.mjs", string(config)); got != `{"profile_mnemocode":"alice"}`+"\n" {
		t.Errorf("the client says %s", got)
	}
}
