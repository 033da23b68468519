// Package openapi writes the OpenAPI documents, gate/openapi.json and accounts/openapi.json, from
// the tables of routes and errors, the Go types with their comments, and the openapi.yaml beside
// each document: go test ./caddymodule/openapi -update. Without -update it checks them.
//
// Start with gate_test.go and accounts_test.go.
package openapi

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// A source knows the types of the module from their declarations, because reflection sees
// neither their comments nor the constants of a type. Names are like "record.State".
type source struct {
	types  map[string]ast.Expr
	values map[string][]string // the texts of a type's constants, in their order
	twice  map[string]bool     // names that two packages declare
	errors []wire.Error        // those of package wire, in their order
}

// readSource reads the Go files of the module, but no tests.
var readSource = sync.OnceValues(func() (*source, error) {
	const root = "../.."
	s := &source{types: map[string]ast.Expr{}, values: map[string][]string{}, twice: map[string]bool{}}
	files := token.NewFileSet()
	return s, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == "docs" || strings.HasPrefix(d.Name(), ".") && path != root):
			return filepath.SkipDir
		case !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		f, err := parser.ParseFile(files, path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err == nil {
			s.read(f)
		}
		return err
	})
})

func (s *source) read(f *ast.File) {
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range group.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				name := f.Name.Name + "." + spec.Name.Name
				s.twice[name] = s.types[name] != nil
				s.types[name] = spec.Type
			case *ast.ValueSpec:
				if f.Name.Name == "wire" {
					s.readErrors(spec)
				}
				of, typed := spec.Type.(*ast.Ident)
				if group.Tok != token.CONST || !typed {
					continue
				}
				for _, value := range spec.Values {
					if text, ok := value.(*ast.BasicLit); ok && text.Kind == token.STRING && text.Value != `""` {
						unquoted, _ := strconv.Unquote(text.Value)
						s.values[f.Name.Name+"."+of.Name] = append(s.values[f.Name.Name+"."+of.Name], unquoted)
					}
				}
			}
		}
	}
}

// readErrors reads a declaration like ErrService = &Error{"service.error", 500, "…"}.
func (s *source) readErrors(spec *ast.ValueSpec) {
	for _, value := range spec.Values {
		pointer, ok := value.(*ast.UnaryExpr)
		if !ok {
			continue
		}
		made, ok := pointer.X.(*ast.CompositeLit)
		if !ok || nameOf(made.Type, "wire") != "wire.Error" {
			continue
		}
		text := func(i int) string { return made.Elts[i].(*ast.BasicLit).Value }
		code, _ := strconv.Unquote(text(0))
		status, _ := strconv.Atoi(text(1))
		message, _ := strconv.Unquote(text(2))
		s.errors = append(s.errors, wire.Error{Code: code, Status: status, Message: message})
	}
}

// A field is one of a struct as JSON has it.
type field struct {
	name     string
	of       ast.Expr
	in       string // the package
	omitted  bool   // if it is empty
	tag      reflect.StructTag
	describe string
}

// fields returns those of a struct, and of the structs that it embeds.
func (s *source) fields(t *testing.T, name string) (all []field) {
	t.Helper()
	of, ok := s.types[name].(*ast.StructType)
	if !ok || s.twice[name] {
		t.Fatalf("%s is not one struct", name)
	}
	in, _, _ := strings.Cut(name, ".")
	for _, f := range of.Fields.List {
		if f.Names == nil {
			embedded := f.Type
			if pointer, ok := embedded.(*ast.StarExpr); ok {
				embedded = pointer.X
			}
			all = append(all, s.fields(t, nameOf(embedded, in))...)
			continue
		}
		var tag reflect.StructTag
		if f.Tag != nil {
			unquoted, _ := strconv.Unquote(f.Tag.Value)
			tag = reflect.StructTag(unquoted)
		}
		name, options, _ := strings.Cut(tag.Get("json"), ",")
		if name != "" && name != "-" && name != "status" || name == "status" && !isText(f.Type) {
			doc := f.Doc
			if doc == nil {
				doc = f.Comment
			}
			all = append(all, field{name, f.Type, in, slices.ContainsFunc(strings.Split(options, ","), func(o string) bool { return strings.HasPrefix(o, "omit") }), tag, strings.Join(strings.Fields(doc.Text()), " ")})
		}
	}
	return all
}

// isText tells the status of an answer, which is a text, from that of an account.
func isText(of ast.Expr) bool {
	name, ok := of.(*ast.Ident)
	return ok && name.Name == "string"
}

// nameOf returns the name of a type with its package, which is in unless it says another.
func nameOf(of ast.Expr, in string) string {
	switch of := of.(type) {
	case *ast.Ident:
		if strings.ToLower(of.Name) == of.Name && (of.Name == "string" || of.Name == "bool" || strings.HasPrefix(of.Name, "int") || strings.HasPrefix(of.Name, "uint")) {
			return of.Name
		}
		return in + "." + of.Name
	case *ast.SelectorExpr:
		return of.X.(*ast.Ident).Name + "." + of.Sel.Name
	}
	return ""
}
