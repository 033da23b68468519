package accounts

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

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

// The parameters take what they say.
func TestOpenAPIParameters(t *testing.T) {
	parameters := openAPIDocument(t).Components.Parameters
	statuses := []record.Status{record.StatusActive, record.StatusRestricted, record.StatusClosed, record.StatusDenied}
	if got, want := fmt.Sprint(parameters["status"].Value.Schema.Value.Enum), fmt.Sprint(statuses); got != want {
		t.Errorf("the status is one of %s, want %s", got, want)
	}
	if limit := parameters["limit"].Value.Schema.Value; *limit.Max != api.MaxPage || limit.Default != float64(api.DefaultPage) {
		t.Errorf("limit is at most %v, and %v by default", *limit.Max, limit.Default)
	}
}

// The schemas of requests have the fields that the parser reads, which takes
// the types and the longest text that they say, and nothing else.
func TestOpenAPISaysWhatFieldsTake(t *testing.T) {
	schemas := openAPIDocument(t).Components.Schemas
	for _, of := range []string{"NewAccount", "AccountPatch"} {
		for name, property := range schemas[of].Value.Properties {
			checkTakes(t, of+"."+name, property.Value, func(value string) bool {
				change, err := parseChange(fmt.Appendf(nil, "{%q:%s}", name, value), changePatch, false)
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
		return s.Type.Includes("string") && s.MaxLength == nil && s.Pattern == "" && s.Format == "" && s.Enum == nil
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
