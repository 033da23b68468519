package command

import (
	"fmt"
	"io"
	"strings"
	"testing"
)

// A quote that is not closed takes the lines behind it with it: they are told, too.
func TestCSVTellsAllLinesThatAQuoteTakes(t *testing.T) {
	const names = "profile_mnemocode,role\n"
	for file, want := range map[string]string{
		names + "a,b\nc,\"d\ne,f\ng,h\n":              "line 3: up to 5",
		names + "\"a\",\"b\n\"c\",\"d\"\n\"e\",\"f\"": "line 2: up to 3",
	} {
		records, err := newCSVRecords(strings.NewReader(file))
		if err != nil {
			t.Fatal(err)
		}
		var failed []string
		for {
			line, _, err := records.next()
			if err == io.EOF {
				break
			}
			if err != nil {
				failed = append(failed, fmt.Sprintf("line %d: %v", line, err))
			}
		}
		first, last, _ := strings.Cut(want, ": ")
		if len(failed) != 1 || !strings.HasPrefix(failed[0], first+": ") || !strings.Contains(failed[0], last+" ") {
			t.Errorf("%q: %q, want %s", file, failed, want)
		}
	}
}
