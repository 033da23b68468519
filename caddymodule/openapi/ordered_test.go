package openapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// An object is a JSON object whose members keep their order.
type object struct {
	names  []string
	values map[string]any
}

// obj returns an object of alternating names and values. It leaves out nil values.
func obj(members ...any) *object {
	o := &object{values: map[string]any{}}
	for i := 0; i < len(members); i += 2 {
		o.set(members[i].(string), members[i+1])
	}
	return o
}

// set adds a member, or replaces its value. A value of nil or "" changes nothing.
func (o *object) set(name string, value any) {
	if absent, _ := value.(*object); value == nil || value == "" || value == absent && absent == nil {
		return
	}
	if _, has := o.values[name]; !has {
		o.names = append(o.names, name)
	}
	o.values[name] = value
}

// merge sets the members of another object.
func (o *object) merge(other *object) {
	if other == nil {
		return
	}
	for _, name := range other.names {
		o.set(name, other.values[name])
	}
}

func (o *object) has(name string) bool { return o != nil && o.values[name] != nil }

func (o *object) get(name string) any {
	if o == nil {
		return nil
	}
	return o.values[name]
}

func (o *object) remove(name string) {
	delete(o.values, name)
	o.names = slices.DeleteFunc(o.names, func(n string) bool { return n == name })
}

// width is that of a line up to which an object or array is not broken.
const width = 120

// format returns JSON for people.
func format(v any) []byte {
	var b bytes.Buffer
	write(&b, v, 0, 0)
	return append(b.Bytes(), '\n')
}

func write(b *bytes.Buffer, v any, indent, before int) {
	line := oneLine(v)
	if before+len(line) <= width {
		b.WriteString(line)
		return
	}
	inner, end := "\n"+strings.Repeat("  ", indent+1), "\n"+strings.Repeat("  ", indent)
	switch v := v.(type) {
	case *object:
		b.WriteByte('{')
		for i, name := range v.names {
			if i > 0 {
				b.WriteByte(',')
			}
			key := oneLine(name) + ": "
			b.WriteString(inner + key)
			write(b, v.values[name], indent+1, 2*indent+2+len(key))
		}
		b.WriteString(end + "}")
	case []any:
		b.WriteByte('[')
		for i, one := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(inner)
			write(b, one, indent+1, 2*indent+2)
		}
		b.WriteString(end + "]")
	default:
		b.WriteString(line)
	}
}

func oneLine(v any) string {
	switch v := v.(type) {
	case *object:
		var members []string
		for _, name := range v.names {
			members = append(members, oneLine(name)+": "+oneLine(v.values[name]))
		}
		return "{" + strings.Join(members, ", ") + "}"
	case []any:
		var all []string
		for _, one := range v {
			all = append(all, oneLine(one))
		}
		return "[" + strings.Join(all, ", ") + "]"
	case null:
		return "null"
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(fmt.Sprint(v, err))
	}
	return strings.TrimSpace(b.String())
}

// null is JSON's null, since nil means absent here.
type null struct{}

// list returns a list as JSON has it.
func list[T any](all []T) []any {
	l := make([]any, len(all))
	for i, one := range all {
		l[i] = one
	}
	return l
}
