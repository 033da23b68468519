package openapi

import (
	"bytes"
	"os"
	"regexp"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"go.yaml.in/yaml/v3"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// An overlay is what no table and no Go type says: a file openapi.yaml.
type overlay struct {
	Document   *object              // the document itself: title, security schemes and parameters
	Operations map[string]operation // by method and path
	Schemas    map[string]schema
	Fields     map[string]*object // by name, or by schema or operation and name; parts of schemas, with example for examples
	Errors     map[string]*object // examples of errors: fields besides code and message, by code and status
	Responses  map[string]string  // descriptions of errors, if not their messages
	Messages   map[string]hook    // what leaves for servers of the company, by name
	Receivers  map[string]receiver
	Signed     []*object // the headers of each message, as parameters
}

// A hook describes a message to a server of the company.
type hook struct {
	To      string   // which of the receivers
	Types   []string // its types; default: its name; notices for all of them
	Summary string
	Fields  string // those of the Go type that it has; those with ? may be missing
}

// A receiver describes a kind of server that gets messages.
type receiver struct {
	Text    string // for each message
	Of      string // the Go type of the body
	Data    string // the Go type of its field data, which then has the fields
	Answers *object
}

// An operation describes a route.
type operation struct {
	ID, Tag, Summary, Text string
	Security               string   // key, token, cookie or none
	Body                   string   // the Go type of the body, if no table says it
	Shows                  []string // optional fields of the body that its example has
	Optional               bool     // the body may be missing
	Answers                []string // the schemas of a success
	Examples               []string // of the answer, if they are not those of the schemas
	Success                string   // the description of the success, if it is not that of the schemas
	Status                 int      // of the success; default: 200, or 204 without an answer
	Fails                  []string // errors that no table says: codes with statuses, common or token
	Texts                  string   // of the accounts API: the names of texts in the body; those with ? may be missing
	Headers                *object  // of the success
	Parameters             []string // more of the document's parameters, such as request headers
	Literal                *object  // members of the operation as they are
}

// A schema describes an answer.
type schema struct {
	Text      string
	Of        types  // Go types; their fields are joined
	Anonymous bool   // other schemas do not refer to it
	Part      bool   // of answers, so without their status
	Closed    bool   // it has no other fields: a request, or what is told apart by its fields
	Fields    string // those of the types that it has, and in which order; default: all. See exampleOf
	State     string // the only session_state
	Example   *object
	Literal   *object // the schema as it is
}

type types []string

func (l *types) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*l = types{n.Value}
		return nil
	}
	return n.Decode((*[]string)(l))
}

// UnmarshalYAML keeps the order of members.
func (o *object) UnmarshalYAML(n *yaml.Node) error {
	*o = *obj()
	for i := 0; i < len(n.Content); i += 2 {
		value, err := decode(n.Content[i+1])
		if err != nil {
			return err
		}
		o.set(n.Content[i].Value, value)
		o.values[n.Content[i].Value] = value // even an empty text
	}
	return nil
}

func decode(n *yaml.Node) (any, error) {
	switch n.Kind {
	case yaml.AliasNode:
		return decode(n.Alias)
	case yaml.MappingNode:
		o := obj()
		return o, o.UnmarshalYAML(n)
	case yaml.SequenceNode:
		l := []any{}
		for _, one := range n.Content {
			v, err := decode(one)
			if err != nil {
				return nil, err
			}
			l = append(l, v)
		}
		return l, nil
	}
	var v any
	err := n.Decode(&v)
	if v == nil {
		return null{}, err
	}
	return v, err
}

func readOverlay(t *testing.T, path string) *overlay {
	t.Helper()
	f, err := os.Open(path)
	storetest.Must(t, err)
	defer f.Close()
	var o overlay
	d := yaml.NewDecoder(f)
	d.KnownFields(true)
	storetest.Must(t, d.Decode(&o))
	return &o
}

// write checks the document, or writes it with -update.
func (w *writer) write(path string, parts, components *object) {
	w.t.Helper()
	document := w.overlay.Document
	declared, _ := document.get("components").(*object)
	whole := obj("openapi", "3.1.0")
	for _, name := range document.names {
		if name != "components" {
			whole.set(name, document.values[name])
		}
	}
	whole.merge(parts)
	all := obj()
	all.merge(declared)
	all.merge(components)
	whole.set("components", all)
	if w.t.Failed() {
		return
	}
	made := format(whole)
	doc, err := openapi3.NewLoader().LoadFromData(made)
	if err == nil {
		err = doc.Validate(w.t.Context())
	}
	if err != nil {
		w.t.Fatalf("%s would not be valid; if a field has no example, write one below fields in the openapi.yaml beside it: %v", path, err)
	}
	if booleans.Match(made) {
		w.t.Errorf("%s has an enum of booleans, which several generators of clients can't compile", path)
	}
	if object := unknownObject.Find(made); object != nil {
		w.t.Errorf("%s has an object of which clients of openapi-typescript and ogen can only send {}, because it has neither properties nor additionalProperties: %s", path, object)
	}
	w.keep(path, made)
}

var (
	booleans      = regexp.MustCompile(`"enum": \[\s*(true|false)`)
	unknownObject = regexp.MustCompile(`"type": "object"(,\s*"description": "[^"]*")?\s*\}`)
)

// keep checks a file, or writes it with -update.
func (w *writer) keep(path string, made []byte) {
	w.t.Helper()
	if *storetest.Update {
		storetest.Must(w.t, os.WriteFile(path, made, 0o644))
	} else if is, err := os.ReadFile(path); err != nil || !bytes.Equal(is, made) {
		w.t.Errorf("%s is not what the code and the overlays say; run go test ./caddymodule/openapi -update", path)
	}
}
