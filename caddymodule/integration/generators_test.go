package integration

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// apiDocuments maps the name of each generated package to its OpenAPI document.
var apiDocuments = map[string]string{"auth": openAPIName, "accounts": "../accounts/openapi.json"}

// oapi-codegen accepts both documents, and the code that it generates compiles.
func TestGoClientsFromTheDocuments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("testdata/oapi")))
	inDir := func(args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		// Tests must not download anything.
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly", "GOWORK=off", "CGO_ENABLED=0")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	if out, err := inDir("tool", "oapi-codegen", "-version"); err != nil {
		storetest.SkipOrFail(t, "oapi-codegen can't be had; run (cd caddymodule/integration/testdata/oapi && go mod download): "+strings.Join(strings.Fields(out), " "))
	}
	for name, document := range apiDocuments {
		path, err := filepath.Abs(document)
		must(t, errors.Join(err, os.Mkdir(filepath.Join(dir, name), 0o700)))
		if out, err := inDir("tool", "oapi-codegen", "-generate", "types,client", "-package", name, "-o", name+"/client.go", path); err != nil {
			t.Errorf("%s: %v\n%s", document, err, out)
		}
	}
	if out, err := inDir("build", "./..."); err != nil {
		t.Errorf("the generated clients: %v\n%s", err, out)
	}
}

// ogen makes one type of a schema and a security scheme with the same name, and one of an
// answer's schema with its headers. (Building ogen and its code takes too long for a test.)
func TestNamesInTheDocumentsHaveOneMeaning(t *testing.T) {
	t.Parallel()
	for name, path := range apiDocuments {
		doc := get(openapi3.NewLoader().LoadFromFile(path))(t)
		for scheme := range doc.Components.SecuritySchemes {
			for schema := range doc.Components.Schemas {
				if strings.EqualFold(scheme, schema) {
					t.Errorf("%s: the security scheme %s is named like a schema", name, scheme)
				}
			}
		}
		required := map[string]bool{}
		for path, item := range doc.Paths.Map() {
			for method, operation := range item.Operations() {
				for status, response := range operation.Responses.Map() {
					for header, described := range response.Value.Headers {
						if before, known := required[header]; known && before != described.Value.Required {
							t.Errorf("%s: %s of %s %s %s is not required as elsewhere", name, header, method, path, status)
						}
						required[header] = described.Value.Required
					}
				}
			}
		}
	}
}

// orval accepts both documents, and the code that it generates compiles. A step
// without a body has none in that code either.
func TestOrvalClientsFromTheDocuments(t *testing.T) {
	t.Parallel()
	made := map[string]string{"call.mts": `import { checkpassword, logout } from './auth.js'

await checkpassword('acme', { password: 'correct horse battery' }, { headers: { 'X-Api-Key': 'key' } })
await logout('acme', { headers: { 'X-Api-Key': 'key' } })
// @ts-expect-error: it has no body before the options
await logout('acme', {}, { headers: { 'X-Api-Key': 'key' } })
`}
	for name, document := range apiDocuments {
		content := get(os.ReadFile(document))(t)
		made[name+".json"] = string(content)
	}
	w := newWorkshop(t, made)
	for name := range apiDocuments {
		out := w.node(t, "node_modules/orval/dist/bin/orval.js", "--input", name+".json", "--output", name+".ts", "--client", "fetch")
		if !strings.Contains(out, "ready to use") {
			t.Error(out)
		}
	}
	w.tsc(t, "--noEmit", "--skipLibCheck", "--target", "es2022", "--module", "nodenext", "--lib", "es2022,dom", "auth.ts", "accounts.ts", "call.mts")
}
