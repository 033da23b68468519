package gate

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// After a change: go test ./caddymodule/gate -run OpenAPI -update
func TestOpenAPIFileIsMadeOfTheTable(t *testing.T) {
	made, err := makeOpenAPI()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(openAPIName, made, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	golden, err := os.ReadFile(openAPIName)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(golden), string(made)); diff != "" {
		t.Fatalf("openapi.json is not what is made; run go test ./caddymodule/gate -run OpenAPI -update\n%s", diff)
	}
}
