package flows_test

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The tables in the docs are generated from those in the code, so that they always
// agree. After a change: go test ./flows -run Pages -update
func TestPagesShowTheTables(t *testing.T) {
	for page, parts := range map[string]map[string]string{
		"../docs/api.md":        {"states": stateDiagram(), "routes": routeTable(), "fields": fieldTable(), "errors": errorTable(), "walk": walkOf(t, "code")},
		"../docs/monitoring.md": {"events": eventTable()},
	} {
		for name, want := range parts {
			storetest.Generated(t, page, name, want)
		}
	}
}

// walkOf returns the first conversation in a script: see TestScripts.
func walkOf(t *testing.T, script string) string {
	t.Helper()
	text, err := os.ReadFile("testdata/" + script + ".txt")
	must(t, err)
	first, _, _ := strings.Cut(string(text), "\n\n")
	return "```text\n" + first[strings.Index(first, "POST"):] + "\n```\n"
}

// listed has the error codes that the interface document lists for each route,
// without API-KEY and request.validation.failed. The document does not show checklink,
// passkeys and step-ups, so their codes are those of the contract. Other routes can't
// differ from it.
var listed = map[string]string{
	"auth/login":                  "USER auth.loginid.notfound auth.restricted",
	"auth/checkpassword":          "TOKEN USER auth.captcha.missing auth.captcha.invalid auth.password.invalid auth.disclaimer.invalid auth.restricted",
	"auth/checkotp":               "TOKEN USER auth.otp.invalid auth.backupcode.invalid auth.disclaimer.invalid auth.restricted",
	"auth/renewotp":               "TOKEN USER",
	"auth/setpassword":            "TOKEN auth.password.invalid USER",
	"auth/checkcredentials":       "auth.captcha.missing auth.captcha.invalid auth.credentials.invalid auth.disclaimer.invalid USER auth.restricted",
	"auth/oauth":                  "TOKEN auth.oauth.notfound auth.oauth.failed USER",
	"auth/acceptdisclaimers":      "TOKEN USER auth.disclaimer.invalid auth.restricted",
	"auth/logout":                 "auth.token.invalid auth.token.expired auth.session.invalid",
	"auth/recovery/recover":       "auth.loginid.notfound auth.captcha.invalid recovery.method.restricted recovery.phone.notset recovery.email.notset recovery.question.notset USER",
	"auth/recovery/checkotp":      "TOKEN auth.otp.invalid USER",
	"auth/recovery/renewotp":      "TOKEN USER",
	"auth/recovery/checkquestion": "TOKEN auth.controlanswer.invalid USER",
	"auth/recovery/checklink":     "auth.token.invalid auth.token.expired USER auth.restricted",
	"stepup":                      "TOKEN USER auth.restricted",
	"stepup/check":                "TOKEN USER auth.otp.invalid auth.backupcode.invalid auth.password.invalid auth.credentials.invalid auth.restricted",
	"passkey/login":               "USER auth.credentials.invalid auth.disclaimer.invalid auth.restricted",
}

// departures has the error codes that a route answers but the interface does not list, and
// after - those that the interface lists but the route never answers. Besides, each route
// answers the Common ones.
var departures = map[string]string{
	"auth/login":                  "auth.header.invalid", // if another site caused the request
	"auth/checkcredentials":       "auth.header.invalid",
	"passkey/login":               "auth.header.invalid",
	"auth/renewotp":               "auth.restricted",
	"auth/setpassword":            "auth.disclaimer.invalid", // if one became pending
	"auth/oauth":                  "auth.restricted -auth.header.missing -auth.token.invalid -auth.token.expired -auth.session.invalid",
	"auth/acceptdisclaimers":      "-auth.restricted",
	"auth/logout":                 "auth.restricted auth.header.missing auth.header.invalid",
	"auth/recovery/recover":       "auth.restricted",
	"auth/recovery/checkotp":      "auth.restricted",
	"auth/recovery/renewotp":      "auth.restricted",
	"auth/recovery/checkquestion": "auth.restricted",
}

// Nobody adds a departure from the interface unnoticed.
func TestDeparturesFromTheInterface(t *testing.T) {
	groups := strings.NewReplacer("TOKEN", errorCodes(flows.TokenErrors), "USER", "auth.user.restricted auth.user.closed auth.user.denied")
	for i := range flows.Routes {
		r := &flows.Routes[i]
		if listed[r.Path] == "" {
			continue
		}
		lists, answers := strings.Fields(groups.Replace(listed[r.Path])), strings.Fields(errorCodes(r.Fails))
		if r.TakesToken() {
			answers = append(answers, strings.Fields(errorCodes(flows.TokenErrors))...)
		}
		got, want := map[string]bool{}, map[string]bool{}
		for _, c := range strings.Fields(departures[r.Path]) {
			want[c] = true
		}
		for _, c := range slices.Concat(lists, answers) {
			switch {
			case c == wire.ErrValidation.Code:
			case !slices.Contains(answers, c):
				got["-"+c] = true
			case !slices.Contains(lists, c):
				got[c] = true
			}
		}
		if diff := gocmp.Diff(want, got); diff != "" {
			t.Errorf("%s differs from the interface otherwise than departures says:\n%s", r.Path, diff)
		}
	}
}

// errorCodes joins the codes of errors with spaces.
func errorCodes(errs []*wire.Error) string {
	var all []string
	for _, e := range errs {
		all = append(all, e.Code)
	}
	return strings.Join(all, " ")
}

// stateDiagram returns a Mermaid diagram, which Markdown viewers show.
func stateDiagram() string {
	node := func(s record.State) string {
		if s == record.None {
			return "[*]"
		}
		return strings.ReplaceAll(string(s), "-", "_")
	}
	var b strings.Builder
	b.WriteString("```mermaid\nstateDiagram-v2\n")
	for _, s := range record.States[1:] {
		if node(s) != string(s) {
			fmt.Fprintf(&b, "    %s: %s\n", node(s), s)
		}
	}
	for _, r := range flows.Routes {
		if r.Path == "auth/logout" {
			continue // possible in every state, so it would hide the rest
		}
		for _, from := range r.From {
			for _, to := range r.To {
				if to == record.None && (r.StepsUp || strings.HasSuffix(r.Path, "renewotp")) {
					to = from
				}
				if from == to && from == record.None || from == record.SetPassword && to == record.None ||
					from == record.RecoveryPassword && to == record.Authorized {
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

func fieldTable() string {
	var b strings.Builder
	b.WriteString("| Route | Fields of the body, with their maximum characters |\n| --- | --- |\n")
	for _, r := range flows.Routes {
		var fields []string
		for _, f := range r.Fields() {
			field := "`" + f.Name + "`"
			switch {
			case f.MaxItems > 0:
				field += fmt.Sprintf(" (%d of %d)", f.MaxItems, f.Max)
			case f.Max > 0:
				field += fmt.Sprintf(" (%d)", f.Max)
			}
			if f.Required {
				field = "**" + field + "**"
			}
			fields = append(fields, field)
		}
		if len(fields) > 0 {
			fmt.Fprintf(&b, "| `%s` | %s |\n", r.Path, strings.Join(fields, ", "))
		}
	}
	return b.String()
}

// errorTable lists every error that clients can get, with its default message. Some
// answers have a more exact one.
func errorTable() string {
	var b strings.Builder
	b.WriteString("| error_code | Status | message |\n| --- | --- | --- |\n")
	for _, e := range everyError() {
		fmt.Fprintf(&b, "| `%s` | %d | %s |\n", e.Code, e.Status, strings.ReplaceAll(e.Message, "<", `\<`))
	}
	return b.String()
}

func everyError() []*wire.Error {
	all := []*wire.Error{wire.ErrNoRoute, wire.ErrConflict, wire.ErrMethod, wire.ErrOtherBody, wire.ErrEarlyData}
	all = append(append(all, flows.Common...), flows.TokenErrors...)
	for _, r := range flows.Routes {
		all = append(all, r.Fails...)
	}
	slices.SortFunc(all, func(a, b *wire.Error) int {
		return cmp.Or(strings.Compare(a.Code, b.Code), a.Status-b.Status, strings.Compare(a.Message, b.Message))
	})
	return slices.Compact(all)
}

func stateNames(states []record.State, none string) string {
	if len(states) == len(record.States)-1 {
		return "any"
	}
	var names []string
	for _, s := range states {
		if s == record.None {
			names = append(names, none)
		} else {
			names = append(names, "`"+string(s)+"`")
		}
	}
	return strings.Join(names, ", ")
}

var userErrors = []*wire.Error{wire.ErrUserRestricted, wire.ErrUserClosed, wire.ErrUserDenied}

// codes lists errors. It gives the group that most routes share the name that it has
// in the interface document.
func codes(errors []*wire.Error) string {
	rest := slices.DeleteFunc(slices.Clone(errors), func(e *wire.Error) bool { return slices.Contains(userErrors, e) })
	if len(rest) == len(errors) {
		return names(errors)
	}
	return strings.Join([]string{"USER", names(rest)}, ", ")
}

// names shows the status of a code that has several.
func names(errors []*wire.Error) string {
	var names []string
	for _, e := range errors {
		name := "`" + e.Code + "`"
		if slices.ContainsFunc(everyError(), func(other *wire.Error) bool { return other.Code == e.Code && other.Status != e.Status }) {
			name += fmt.Sprint(" ", e.Status)
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}
