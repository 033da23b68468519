package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig/caddyfile"

	"github.com/mnemogate/mnemogate/store/storetest"
)

// Thousands of companies may leave out what is optional. Whether a variable is lost there is
// asked of the file, which is not read for each.
func TestOptionalArgumentsReadTheirFileOnce(t *testing.T) {
	file := filepath.Join(t.TempDir(), "Caddyfile")
	text := strings.Repeat("pow\n", 10_000)
	storetest.Must(t, os.WriteFile(file, []byte(text), 0o600))
	tokens, err := caddyfile.Tokenize([]byte(text), file)
	storetest.Must(t, err)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for i := range 100 {
		d := caddyfile.NewDispenser(tokens[i : i+1])
		d.Next()
		storetest.Must(t, Syntax(d, "pow [<bits>]", Optional(Text(new(string)))))
	}
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 50*uint64(len(text)) {
		t.Errorf("100 options allocated %d bytes", n)
	}
	storetest.Must(t, os.WriteFile(file, []byte("pow {$GONE}\n\n"), 0o600))
	d := caddyfile.NewDispenser(tokens[:1])
	d.Next()
	if err := Syntax(d, "pow [<bits>]", Optional(Text(new(string)))); err == nil || !strings.Contains(fmt.Sprint(err), "GONE") {
		t.Errorf("the file has changed: %v", err)
	}
}
