package wire

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Decode parses a body into req, a pointer to a struct. Its fields have these tags:
// json (the name), max (the maximum characters of a string, or of each element of a list),
// long (the reason if a string is longer) and need (the field is required and not empty). A
// field of type jsontext.Value is any JSON object, which the route reads itself. A struct
// without fields also accepts an empty body. Every error is request.validation.failed and
// never repeats a value from the body.
func Decode(body []byte, req any) error {
	fields := reflect.TypeOf(req).Elem()
	if len(body) == 0 && fields.NumField() == 0 {
		return nil
	}
	if err := checkKeys(body, fields); err != nil {
		return err
	}
	if err := json.Unmarshal(body, req); err != nil {
		return malformed(err, fields)
	}
	values := reflect.ValueOf(req).Elem()
	for i := range fields.NumField() {
		if err := checkField(fields.Field(i), values.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

// checkKeys refuses what the JSON package accepts: a body that is not an object, a known
// key in another case, and NUL in any string.
func checkKeys(body []byte, fields reflect.Type) error {
	d := jsontext.NewDecoder(bytes.NewReader(body))
	if d.PeekKind() != '{' {
		return Invalid("The body must be one JSON object.")
	}
	for {
		t, err := d.ReadToken()
		if err != nil {
			return malformed(err, fields)
		}
		if t.Kind() == '"' {
			s := t.String()
			if strings.ContainsRune(s, 0) {
				if name := topField(d.StackPointer(), fields); name != "" {
					return Invalid("The field %s contains a NUL character. Remove it.", name)
				}
				return Invalid("The body contains a NUL character. Remove it.")
			}
			// Inside the object, keys and values alternate.
			if kind, n := d.StackIndex(d.StackDepth()); d.StackDepth() == 1 && kind == '{' && n%2 == 1 {
				if name := knownKey(fields, s); name != "" && name != s {
					return Invalid("Spell the field %s exactly like this.", name)
				}
			}
		}
		if d.StackDepth() == 0 {
			return nil // json.Unmarshal refuses anything after the object
		}
	}
}

// knownKey returns the name of the field that s names in any case, or "".
func knownKey(fields reflect.Type, s string) string {
	for i := range fields.NumField() {
		if name := fieldName(fields.Field(i)); strings.EqualFold(name, s) {
			return name
		}
	}
	return ""
}

// A Field describes a field of a route's body and what Decode checks.
type Field struct {
	Name     string
	Kind     reflect.Kind // String, Int, Slice of strings, or Map for an object
	Max      int          // maximum characters of the string, or of each element; 0 if the route checks the value itself
	MaxItems int          // maximum elements of the slice
	Required bool
}

// Fields returns the fields of a struct type that Decode parses a body into.
func Fields(of reflect.Type) []Field {
	var fields []Field
	for f := range of.Fields() {
		field := Field{Name: fieldName(f), Kind: f.Type.Kind(), Required: f.Tag.Get("need") != ""}
		field.Max, _ = strconv.Atoi(f.Tag.Get("max"))
		if f.Type == reflect.TypeFor[jsontext.Value]() {
			field.Kind = reflect.Map
		}
		if field.Kind == reflect.Slice {
			field.MaxItems = maxItems
		}
		fields = append(fields, field)
	}
	return fields
}

func fieldName(f reflect.StructField) string { return f.Tag.Get("json") }

func checkField(f reflect.StructField, v reflect.Value) error {
	if raw, ok := v.Interface().(jsontext.Value); ok && raw.Kind() == 'n' {
		v.SetZero() // null means absent
	}
	if f.Tag.Get("need") != "" && v.IsZero() {
		if v.Kind() == reflect.Int {
			return Invalid("The field %s is missing or 0.", fieldName(f))
		}
		return Invalid("The field %s is missing or empty.", fieldName(f))
	}
	longest, _ := strconv.Atoi(f.Tag.Get("max"))
	switch v := v.Interface().(type) {
	case jsontext.Value:
		if v != nil && v.Kind() != '{' {
			return Invalid("The field %s has the wrong type. The OpenAPI document names the right one.", fieldName(f))
		}
	case string:
		if utf8.RuneCountInString(v) > longest {
			message := fmt.Sprintf("The field %s is longer than %d characters.", fieldName(f), longest)
			return &Refusal{Err: ErrValidation, Message: message, Reason: Reason(f.Tag.Get("long"))}
		}
	case Codes:
		return checkList(f, v, isCode, fmt.Sprintf("be a code of 1 to %d characters, or code@version", longestCode))
	case []string:
		return checkList(f, v, func(s string) bool { return s != "" && utf8.RuneCountInString(s) <= longest }, fmt.Sprintf("have 1 to %d characters", longest))
	}
	return nil
}

func checkList(f reflect.StructField, list []string, fits func(string) bool, must string) error {
	if len(list) > maxItems {
		return Invalid("The field %s has more than %d elements.", fieldName(f), maxItems)
	}
	for _, s := range list {
		if !fits(s) {
			return Invalid("Each element of %s must %s.", fieldName(f), must)
		}
	}
	return nil
}

// Codes are those of disclaimers, each code or code@version.
type Codes []string

func isCode(s string) bool {
	code, version, _ := strings.Cut(s, "@")
	return code != "" && max(utf8.RuneCountInString(code), utf8.RuneCountInString(version)) <= longestCode
}

const (
	maxItems    = 64 // how many elements a list may have
	longestCode = 64 // the most characters of a disclaimer's code, and of its version
)

// malformed describes what is wrong with a body. It names a field only if the struct has
// it, because anything else is the client's own text.
func malformed(err error, fields reflect.Type) error {
	if broken, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		name, twice := topField(broken.JSONPointer, fields), broken.Err == jsontext.ErrDuplicateName
		switch {
		case twice && name == "":
			return Invalid("The body has the same key twice.")
		case twice && name == string(broken.JSONPointer[1:]):
			return Invalid("The body has the field %s twice.", name)
		case twice:
			return Invalid("The field %s has the same key twice.", name)
		case name != "":
			return Invalid("The field %s is not valid JSON in UTF-8.", name)
		}
	}
	if wrong, ok := errors.AsType[*json.SemanticError](err); ok {
		if name := topField(wrong.JSONPointer, fields); name != "" {
			return Invalid("The field %s has the wrong type. The OpenAPI document names the right one.", name)
		}
	}
	return Invalid("The body must be one JSON object in UTF-8, with nothing after it.")
}

// topField returns the name of the field that p is in, or "" if the struct has none.
func topField(p jsontext.Pointer, fields reflect.Type) string {
	for first := range p.Tokens() {
		return knownKey(fields, first)
	}
	return ""
}
