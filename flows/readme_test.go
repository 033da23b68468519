package flows_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows"
)

var update = flag.Bool("update", false, "write the generated parts of the README")

// The README's diagram and route table are made from the one table, so that
// they can't say anything else. After a change: go test ./flows -run README -update
func TestREADMEShowsTheTable(t *testing.T) {
	const file = "../README.md"
	readme, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(readme)
	for name, want := range map[string]string{"states": stateDiagram(), "routes": routeTable(), "events": eventTable()} {
		begin, end := "<!-- "+name+" -->\n", "<!-- end of "+name+" -->"
		head, rest, ok1 := strings.Cut(text, begin)
		got, tail, ok2 := strings.Cut(rest, end)
		switch {
		case !ok1 || !ok2:
			t.Errorf("README.md has no place %q", name)
		case *update:
			text = head + begin + want + end + tail
		case got != want:
			t.Errorf("README.md: %s is not what the table says; run go test ./flows -run README -update", name)
		}
	}
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// stateDiagram is in Mermaid, which shows on a page of Markdown.
func stateDiagram() string {
	node := func(s flows.State) string {
		if s == flows.None {
			return "[*]"
		}
		return strings.ReplaceAll(string(s), "-", "_")
	}
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, s := range flows.States[1:] {
		if node(s) != string(s) {
			fmt.Fprintf(&b, "    %s: %s\n", node(s), s)
		}
	}
	for _, r := range flows.Routes {
		if r.Path == "auth/logout" {
			continue // from every state; it would hide the rest
		}
		for _, from := range r.From {
			for _, to := range r.To {
				if to == flows.None && strings.HasSuffix(r.Path, "renewotp") {
					to = from
				}
				if from == to && from == flows.None || from == flows.SetPassword && to == flows.None ||
					from == flows.RecoveryPassword && to == flows.Authorized {
					continue // no change, or the other half of a row with two states
				}
				fmt.Fprintf(&b, "    %s --> %s: %s\n", node(from), node(to), strings.TrimPrefix(r.Path, "auth/"))
			}
		}
	}
	b.WriteString("```\n")
	return b.String()
}

func routeTable() string {
	var b strings.Builder
	b.WriteString("| Route | Token in state | Leads to | Errors of its own |\n| --- | --- | --- | --- |\n")
	for _, r := range flows.Routes {
		fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", r.Path, stateNames(r.From, "no token"), stateNames(r.To, "no new token"), codes(r.Fails))
	}
	fmt.Fprintf(&b, "\nEvery route: %s.\n\nEvery route that takes a token: %s.\n\nUSER: %s.\n",
		codes(flows.Common), codes(flows.TokenErrors), names(userErrors))
	return b.String()
}

func stateNames(states []flows.State, none string) string {
	if len(states) == len(flows.States)-1 {
		return "any"
	}
	var names []string
	for _, s := range states {
		if s == flows.None {
			names = append(names, none)
		} else {
			names = append(names, "`"+string(s)+"`")
		}
	}
	return strings.Join(names, ", ")
}

var userErrors = []*flows.Error{flows.ErrUserRestricted, flows.ErrUserClosed, flows.ErrUserDenied}

// codes names errors; the group that most routes share by its name in the
// interface document.
func codes(errors []*flows.Error) string {
	rest := slices.DeleteFunc(slices.Clone(errors), func(e *flows.Error) bool { return slices.Contains(userErrors, e) })
	if len(rest) == len(errors) {
		return names(errors)
	}
	return strings.Join([]string{"USER", names(rest)}, ", ")
}

func names(errors []*flows.Error) string {
	var names []string
	for _, e := range errors {
		names = append(names, fmt.Sprintf("`%s` %d", e.Code, e.Status))
	}
	return strings.Join(names, ", ")
}
