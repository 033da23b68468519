// Package openapi is OpenAPI documents as Go values, for the tests that make
// openapi.json of the tables of routes.
package openapi

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Ref refers to a component.
func Ref(kind, name string) Object {
	return Object{{"$ref", "#/components/" + kind + "/" + name}}
}

// JSON is the content of what is JSON.
func JSON(schema any, more ...Member) Object {
	return Object{{"application/json", append(Object{{"schema", schema}}, more...)}}
}

// An Object is a JSON object that keeps its members in order, as a reader
// would have them.
type Object []Member

// A Member is one of an Object's: its name, a string, and its value. It is no
// struct, so that it can be written without naming both.
type Member [2]any

// Name is the member's.
func (m Member) Name() string { return m[0].(string) }

// AddOnce adds a member unless there is one of that name.
func (o *Object) AddOnce(name string, value func() any) {
	if !slices.ContainsFunc(*o, func(m Member) bool { return m.Name() == name }) {
		*o = append(*o, Member{name, value()})
	}
}

// MarshalJSONTo implements json.MarshalerTo.
func (o Object) MarshalJSONTo(e *jsontext.Encoder) error {
	if err := e.WriteToken(jsontext.BeginObject); err != nil {
		return err
	}
	for _, m := range o {
		if err := e.WriteToken(jsontext.String(m.Name())); err != nil {
			return err
		}
		if err := json.MarshalEncode(e, m[1]); err != nil {
			return err
		}
	}
	return e.WriteToken(jsontext.EndObject)
}

// Append appends a value as people like to read it: in one line if it is
// short, else a line for each of what it holds.
func Append(b []byte, indent string, value any) ([]byte, error) {
	line, err := json.Marshal(value, jsontext.SpaceAfterColon(true), jsontext.SpaceAfterComma(true))
	if err != nil {
		return nil, err
	}
	o, isObject := value.(Object)
	if !isObject || len(indent)+len(line) <= 100 {
		return append(b, line...), nil
	}
	b = append(b, '{')
	for i, m := range o {
		if i > 0 {
			b = append(b, ',')
		}
		b = fmt.Appendf(b, "\n%s  %q: ", indent, m.Name())
		if b, err = Append(b, indent+"  ", m[1]); err != nil {
			return nil, err
		}
	}
	return fmt.Appendf(b, "\n%s}", indent), nil
}
