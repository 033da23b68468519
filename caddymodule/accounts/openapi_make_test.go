package accounts

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/openapi"
	"github.com/mnemogate/mnemogate/flows/record"
)

type (
	object = openapi.Object
	member = openapi.Member
)

var update = flag.Bool("update", false, "write openapi.json anew")

// After a change: go test ./caddymodule/accounts -run OpenAPI -update
func TestOpenAPIFileIsMadeOfTheTables(t *testing.T) {
	made, err := makeOpenAPI(t)
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile("openapi.json", made, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(openAPIFile), string(made)); diff != "" {
		t.Fatalf("openapi.json is not what is made; run go test ./caddymodule/accounts -run OpenAPI -update\n%s", diff)
	}
}

// makeOpenAPI returns the OpenAPI 3.1 document of Routes. openapi_text_test.go has
// its words.
func makeOpenAPI(t *testing.T) ([]byte, error) {
	d := &documentMaker{t: t, made: map[reflect.Type]bool{}}
	paths := object{}
	for _, r := range Routes {
		path := "/" + r.Pattern
		i := slices.IndexFunc(paths, func(m member) bool { return m.Name() == path })
		if i < 0 {
			i = len(paths)
			paths = append(paths, member{path, object{}})
		}
		paths[i][1] = append(paths[i][1].(object), member{strings.ToLower(r.Method), d.operation(r)})
	}
	for _, kind := range []changeKind{changeNew, changeOld} {
		d.schemas = append(d.schemas, member{changeSchemas[kind], d.changeSchema(kind)})
	}
	d.answer(reflect.TypeFor[api.Error]())
	b, err := openapi.Append(nil, "", object{
		{"openapi", "3.1.0"},
		{"info", object{
			{"title", "Accounts, for backends"}, {"version", "v1"}, {"description", apiDescription},
			{"license", object{{"name", "Apache 2.0"}, {"identifier", "Apache-2.0"}}},
		}},
		{"servers", []any{object{{"url", "/"}, {"description", "This server"}}}},
		{"security", []any{object{{"key", []any{}}}}},
		{"paths", paths},
		{"components", object{
			{"securitySchemes", object{{"key", object{{"type", "http"}, {"scheme", "bearer"}, {"description", "A key of the directive mnemogate_accounts."}}}}},
			{"parameters", d.parameters},
			{"schemas", d.schemas},
			{"responses", d.responses},
		}},
	})
	return append(b, '\n'), err
}

// A documentMaker collects what the operations refer to.
type documentMaker struct {
	t                              *testing.T
	made                           map[reflect.Type]bool
	parameters, schemas, responses object
}

func (d *documentMaker) operation(r Route) object {
	text, ok := operations[r.Method+" "+r.Pattern]
	if !ok {
		d.t.Fatalf("%s %s: say in operations what it takes and answers", r.Method, r.Pattern)
	}
	description := text.more
	if r.Right != "" {
		description = strings.TrimSpace("Needs the right `" + string(r.Right) + "`. " + description)
	}
	o := object{{"operationId", text.id}, {"summary", strings.TrimSuffix(r.Summary, ".")}}
	if description != "" {
		o = append(o, member{"description", description})
	}
	if parameters := d.parametersOf(r, text); len(parameters) > 0 {
		o = append(o, member{"parameters", parameters})
	}
	statuses := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusServiceUnavailable}
	if strings.Contains(r.Pattern, "{") {
		statuses = append(statuses, http.StatusNotFound)
	}
	if text.query != nil || text.body != nil {
		statuses = append(statuses, http.StatusBadRequest)
	}
	if text.body != nil {
		statuses = append(statuses, http.StatusRequestEntityTooLarge)
		o = append(o, member{"requestBody", object{{"required", true}, {"content", text.body}}})
	}
	statuses = append(statuses, text.fails...)
	slices.Sort(statuses)
	responses := object{{strconv.Itoa(text.status), d.success(text)}}
	for _, status := range slices.Compact(statuses) {
		responses = append(responses, member{strconv.Itoa(status), d.failure(status)})
	}
	return append(o, member{"responses", responses})
}

func (d *documentMaker) parametersOf(r Route, text operationText) (all []any) {
	refer := func(name, in string, more ...member) {
		component := name
		if name == "session" {
			component = "session_id" // Session is a schema: a generator would make two types of one name
		}
		d.parameters.AddOnce(component, func() any {
			return append(object{{"name", name}, {"in", in}}, append(more, parameterTexts[name]...)...)
		})
		all = append(all, openapi.Ref("parameters", component))
	}
	for segment := range strings.SplitSeq(r.Pattern, "/") {
		if name, ok := strings.CutPrefix(segment, "{"); ok {
			refer(strings.TrimSuffix(name, "}"), "path", member{"required", true})
		}
	}
	for _, name := range text.query {
		refer(name, "query")
	}
	return all
}

func (d *documentMaker) success(text operationText) object {
	o := object{{"description", text.answer}}
	if text.status == http.StatusCreated {
		o = append(o, member{"headers", object{{"Location", object{{"description", "The account's path."}, {"required", true}, {"schema", object{{"type", "string"}}}}}}})
	}
	if text.content != nil {
		return append(o, member{"content", text.content})
	}
	var schemas []any
	for _, of := range text.of {
		schemas = append(schemas, d.answer(reflect.TypeOf(of)))
	}
	switch len(schemas) {
	case 0:
		return o
	case 1:
		return append(o, member{"content", openapi.JSON(schemas[0])})
	default:
		return append(o, member{"content", openapi.JSON(object{{"oneOf", schemas}})})
	}
}

// failure is the response of a status, the same everywhere.
func (d *documentMaker) failure(status int) object {
	name := strings.ReplaceAll(http.StatusText(status), " ", "")
	d.responses.AddOnce(name, func() any {
		text, ok := failureTexts[status]
		if !ok {
			d.t.Fatalf("say in failureTexts what %d means", status)
		}
		o := object{{"description", text}}
		switch status {
		case http.StatusTooManyRequests, http.StatusServiceUnavailable:
			o = append(o, member{"headers", object{{"Retry-After", object{
				{"description", "After how many seconds to try again."}, {"required", true}, {"schema", object{{"type", "integer"}, {"minimum", 1}}},
			}}}})
		}
		return append(o, member{"content", openapi.JSON(openapi.Ref("schemas", "Error"))})
	})
	return openapi.Ref("responses", name)
}

// answer is the schema of a type that is answered, under the type's name.
func (d *documentMaker) answer(t reflect.Type) object {
	if !d.made[t] {
		d.made[t] = true
		required, properties := []string{}, object{}
		for i := range t.NumField() {
			f := t.Field(i)
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			if !strings.HasPrefix(options, "omit") {
				required = append(required, name)
			}
			properties = append(properties, member{name, d.described(t.Name(), name, d.typed(f.Type))})
		}
		schema := object{{"type", "object"}, {"required", required}, {"additionalProperties", false}, {"properties", properties}}
		d.schemas = append(d.schemas, member{t.Name(), schema})
	}
	return openapi.Ref("schemas", t.Name())
}

// typed is what Go says of a field that is answered.
func (d *documentMaker) typed(t reflect.Type) object {
	switch {
	case t.Kind() == reflect.Pointer:
		o := d.typed(t.Elem())
		o[0][1] = []any{o[0][1], "null"}
		return o
	case t == reflect.TypeFor[time.Time]():
		return object{{"type", "string"}, {"format", "date-time"}}
	case t.Kind() == reflect.Slice:
		return object{{"type", "array"}, {"items", d.typed(t.Elem())}}
	case t.Kind() == reflect.Struct:
		return d.answer(t)
	case t.Kind() == reflect.Bool:
		return object{{"type", "boolean"}}
	case t.Kind() == reflect.Int || t.Kind() == reflect.Int64:
		return object{{"type", "integer"}}
	case t == reflect.TypeFor[record.Status]():
		return object{{"type", "string"}, {"enum", statuses}}
	case t == reflect.TypeFor[record.State]():
		states := []any{}
		for _, s := range record.States {
			states = append(states, s)
		}
		return object{{"type", "string"}, {"enum", states}}
	case t.Kind() == reflect.String:
		return object{{"type", "string"}}
	default:
		d.t.Fatalf("there is no schema for %s", t)
		return nil
	}
}

var statuses = []any{record.StatusActive, record.StatusRestricted, record.StatusClosed, record.StatusDenied}

// described adds the words for a field of a type, which may differ from others'
// words for it.
func (d *documentMaker) described(of, name string, schema object) object {
	text, ok := fieldTexts[of+"."+name]
	if !ok {
		text, ok = fieldTexts[name]
	}
	if !ok {
		d.t.Fatalf("%s.%s: describe it in fieldTexts", of, name)
	}
	return append(schema, member{"description", text})
}

var changeSchemas = map[changeKind]string{changeNew: "NewAccount", changeOld: "AccountPatch"}

// changeSchema has the fields that can be written: those of the table that parses
// them, with the limits that it keeps to.
func (d *documentMaker) changeSchema(kind changeKind) object {
	schema, properties := object{{"type", "object"}}, object{}
	for _, f := range accountFields {
		if f.imported {
			continue
		}
		limits, ok := writtenFields[f.name]
		if !ok {
			d.t.Fatalf("%s: say in writtenFields what it takes", f.name)
		}
		properties = append(properties, member{f.name, d.described(changeSchemas[kind], f.name, slices.Clone(limits))})
	}
	if kind == changeNew {
		schema = append(schema, member{"required", []string{"profile_mnemocode"}})
	}
	return append(schema, member{"additionalProperties", false}, member{"properties", properties})
}

// What the document says of a field is what the parser does: it takes the types
// and the longest text, and nothing else.
func TestOpenAPISaysWhatFieldsTake(t *testing.T) {
	takes := func(name, value string) bool {
		_, err := parseChange(fmt.Appendf(nil, "{%q:%s}", name, value), changeOld)
		return err == nil
	}
	for _, f := range accountFields {
		if f.imported {
			continue
		}
		schema := map[string]any{}
		for _, m := range writtenFields[f.name] {
			schema[m.Name()] = m[1]
		}
		types, several := schema["type"].([]any)
		if !several {
			types = []any{schema["type"]}
		}
		for kind, value := range map[string]string{"null": "null", "boolean": "true", "integer": "3", "array": "[]", "object": "{}"} {
			if got, want := takes(f.name, value), slices.Contains(types, any(kind)); got != want && kind != "object" {
				t.Errorf("%s: it takes %s is %v, and the document says %v", f.name, kind, got, want)
			}
		}
		if longest, ok := schema["maxLength"].(int); ok && (!takes(f.name, strconv.Quote(strings.Repeat("a", longest))) || takes(f.name, strconv.Quote(strings.Repeat("a", longest+1)))) {
			t.Errorf("%s: the longest is not %d", f.name, longest)
		}
		enum, _ := schema["enum"].([]any)
		for _, one := range enum {
			if !takes(f.name, strconv.Quote(fmt.Sprint(one))) {
				t.Errorf("%s: it does not take %v", f.name, one)
			}
		}
	}
}

func TestOpenAPITextsAreOfUse(t *testing.T) {
	for of := range operations {
		if !slices.ContainsFunc(Routes, func(r Route) bool { return r.Method+" "+r.Pattern == of }) {
			t.Errorf("there is no route %s", of)
		}
	}
	for name, text := range fieldTexts {
		if text == "" || !unicode.IsUpper(rune(text[0])) || !strings.HasSuffix(text, ".") {
			t.Errorf("%s: %q is no sentence", name, text)
		}
	}
}
