package openapi

import (
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
)

// hooks makes the webhooks of a document, and checks that all events are among them.
func (w *writer) hooks() *object {
	made := obj()
	for _, kind := range record.OutboxTypes {
		if w.overlay.Messages[kind].To != "events" {
			w.t.Errorf("openapi.yaml does not describe the event %s in messages", kind)
		}
	}
	for _, name := range sorted(w.overlay.Messages) {
		made.set(name, obj("post", w.hook(name, w.overlay.Messages[name])))
	}
	return made
}

func (w *writer) hook(name string, h hook) *object {
	to, ok := w.overlay.Receivers[h.To]
	if !ok {
		w.t.Fatalf("%s: the overlay has no receiver %s", name, h.To)
	}
	types := h.Types
	switch {
	case types == nil:
		types = []string{name}
	case slices.Equal(types, []string{"notices"}):
		types = message.Notices
	}
	id := camel(strings.ReplaceAll(name, ".", "_"))
	var schema *object
	if to.Data == "" {
		schema = w.sent(id, to.Of, h.Fields)
	} else {
		schema = w.sent(id, to.Of, "type timestamp data")
		data := w.sent(id+".data", to.Data, h.Fields)
		data.set("description", schema.get("properties").(*object).get("data").(*object).get("description"))
		schema.get("properties").(*object).set("data", data)
	}
	if is := schema.get("properties").(*object).get("type").(*object); len(types) == 1 {
		is.set("enum", list(types))
	} else { // receivers must take the types of later versions
		is.set("description", "What the message is for: "+open(types))
	}
	return obj( // the schema is here because oapi-codegen v2 forgets those that only webhooks have
		"operationId", "on"+id, "summary", h.Summary, "description", to.Text, "security", []any{},
		"parameters", list(w.overlay.Signed),
		"requestBody", jsonBody(schema),
		"responses", to.Answers,
	)
}

// sent makes the schema of an object that is sent. Unlike an answer of the accounts API, it may
// get more fields.
func (w *writer) sent(name, of, fields string) *object {
	known := w.source.fields(w.t, of)
	var required []any
	properties := obj()
	for one := range strings.FieldsSeq(fields) {
		bare, optional := strings.CutSuffix(one, "?")
		i := slices.IndexFunc(known, func(f field) bool { return f.name == bare })
		if i < 0 {
			w.t.Fatalf("%s: %s has no field %s", name, of, bare)
		}
		if !optional {
			required = append(required, bare)
		}
		s := w.typed(name, known[i])
		w.annotate(s, name, known[i])
		properties.set(bare, s)
	}
	return obj("type", "object", "required", required, "properties", properties)
}
