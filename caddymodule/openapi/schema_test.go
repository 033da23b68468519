package openapi

import (
	"go/ast"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// A writer makes the parts of one document.
type writer struct {
	t        *testing.T
	source   *source
	overlay  *overlay
	bare     bool // answers have no status
	examples bool // the document has examples
	schemas  *object
	named    map[string]string // the schemas of Go types
}

func newWriter(t *testing.T, o *overlay) *writer {
	source, err := readSource()
	storetest.Must(t, err)
	w := &writer{t: t, source: source, overlay: o, schemas: obj(), named: map[string]string{}}
	for name, s := range o.Schemas {
		if len(s.Of) == 1 && !s.Anonymous {
			w.named[s.Of[0]] = name
		}
	}
	return w
}

func ref(kind, name string) *object { return obj("$ref", "#/components/"+kind+"/"+name) }

func refs(kind string, names []string) (all []any) {
	for _, name := range names {
		all = append(all, ref(kind, name))
	}
	return all
}

// use returns a reference to a schema, and adds it to the document.
func (w *writer) use(name string) *object {
	if w.schemas.has(name) {
		return ref("schemas", name)
	}
	s, ok := w.overlay.Schemas[name]
	if !ok {
		w.t.Fatalf("there is no schema %s in the overlay", name)
	}
	w.schemas.set(name, obj()) // its place, before those that it refers to
	w.schemas.set(name, w.schema(name, s))
	return ref("schemas", name)
}

// schema makes a schema of the overlay.
func (w *writer) schema(name string, s schema) *object {
	if s.Literal != nil {
		return s.Literal
	}
	var all []field
	if s.Fields != "" && s.Of == nil {
		s.Of = types{"session.Reply"}
	}
	for _, of := range s.Of {
		all = append(all, w.source.fields(w.t, of)...)
	}
	if s.Fields != "" {
		known := all
		all = nil
		for one := range strings.FieldsSeq(s.Fields) {
			bare := strings.TrimRight(one, "?")
			i := slices.IndexFunc(known, func(f field) bool { return f.name == bare })
			if i < 0 {
				w.t.Fatalf("%s: %v has no field %s", name, s.Of, bare)
			}
			f := known[i]
			f.omitted = bare != one
			all = append(all, f)
		}
	}
	made := w.object(name, all, w.bare || s.Part)
	of := obj("type", "object", "description", s.Text)
	of.merge(made)
	if s.State != "" {
		of.get("properties").(*object).get("session_state").(*object).set("enum", []any{s.State})
	}
	return of
}

// object makes the schema of an object with these fields. An answer has a status, its parts
// do not.
func (w *writer) object(name string, all []field, part bool) *object {
	var required []any
	properties := obj()
	if !part {
		required = []any{"status"}
		properties.set("status", obj("type", "string", "enum", []any{"success"}))
	}
	for _, f := range all {
		if !f.omitted {
			required = append(required, f.name)
		}
		s := w.typed(name, f)
		w.annotate(s, name, f)
		properties.set(f.name, s)
	}
	return shape(required, properties, w.overlay.Schemas[name].Closed)
}

// ofLater ends the description of what is no enum, although Go has constants for it: generated
// clients that validate answers would refuse the values of later versions.
const ofLater = "or one of a later version."

// open lists values in a description.
func open[S ~string](values []S) string {
	text := ""
	for _, value := range values {
		text += "`" + string(value) + "`, "
	}
	return text + ofLater
}

func shape(required []any, properties *object, closed bool) *object {
	o := obj("type", "object")
	if required != nil {
		o.set("required", required)
	}
	if closed {
		o.set("additionalProperties", false)
	}
	o.set("properties", properties)
	return o
}

// annotate adds what the overlay says of a field, by its own name (unless it is in an object
// within the answer, or is one) or with that of the schema, and its description. That of the Go
// field goes before the general one.
func (w *writer) annotate(s *object, schema string, f field) {
	general, own := w.overlay.Fields[f.name], w.overlay.Fields[schema+"."+f.name]
	s.set("description", "-") // its place
	if !strings.Contains(schema, ".") && s.get("type") != "object" {
		s.merge(general)
	}
	if f.describe != "" {
		s.set("description", f.describe)
	}
	s.merge(own)
	text, _ := s.get("description").(string)
	if first := strings.TrimLeft(text, "`"); text == "-" || !strings.HasSuffix(text, ".") {
		w.t.Errorf("%s.%s needs a description that is a sentence: as a comment on its Go field, or in the overlay (has %q)", schema, f.name, first)
	}
	if s.has("oneOf") {
		s.remove("type")
	}
	if strings.HasSuffix(text, ofLater) {
		s.remove("enum")
		if items, ok := s.get("items").(*object); ok {
			items.remove("enum")
		}
	}
	if example := s.get("example"); example != nil {
		s.remove("example")
		if w.examples {
			s.set("examples", []any{example})
		}
	}
}

// typed makes the schema of a field's type.
func (w *writer) typed(schema string, f field) *object {
	of := f.of
	pointer, nullable := of.(*ast.StarExpr)
	if nullable {
		of = pointer.X
	}
	s := w.plain(schema+"."+f.name, of, f.in)
	if nullable && !strings.Contains(f.tag.Get("json"), ",omit") && f.tag.Get("need") == "" {
		if s.has("type") {
			s.set("type", []any{s.get("type"), "null"})
		} else {
			s = obj("oneOf", []any{s, obj("type", "null")})
		}
	}
	return s
}

func (w *writer) plain(place string, of ast.Expr, in string) *object {
	if array, ok := of.(*ast.ArrayType); ok {
		return obj("type", "array", "items", w.plain(place, array.Elt, in))
	}
	switch name := nameOf(of, in); name {
	case "string", "wire.Reason", "netip.Addr":
		return obj("type", "string")
	case "bool":
		return obj("type", "boolean")
	case "int", "int32", "int64", "uint32", "uint64", "api.Seconds":
		return obj("type", "integer")
	case "time.Time":
		return obj("type", "string", "format", "date-time")
	case "jsontext.Value":
		return obj("type", "object")
	default:
		if schema := w.named[name]; schema != "" {
			return w.use(schema)
		}
		switch declared := w.source.types[name].(type) {
		case *ast.ArrayType:
			return w.plain(place, declared, in)
		case *ast.StructType:
			return w.object(place, w.source.fields(w.t, name), true)
		case *ast.Ident:
			if name == "record.State" {
				return obj("type", "string", "enum", list(record.States[1:]))
			}
			s := obj("type", map[string]string{"string": "string", "int": "integer"}[declared.Name])
			if values := w.source.values[name]; values != nil {
				s.set("enum", list(values))
			}
			return s
		}
		w.t.Fatalf("%s: the generator does not know the type %s", place, name)
		return nil
	}
}

// request makes the schema of a body that wire.Decode reads.
func (w *writer) request(operation, of string) *object {
	var required []any
	properties := obj()
	for _, f := range w.source.fields(w.t, of) {
		need := f.tag.Get("need") != ""
		if need {
			required = append(required, f.name)
		}
		s := w.typed(operation, field{f.name, f.of, f.in, true, f.tag, ""})
		longest, _ := strconv.Atoi(f.tag.Get("max"))
		if items, isArray := s.get("items").(*object); isArray {
			s.set("maxItems", 64)
			items.set("minLength", 1)
			items.set("maxLength", longest)
		} else {
			if need && s.get("type") == "string" {
				s.set("minLength", 1)
			}
			if longest > 0 {
				s.set("maxLength", longest)
			}
		}
		w.annotate(s, operation, f)
		if _, nullable := s.get("type").([]any); !need && !nullable {
			s.set("type", []any{s.get("type"), "null"})
			if enum, ok := s.get("enum").([]any); ok && !slices.Contains(enum, any(null{})) {
				s.set("enum", append(slices.Clone(enum), null{}))
			}
		}
		properties.set(f.name, s)
	}
	return shape(required, properties, false)
}

// requestOf adds the schema of a body to the document, and refers to it. Generators that get no
// name for a body make one up: InlineObject7.
func (w *writer) requestOf(operation string, body *object) *object {
	name := camel(operation) + "Request"
	w.schemas.set(name, body)
	return ref("schemas", name)
}

// example makes an example from those of the fields. It has the fields that are required and
// those in more.
func (w *writer) example(s *object, more []string) any {
	if name, ok := s.get("$ref").(string); ok {
		name = name[strings.LastIndex(name, "/")+1:]
		return w.exampleOf(name)
	}
	if examples, ok := s.get("examples").([]any); ok {
		return examples[0]
	}
	if enum, ok := s.get("enum").([]any); ok {
		return enum[0]
	}
	switch s.get("type") {
	case "object":
		required, _ := s.get("required").([]any)
		properties, _ := s.get("properties").(*object)
		example := obj()
		if properties != nil {
			for _, name := range properties.names {
				if slices.Contains(required, any(name)) || slices.Contains(more, name) {
					example.set(name, w.example(properties.get(name).(*object), nil))
				}
			}
		}
		return example
	case "array":
		return []any{w.example(s.get("items").(*object), nil)}
	}
	return nil
}

// exampleOf makes the example of a schema of the overlay. A field with one question mark is
// in it, one with two is not; without names of fields all are.
func (w *writer) exampleOf(name string) any {
	s := w.overlay.Schemas[name]
	if s.Example != nil {
		return s.Example
	}
	made, _ := w.schemas.get(name).(*object)
	var more []string
	if properties, ok := made.get("properties").(*object); ok && s.Fields == "" {
		more = properties.names
	}
	for one := range strings.FieldsSeq(s.Fields) {
		if bare, optional := strings.CutSuffix(one, "?"); optional && !strings.HasSuffix(bare, "?") {
			more = append(more, bare)
		}
	}
	return w.example(made, more)
}

// sorted returns the keys of a map in order.
func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
