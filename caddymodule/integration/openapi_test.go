package integration

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// documented is openapi.json with one change: a response must not have fields or values
// that the document does not name.
var documented = sync.OnceValues(func() (*apiDocument, error) {
	return loadDocument(openAPIName, closeAnswers)
})

// closeAnswers refuses fields of answers that the document does not name.
func closeAnswers(doc *openapi3.T) {
	for name, schema := range doc.Components.Schemas {
		if !strings.HasSuffix(name, "Request") { // the gate ignores what it does not know
			closeSchema(schema)
		}
	}
}

// closeSchema refuses fields that a schema does not name, and values that its description
// does not name where later versions may have others.
func closeSchema(s *openapi3.SchemaRef) {
	if strings.Contains(s.Value.Description, "or one of a later version") {
		of := s.Value
		if of.Items != nil {
			of = of.Items.Value
		}
		for _, value := range inBackticks.FindAllStringSubmatch(s.Value.Description, -1) {
			of.Enum = append(of.Enum, value[1])
		}
	}
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

var inBackticks = regexp.MustCompile("`([^`]+)`")

func document(t *testing.T) *apiDocument {
	t.Helper()
	return get(documented())(t)
}

var (
	routePath   = regexp.MustCompile(`^/[A-Za-z0-9_-]{1,64}/v2/(auth/.+|me/.+|passkey/.+|stepup(/check)?|captcha|session|client.json|jwks.json)$`)
	sessionPath = regexp.MustCompile(`^me/sessions/.+`)
	tokenPath   = regexp.MustCompile(`^me/tokens/.+`)
	devicePath  = regexp.MustCompile(`^me/devices/.+`)
	passkeyPath = regexp.MustCompile(`^me/passkeys/[^o].+`) // not me/passkeys/options
)

// checkDocumented checks that the OpenAPI document describes the answer of a route
// and, if it was a success, the request.
func (s *site) checkDocumented(r *http.Request, a answer) {
	s.t.Helper()
	found := routePath.FindStringSubmatch(strings.TrimPrefix(r.URL.EscapedPath(), s.base))
	if found == nil || strings.HasPrefix(found[1], "stepup") && a.JSON == nil { // the application's, where nothing may ask for it
		return
	}
	doc := document(s.t)
	path := sessionPath.ReplaceAllString(found[1], "me/sessions/{session_id}")
	path = tokenPath.ReplaceAllString(path, "me/tokens/{token_id}")
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
		}`, company: account("alice", "email alice@example.com") + "captcha off\ndisclaimer terms 1 {\ntitle Terms\ndescription \"Terms of use\"\nlink https://example.com/terms\n}", site: `
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
		ask("GET", "/nobody/v2/openapi.json", testKey).want(wire.ErrAPIKeyInvalid).wantHeader("WWW-Authenticate", `Bearer realm="mnemogate"`)
		ask("GET", "/nobody/v2/openapi.json").want(wire.ErrAPIKeyMissing)
	})
	s.run("GET only", func(*testing.T) {
		for _, method := range []string{"POST", "PUT", "DELETE", "OPTIONS", "TRACE"} {
			ask(method, "/acme/v2/openapi.json", testKey).want(wire.ErrMethod).wantHeader("Allow", "GET")
		}
		head := "HEAD /acme/v2/openapi.json HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Api-Key: " + testKey + "\r\n\r\n"
		s.exchange(head).wantStatus(http.StatusMethodNotAllowed).wantHeader("Allow", "GET")
	})
	if got := s.backend.requests(); len(got) != 0 {
		t.Errorf("the application got %q", got)
	}
	s.run("a client", func(t *testing.T) { clientFromTheDocument(t, s, based) })
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

// Redocly accepts both documents, and a TypeScript client that uses types generated
// from it can log in.
func clientFromTheDocument(t *testing.T, s *site, served string) {
	storetest.NeedPeers(t, peersDir)
	w := newWorkshop(t, map[string]string{"openapi.json": served, "accounts.json": string(get(os.ReadFile("../accounts/openapi.json"))(t))}, peersDir+"/client.mts")
	if out := w.node(t, "node_modules/@redocly/cli/bin/cli.js", "lint", "openapi.json", "accounts.json"); regexp.MustCompile("You have [0-9]+ warning").MatchString(out) {
		t.Error(out)
	}
	w.node(t, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "--output", "schema.ts")
	w.compile(t, "client.mts")
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

// apiDocuments maps the name of each generated package to its OpenAPI document.
var apiDocuments = map[string]string{"auth": openAPIName, "accounts": "../accounts/openapi.json"}

// oapiCodegenClient makes a client of each document with oapi-codegen.
func oapiCodegenClient(t *testing.T) []string {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("testdata/oapi")))
	inDir := func(args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		// Tests must not download anything.
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly -trimpath", "GOWORK=off", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := inDir("tool", "oapi-codegen", "-version"); err != nil {
		storetest.SkipOrFail(t, "oapi-codegen can't be had; run (cd caddymodule/integration/testdata/oapi && go mod download): "+strings.Join(strings.Fields(out), " "))
	}
	for name, document := range apiDocuments {
		path, err := filepath.Abs(document)
		must(t, errors.Join(err, os.Mkdir(filepath.Join(dir, name), 0o700)))
		if out, err := inDir("tool", "oapi-codegen", "-generate", "types,client", "-package", name, "-o", name+"/client.go", path); err != nil {
			t.Errorf("%s: %v\n%s", document, err, out)
		}
	}
	if out, err := inDir("build", "-o", "bin/", "./..."); err != nil {
		t.Fatalf("the generated clients: %v\n%s", err, out)
	}
	return []string{dir + "/bin/story"}
}

// orvalClient makes a client of each document with orval.
func orvalClient(t *testing.T) []string {
	made := map[string]string{}
	for name, document := range apiDocuments {
		made[name+".json"] = string(get(os.ReadFile(document))(t))
	}
	w := newWorkshop(t, made, peersDir+"/orval.config.cjs", peersDir+"/request.ts", peersDir+"/story.mts", peersDir+"/story-orval.mts")
	if out := w.node(t, "node_modules/orval/dist/bin/orval.js", "--config", "orval.config.cjs"); strings.Count(out, "ready to use") != len(apiDocuments) {
		t.Error(out)
	}
	w.compile(t, "story-orval.mts")
	return []string{"node", w.dir + "/story-orval.mjs"}
}

// openAPIFetchClient makes a client of the accounts API's document with openapi-typescript.
// TestOpenAPIFileIsWhatIsServed has one of the auth API's.
func openAPIFetchClient(t *testing.T) []string {
	w := newWorkshop(t, nil, apiDocuments["accounts"], peersDir+"/story.mts", peersDir+"/story-fetch.mts")
	w.node(t, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "--output", "schema.ts")
	w.compile(t, "story-fetch.mts")
	return []string{"node", w.dir + "/story-fetch.mjs"}
}

// hey-api makes clients that compile.
func TestHeyAPIClientsCompile(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t, nil)
	var made []string
	for name, document := range apiDocuments {
		path := get(filepath.Abs(document))(t)
		w.node(t, "node_modules/@hey-api/openapi-ts/bin/index.cjs", "--input", path, "--output", name, "--client", "@hey-api/client-fetch")
		made = append(made, name+"/index.ts", name+"/sdk.gen.ts")
	}
	w.tsc(t, append(made, "--noEmit", "--skipLibCheck", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler")...)
}

// ogen makes one type of a schema and a security scheme with the same name, and one of an
// answer's schema with its headers. Kubb makes a file of each operation and each schema, and
// macOS and Windows take files whose names differ in case for one. (Building ogen and its code
// takes too long for a test.)
func TestNamesInTheDocumentsHaveOneMeaning(t *testing.T) {
	t.Parallel()
	for name, path := range apiDocuments {
		doc := get(openapi3.NewLoader().LoadFromFile(path))(t)
		for scheme := range doc.Components.SecuritySchemes {
			for schema := range doc.Components.Schemas {
				if strings.EqualFold(scheme, schema) {
					t.Errorf("%s: the security scheme %s is named like a schema", name, scheme)
				}
			}
		}
		schemas := map[string]string{}
		for schema := range doc.Components.Schemas {
			schemas[strings.ToLower(schema)] = schema
		}
		required := map[string]bool{}
		for path, item := range doc.Paths.Map() {
			for method, operation := range item.Operations() {
				if schema := schemas[strings.ToLower(strings.ReplaceAll(operation.OperationID, "_", ""))]; schema != "" {
					t.Errorf("%s: the operation %s is named like the schema %s", name, operation.OperationID, schema)
				}
				for status, response := range operation.Responses.Map() {
					for header, described := range response.Value.Headers {
						if before, known := required[header]; known && before != described.Value.Required {
							t.Errorf("%s: %s of %s %s %s is not required as elsewhere", name, header, method, path, status)
						}
						required[header] = described.Value.Required
					}
				}
			}
		}
	}
}

// A generated client that validates answers can log in even once there are more factors.
func TestTheDocumentTakesFactorsOfLaterVersions(t *testing.T) {
	t.Parallel()
	schemas := get(openapi3.NewLoader().LoadFromFile(openAPIName))(t).Components.Schemas
	for name, field := range map[string]string{"CheckOTPStep": "second_factors", "SessionState": "second_factors", "StepUpStarted": "factors", "ClientRequirements": "recovery"} {
		if err := schemas[name].Value.Properties[field].Value.VisitJSON([]any{"later"}); err != nil {
			t.Errorf("%s.%s: %v", name, field, err)
		}
	}
	if err := schemas["StepUpStarted"].Value.Properties["factor"].Value.VisitJSON("later"); err != nil {
		t.Error(err)
	}
}
