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

// oapiCodegenClient makes a client of each document with oapi-codegen.
func oapiCodegenClient(t *testing.T) []string {
	dir := t.TempDir()
	must(t, os.CopyFS(dir, os.DirFS("testdata/oapi")))
	inDir := func(args ...string) (string, error) {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		// Tests must not download anything.
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOFLAGS=-mod=readonly -trimpath", "GOWORK=off", "CGO_ENABLED=0")
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
	if out, err := inDir("build", "-o", "bin/", "./..."); err != nil {
		t.Fatalf("the generated clients: %v\n%s", err, out)
	}
	return []string{dir + "/bin/story"}
}

// orvalClient makes a client of each document with orval.
func orvalClient(t *testing.T) []string {
	made := map[string]string{}
	for name, document := range apiDocuments {
		made[name+".json"] = string(get(os.ReadFile(document))(t))
	}
	w := newWorkshop(t, made, peersDir+"/orval.config.cjs", peersDir+"/request.ts", peersDir+"/story.mts", peersDir+"/story-orval.mts")
	if out := w.node(t, "node_modules/orval/dist/bin/orval.js", "--config", "orval.config.cjs"); strings.Count(out, "ready to use") != len(apiDocuments) {
		t.Error(out)
	}
	w.compile(t, "story-orval.mts")
	return []string{"node", w.dir + "/story-orval.mjs"}
}

// openAPIFetchClient makes a client of the accounts API's document with openapi-typescript.
// TestClientFromTheDocument has one of the auth API's.
func openAPIFetchClient(t *testing.T) []string {
	w := newWorkshop(t, nil, apiDocuments["accounts"], peersDir+"/story.mts", peersDir+"/story-fetch.mts")
	w.node(t, "node_modules/openapi-typescript/bin/cli.js", "openapi.json", "--output", "schema.ts")
	w.compile(t, "story-fetch.mts")
	return []string{"node", w.dir + "/story-fetch.mjs"}
}

// hey-api makes clients that compile.
func TestHeyAPIClientsCompile(t *testing.T) {
	t.Parallel()
	w := newWorkshop(t, nil)
	var made []string
	for name, document := range apiDocuments {
		path := get(filepath.Abs(document))(t)
		w.node(t, "node_modules/@hey-api/openapi-ts/bin/index.cjs", "--input", path, "--output", name, "--client", "@hey-api/client-fetch")
		made = append(made, name+"/index.ts", name+"/sdk.gen.ts")
	}
	w.tsc(t, append(made, "--noEmit", "--skipLibCheck", "--target", "es2022", "--module", "esnext", "--moduleResolution", "bundler")...)
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
