package accounts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/app"
)

// Requests may share an error, so an answer does not change it.
func TestAnAnswerLeavesASharedErrorAsItIs(t *testing.T) {
	shared := Error{Status: http.StatusServiceUnavailable, Message: "starting"}
	before := shared
	d := &API{Root: "/", App: func(context.Context) (*app.App, error) { return nil, &shared }}
	w := httptest.NewRecorder()
	d.Serve(w, httptest.NewRequest(http.MethodGet, "/acme/accounts", nil), "192.0.2.1", "")
	if w.Code != http.StatusServiceUnavailable || w.Header().Get("Retry-After") == "" || shared != before {
		t.Errorf("got %d %v, and the error is now %+v", w.Code, w.Header(), shared)
	}
}

// A client that hung up is no failure: this app has no log, and a line would panic.
func TestAClientThatHungUpIsNotLogged(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/acme/accounts", nil)
	c := &Call{Request: r.WithContext(ended), W: w, App: new(app.App)}
	c.refuse(fmt.Errorf("loading: %w", context.Canceled))
	if w.Code != 499 {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	w = httptest.NewRecorder()
	c = &Call{Request: r, W: w} // a store has canceled what it was asked
	if c.refuse(fmt.Errorf("loading: %w", context.Canceled)); w.Code != http.StatusServiceUnavailable {
		t.Errorf("of a client that waits: %d %s", w.Code, w.Body)
	}
}

// Of several mistakes, the same is named at each try: the first by its name.
func TestTheSameMistakeIsNamedEachTime(t *testing.T) {
	const both = `{"a":1,"b":1}`
	for name, try := range map[string]func() error{
		"a change": func() error { _, err := parseChange([]byte(both), changePatch, false); return err },
		"a token":  func() error { _, err := parseToken([]byte(both)); return err },
		"texts": func() error {
			c := &Call{Request: httptest.NewRequest(http.MethodPost, "/", strings.NewReader(both)), W: httptest.NewRecorder()}
			_, err := c.Texts()
			return err
		},
		"a search": func() error {
			_, err := searchOf(url.Values{"locked": {"no"}, "no_second_factor": {"no"}})
			return err
		},
	} {
		want := map[bool]string{true: "locked", false: "a"}[name == "a search"]
		for range 32 {
			if got := asError(try()).Field; got != want {
				t.Fatalf("%s: got %q, want %q", name, got, want)
			}
		}
	}
}

// A client that does not read the answer can't learn what failed, and its import would wait for
// it while it waits for the import.
func TestAnImportEndsIfItsAnswerIsNotRead(t *testing.T) {
	gone := errors.New("it does not read")
	out, in := io.Pipe()
	defer out.Close()
	go func() {
		for {
			if _, err := io.WriteString(in, "not an account\n"); err != nil {
				return
			}
		}
	}()
	i := &importer{out: failing{gone}, allowed: func() error { return nil }}
	if counts := i.run(t.Context(), out); counts.Line == 0 || counts.Error == "" || !errors.Is(i.broken, gone) {
		t.Errorf("got %+v, %v", counts, i.broken)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }
