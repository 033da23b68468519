package integration

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// An apiDocument is an OpenAPI document to compare requests and responses with. It
// compiles each schema once; kin-openapi would compile it for each response.
type apiDocument struct {
	*openapi3.T
	mu       sync.Mutex // guards compiler, which is not safe for concurrent use
	compiler *jsonschema.Compiler
}

func loadDocument(name string, change func(*openapi3.T)) (*apiDocument, error) {
	doc, err := openapi3.NewLoader().LoadFromFile(name)
	if err != nil {
		return nil, err
	}
	change(doc)
	raw, err := doc.MarshalJSON()
	if err != nil {
		return nil, err
	}
	content, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	d := &apiDocument{T: doc, compiler: jsonschema.NewCompiler()}
	d.compiler.DefaultDraft(jsonschema.Draft2020)
	d.compiler.AssertFormat()
	return d, d.compiler.AddResource("document.json", content)
}

// An apiCall is a request with its operation in the document.
type apiCall struct {
	doc       *apiDocument
	path      string // the path in the document
	operation *openapi3.Operation
	request   *http.Request
}

// call returns the operation for the path and the request's method, or nil.
func (d *apiDocument) call(path string, r *http.Request) *apiCall {
	item := d.Paths.Value(path)
	if item == nil || item.GetOperation(r.Method) == nil {
		return nil
	}
	return &apiCall{doc: d, path: path, operation: item.GetOperation(r.Method), request: r}
}

// checkAnswer checks that the document describes the answer.
func (c *apiCall) checkAnswer(t *testing.T, a answer) {
	t.Helper()
	err := openapi3filter.ValidateResponse(t.Context(), &openapi3filter.ResponseValidationInput{
		RequestValidationInput: &openapi3filter.RequestValidationInput{
			Request: c.request,
			Route:   &routers.Route{Spec: c.doc.T, Path: c.path, PathItem: c.doc.Paths.Value(c.path), Method: c.request.Method, Operation: c.operation},
		},
		Status:  a.Status,
		Header:  a.Header,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, ExcludeResponseBody: true},
	})
	if err == nil {
		response := c.operation.Responses.Status(a.Status)
		place := cmp.Or(response.Ref, fmt.Sprintf("%s/responses/%d", c.place(), a.Status))
		err = c.checkBody(place, response.Value.Content, a.Header.Get("Content-Type"), a.Body)
	}
	if err != nil {
		t.Errorf("%s %s: the answer %d %s is not in the OpenAPI document: %v", c.request.Method, c.path, a.Status, a.Body, err)
	}
}

// checkRequest checks that the document describes the request's body.
func (c *apiCall) checkRequest(t *testing.T) {
	t.Helper()
	if c.operation.RequestBody == nil {
		return
	}
	content, err := c.request.Body, error(nil)
	if c.request.GetBody != nil { // it was sent already
		content, err = c.request.GetBody()
	}
	var body []byte
	if err == nil && content != nil {
		body, err = io.ReadAll(content)
	}
	must(t, err)
	if len(body) == 0 && !c.operation.RequestBody.Value.Required {
		return
	}
	place := cmp.Or(c.operation.RequestBody.Ref, c.place()+"/requestBody")
	if err := c.checkBody(place, c.operation.RequestBody.Value.Content, c.request.Header.Get("Content-Type"), body); err != nil {
		t.Errorf("%s %s: a request that succeeded is not in the OpenAPI document: %v", c.request.Method, c.path, err)
	}
}

// place returns the JSON pointer of the operation in the document.
func (c *apiCall) place() string {
	return "#/paths/" + inPointer(c.path) + "/" + strings.ToLower(c.request.Method)
}

// inPointer escapes a key for a JSON pointer in a fragment.
func inPointer(key string) string {
	return strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D").Replace(key)
}

// checkBody checks a body with the schema for its content type.
func (c *apiCall) checkBody(place string, content openapi3.Content, contentType string, body []byte) error {
	if len(content) == 0 {
		return nil
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("its Content-Type is %q", contentType)
	}
	media := content[kind]
	if media == nil {
		return fmt.Errorf("it has no Content-Type %q", contentType)
	}
	if media.Schema == nil {
		return nil
	}
	schema, err := c.doc.schema(cmp.Or(media.Schema.Ref, place+"/content/"+inPointer(kind)+"/schema"))
	if err != nil {
		return err
	}
	var value any = string(body) // the document describes other types, such as lines, as strings
	if kind == "application/json" {
		if value, err = jsonschema.UnmarshalJSON(bytes.NewReader(body)); err != nil {
			return err
		}
	}
	return schema.Validate(value)
}

// schema returns the schema at a place. The compiler caches it.
func (d *apiDocument) schema(place string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.compiler.Compile("document.json" + place)
}

// The checks find what the document does not describe.
func TestWhatIsNotDocumentedIsFound(t *testing.T) {
	r := get(http.NewRequest(http.MethodPost, "/", nil))(t)
	call := document(t).call("/{company_code}/v2/auth/login", r)
	answers, login := call.operation.Responses.Status(http.StatusOK).Value.Content, call.operation.RequestBody.Value.Content
	for _, c := range []struct {
		place   string
		content openapi3.Content
		body    string
		good    bool
	}{
		{"/requestBody", login, `{"login_id": "alice"}`, true},
		{"/requestBody", login, `{"login_id": 1}`, false},
		{"/requestBody", login, `{}`, false},
		{"/requestBody", login, ``, false},
		{"/responses/200", answers, `{"status": "success", "session_token": "` + someToken + `", "session_state": "checkpassword", "expires_in": 600, "disclaimers_required": []}`, true},
		{"/responses/200", answers, `{"status": "success", "session_token": "` + someToken + `", "session_state": "checkpassword", "expires_in": 600, "disclaimers_required": [], "more": 1}`, false},
		{"/responses/200", answers, `{"status": "success", "session_token": "` + someToken + `", "session_state": "authorized", "expires_in": 600, "disclaimers_required": []}`, false},
	} {
		if err := call.checkBody(call.place()+c.place, c.content, "application/json", []byte(c.body)); (err == nil) != c.good {
			t.Errorf("%s: %v", c.body, err)
		}
	}
	if err := call.checkBody(call.place()+"/requestBody", login, "text/plain", []byte(`{"login_id": "alice"}`)); err == nil {
		t.Error("any type of content is good")
	}
}
