package flows_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// docs/api.md explains each reason of an error exactly once.
func TestThePageExplainsEveryReason(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	must(t, err)
	_, section, _ := strings.Cut(string(page), "\n### Reasons\n")
	_, section, _ = strings.Cut(section, "\n| --- |")
	section, _, _ = strings.Cut(section, "\n## ")
	var shown []wire.Reason
	for line := range strings.Lines(section) {
		first, _, _ := strings.Cut(strings.TrimPrefix(line, "| "), " | ")
		for _, name := range regexp.MustCompile("`([a-z_.]+)`").FindAllStringSubmatch(first, -1) {
			if strings.HasPrefix(line, "| `") {
				shown = append(shown, wire.Reason(name[1]))
			}
		}
	}
	var want []wire.Reason
	for _, of := range wire.Reasons {
		want = append(want, of...)
	}
	slices.Sort(shown)
	slices.Sort(want)
	if !slices.Equal(shown, want) {
		t.Errorf("the page explains %q, want %q", shown, want)
	}
}
