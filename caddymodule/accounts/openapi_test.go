package accounts

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
)

func openAPIDocument(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(openAPIFile)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

// The document has the operations of Routes and no others, with the same parameters.
func TestOpenAPIHasTheRoutes(t *testing.T) {
	operations := 0
	doc := openAPIDocument(t)
	for _, item := range doc.Paths.Map() {
		operations += len(item.Operations())
	}
	if operations != len(Routes) {
		t.Errorf("it has %d operations, want %d", operations, len(Routes))
	}
	for _, r := range Routes {
		item := doc.Paths.Value("/" + r.Pattern)
		if item == nil || item.GetOperation(r.Method) == nil {
			t.Errorf("it has no %s /%s", r.Method, r.Pattern)
			continue
		}
		o := item.GetOperation(r.Method)
		right := "Needs the right `" + string(r.Right) + "`."
		if o.Summary+"." != r.Summary || strings.HasPrefix(o.Description, right) != (r.Right != "") {
			t.Errorf("%s /%s: %s: %s", r.Method, r.Pattern, o.Summary, o.Description)
		}
		var query []string
		for _, p := range o.Parameters {
			if p.Value.In == "query" {
				query = append(query, p.Value.Name)
			}
		}
		if !slices.Equal(query, r.Query) {
			t.Errorf("%s /%s: the query parameters are %q, want %q", r.Method, r.Pattern, query, r.Query)
		}
		statuses := []int{400, 401, 403, 429, 500, 503}
		for segment := range strings.SplitSeq(r.Pattern, "/") {
			if name, ok := strings.CutPrefix(segment, "{"); ok {
				statuses = append(statuses, 404)
				if o.Parameters.GetByInAndName("path", strings.TrimSuffix(name, "}")) == nil {
					t.Errorf("%s /%s: the path's %s is missing", r.Method, r.Pattern, name)
				}
			}
		}
		for _, status := range statuses {
			if o.Responses.Status(status) == nil {
				t.Errorf("%s /%s: %d is missing", r.Method, r.Pattern, status)
			}
		}
	}
}

// The schemas of answers have the fields of the types that are answered.
func TestOpenAPIHasTheAnswers(t *testing.T) {
	components := openAPIDocument(t).Components
	schemas := components.Schemas
	types := []reflect.Type{
		reflect.TypeFor[api.Companies](), reflect.TypeFor[api.Page](), reflect.TypeFor[api.Account](), reflect.TypeFor[api.Changed](),
		reflect.TypeFor[api.Identity](), reflect.TypeFor[api.Acceptance](), reflect.TypeFor[api.History](), reflect.TypeFor[api.Event](),
		reflect.TypeFor[api.Sessions](), reflect.TypeFor[api.Session](), reflect.TypeFor[api.BackupCodes](), reflect.TypeFor[api.Error](),
		reflect.TypeFor[api.Passkeys](), reflect.TypeFor[api.Passkey](), reflect.TypeFor[api.Devices](), reflect.TypeFor[api.Device](), reflect.TypeFor[manage.TOTPSecret](), reflect.TypeFor[manage.Introspection](),
	}
	if got, want := len(schemas), len(types)+len([]string{"NewAccount", "AccountPatch"}); got != want {
		t.Errorf("it has %d schemas, want %d", got, want)
	}
	for _, of := range types {
		schema := schemas[of.Name()]
		if schema == nil {
			t.Errorf("it has no %s", of.Name())
			continue
		}
		var names, required []string
		for f := range of.Fields() {
			name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
			names = append(names, name)
			if !strings.HasPrefix(options, "omit") {
				required = append(required, name)
			}
		}
		compareFields(t, of.Name(), schema.Value, names)
		if diff := cmp.Diff(required, schema.Value.Required); diff != "" {
			t.Errorf("%s: the required fields: %s", of.Name(), diff)
		}
	}
	statuses := []record.Status{record.StatusActive, record.StatusRestricted, record.StatusClosed, record.StatusDenied}
	for of, values := range map[string][2]any{
		"parameter":    {components.Parameters["status"].Value.Schema.Value.Enum, statuses},
		"Account":      {schemas["Account"].Value.Properties["status"].Value.Enum, statuses},
		"NewAccount":   {schemas["NewAccount"].Value.Properties["status"].Value.Enum, statuses},
		"AccountPatch": {schemas["AccountPatch"].Value.Properties["status"].Value.Enum, statuses},
		"Session":      {schemas["Session"].Value.Properties["session_state"].Value.Enum, record.States},
	} {
		if got, want := fmt.Sprint(values[0]), fmt.Sprint(values[1]); got != want {
			t.Errorf("%s: the status or state is one of %s, want %s", of, got, want)
		}
	}
	if limit := components.Parameters["limit"].Value.Schema.Value; *limit.Max != api.MaxPage || limit.Default != float64(api.DefaultPage) {
		t.Errorf("limit is at most %v, and %v by default", *limit.Max, limit.Default)
	}
}

// compareFields checks that a schema has these fields and a description of each.
func compareFields(t *testing.T, of string, schema *openapi3.Schema, want []string) {
	t.Helper()
	var got []string
	for name, property := range schema.Properties {
		got = append(got, name)
		if property.Value.Description == "" {
			t.Errorf("%s.%s has no description", of, name)
		}
	}
	slices.Sort(got)
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		t.Errorf("%s: its fields: %s", of, diff)
	}
}

// The schemas of requests have the fields that the parser reads, which takes
// the types and the longest text that they say, and nothing else.
func TestOpenAPISaysWhatFieldsTake(t *testing.T) {
	schemas := openAPIDocument(t).Components.Schemas
	var fields []string
	for _, name := range api.Fields {
		if !slices.Contains(api.OnlyImported, name) {
			fields = append(fields, name)
		}
	}
	for _, of := range []string{"NewAccount", "AccountPatch"} {
		compareFields(t, of, schemas[of].Value, fields)
		for name, property := range schemas[of].Value.Properties {
			checkTakes(t, of+"."+name, property.Value, func(value string) bool {
				change, err := parseChange(fmt.Appendf(nil, "{%q:%s}", name, value), changePatch)
				return err == nil && manage.CheckSecrets(change.Password, change.Answer) == nil
			})
		}
	}
}

// checkTakes compares a field's schema with what the parser takes.
func checkTakes(t *testing.T, name string, schema *openapi3.Schema, takes func(value string) bool) {
	t.Helper()
	all := []*openapi3.Schema{schema}
	for _, one := range schema.OneOf {
		all = append(all, one.Value)
	}
	text := func(length int) string { return strconv.Quote(strings.Repeat("a", length)) }
	compare := func(what, value string, says func(*openapi3.Schema) bool) {
		if got, want := takes(value), slices.ContainsFunc(all, says); got != want {
			t.Errorf("%s: it takes %s is %v, and the document says %v", name, what, got, want)
		}
	}
	const keycloak = `{"credentialData":"{\"hashIterations\":5,\"algorithm\":\"pbkdf2\"}","secretData":"{\"value\":\"MDEyMzQ1Njc4\",\"salt\":\"MDEyMzQ1Njc\"}"}`
	for kind, value := range map[string]string{"null": "null", "boolean": "true", "integer": "3", "array": "[]", "object": keycloak} {
		compare(kind, value, func(s *openapi3.Schema) bool { return s.Type.Includes(kind) })
	}
	compare("a long text", text(5000), func(s *openapi3.Schema) bool {
		return s.Type.Includes("string") && s.MaxLength == nil && s.Pattern == "" && s.Enum == nil
	})
	for _, s := range all {
		if s.MinLength > 0 && takes(text(0)) {
			t.Errorf("%s: it takes an empty text", name)
		}
		if s.MaxLength != nil && (!takes(text(int(*s.MaxLength))) || takes(text(int(*s.MaxLength)+1))) {
			t.Errorf("%s: the longest is not %d", name, *s.MaxLength)
		}
	}
	for _, one := range schema.Enum {
		if !takes(strconv.Quote(fmt.Sprint(one))) {
			t.Errorf("%s: it does not take %v", name, one)
		}
	}
}
