package breached

import (
	"context"
	"crypto/fips140"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The SHA-1 of "password" is in every description of the API.
const (
	listed       = "password"
	listedPrefix = "5BAA6"
	listedSuffix = "1E4C9B93F3F0682250B6CF8331B7EE68FD8"
)

const (
	below = "0000000000000000000000000000000000A"
	above = "FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF"
)

func open(t *testing.T, l List) tenant.BreachedList {
	t.Helper()
	opened, err := l.Open()
	storetest.Must(t, err)
	return opened.List
}

// inTime is for what must be answered within timeout.
func inTime(t *testing.T, ask func() error) {
	t.Helper()
	storetest.InQuiet(t, time.Duration(timeout)/2, ask)
}

func TestOnlyFiveDigitsGoOut(t *testing.T) {
	var asked *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		fmt.Fprintf(w, "%s:1\r\n%s:3", below, listedSuffix)
	}))
	defer s.Close()
	for _, from := range []string{s.URL + "/range", s.URL + "/range/"} {
		inTime(t, func() error {
			if ok, err := open(t, List{From: from}).Has(t.Context(), listed); !ok || err != nil {
				return fmt.Errorf("got %v, %v", ok, err)
			}
			return nil
		})
		if asked.Method != "GET" || asked.RequestURI != "/range/"+listedPrefix || asked.Header.Get("Add-Padding") != "true" || asked.ContentLength != 0 {
			t.Errorf("it sent %s %s %v", asked.Method, asked.RequestURI, asked.Header)
		}
	}
}

func TestAnswersOfAServer(t *testing.T) {
	answer := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for name, c := range map[string]struct {
		serve http.HandlerFunc
		want  bool
		fails string // a part of the error
	}{
		"listed":                 {answer(200, below+":1\r\n"+listedSuffix+":3\r\n"), true, ""},
		"in lower case":          {answer(200, strings.ToLower(listedSuffix)+":3\n"), true, ""},
		"not listed":             {answer(200, below+":1\r\n"+above+":2"), false, ""},
		"padding":                {answer(200, listedSuffix+":0\r\n"+above+":0"), false, ""},
		"an empty range":         {answer(200, ""), false, ""},
		"a page":                 {answer(200, "<html>"+listedSuffix+":3</html>"), false, "a line"},
		"a hash and a page":      {answer(200, listedSuffix+":3\r\n<p>"), false, "a line"},
		"a whole hash":           {answer(200, listedPrefix+listedSuffix+":3"), false, "a line"},
		"no count":               {answer(200, listedSuffix), false, "a line"},
		"a negative count":       {answer(200, listedSuffix+":-3"), false, "a line"},
		"no range":               {answer(404, listedSuffix+":3"), false, "404"},
		"out of order":           {answer(503, ""), false, "503"},
		"too many requests":      {answer(429, ""), false, "429"},
		"a redirect":             {http.RedirectHandler("/elsewhere", http.StatusFound).ServeHTTP, false, "302"},
		"as much as is accepted": {answer(200, strings.Repeat(below+":1\n", maxAnswer/38-1)+listedSuffix+":3"), true, ""},
		"endless": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, below+":1\n"); err != nil {
					return
				}
			}
		}, false, "too large"},
		"nothing": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, false, "closed"},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(c.serve)
			defer s.Close()
			var err error
			inTime(t, func() error {
				var got bool
				got, err = open(t, List{From: s.URL}).Has(t.Context(), listed)
				if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
					return fmt.Errorf("got %v, %v", got, err)
				}
				return nil
			})
			if err != nil && (strings.Contains(err.Error(), listedPrefix) || strings.Contains(err.Error(), "1E4C9")) {
				t.Errorf("the error says something about the password: %v", err)
			}
		})
	}
}

func TestASlowServerIsNotAwaited(t *testing.T) {
	done := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-done
	}))
	defer s.Close()
	defer close(done)
	list := open(t, List{From: s.URL}).(*server)
	if list.client.Timeout != time.Second {
		t.Errorf("it has %v to answer", list.client.Timeout)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got, err := list.Has(ctx, listed); got || err == nil || !strings.Contains(err.Error(), "no answer in time") {
		t.Errorf("got %v, %v", got, err)
	}
}

func TestRangesInADirectory(t *testing.T) {
	for name, c := range map[string]struct {
		file, content string
		want          bool
		fails         string
	}{
		"as the downloader writes it": {listedPrefix + ".txt", below + ":1\r\n" + listedSuffix + ":3\r\n" + above + ":2", true, ""},
		"without an extension":        {listedPrefix, listedSuffix + ":3\n", true, ""},
		"not listed":                  {listedPrefix + ".txt", below + ":1\r\n" + above + ":2\r\n", false, ""},
		"padding":                     {listedPrefix + ".txt", listedSuffix + ":0\r\n", false, ""},
		"an empty range":              {listedPrefix + ".txt", "", false, ""},
		"another range only":          {"00000.txt", listedSuffix + ":3", false, "no such file"},
		"malformed":                   {listedPrefix + ".txt", strings.Repeat("x", 1000), false, "a line"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			storetest.Must(t, os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o600))
			got, err := open(t, List{From: dir}).Has(t.Context(), listed)
			if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("got %v, %v", got, err)
			}
			if err != nil && strings.Contains(err.Error(), listedPrefix) {
				t.Errorf("the error says something about the password: %v", err)
			}
		})
	}
}

func TestAListThatCannotBeAskedIsRefused(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "pwnedpasswords.txt")
	storetest.Must(t, os.WriteFile(file, nil, 0o600))
	for from, want := range map[string]string{
		"":                                "the URL of a server or a directory",
		empty + "/none":                   "no such file",
		file:                              "not a directory",
		"ftp://ranges.example.com":        "https",
		"https://ranges.example.com/?q=":  "neither ? nor #",
		"https://ranges.example.com/#abc": "neither ? nor #",
	} {
		l := List{From: from}
		if _, err := l.Open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", from, err, want)
		}
	}
	insecure := open(t, List{From: "http://ranges.example.com", Insecure: true})
	if w := insecure.(*server).Weaknesses(); len(w) != 1 {
		t.Errorf("the weaknesses are %v", w)
	}
}

// However many passwords are looked up at once, a server gets a bounded number of requests
// at a time. The others wait.
func TestLookupsAtOnceAreBounded(t *testing.T) {
	var now, most atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for n, m := now.Add(1), most.Load(); n > m && !most.CompareAndSwap(m, n); m = most.Load() {
		}
		time.Sleep(10 * time.Millisecond)
		now.Add(-1)
		fmt.Fprintf(w, "%s:1\r\n", below)
	}))
	defer s.Close()
	list := open(t, List{From: s.URL + "/range"})
	var asked sync.WaitGroup
	for range 200 {
		asked.Go(func() { _, _ = list.Has(t.Context(), listed) })
	}
	asked.Wait()
	if most.Load() > maxAsked || most.Load() == 0 {
		t.Errorf("%d requests at once, want at most %d", most.Load(), maxAsked)
	}
}

// With GODEBUG=fips140=only, Go panics where a program computes SHA-1 for security.
func TestWithFIPSOnly(t *testing.T) {
	if !fips140.Enforced() {
		again := exec.Command(os.Args[0], "-test.run=^TestWithFIPSOnly$")
		again.Env = append(os.Environ(), "GODEBUG=fips140=only")
		if out, err := again.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	dir := t.TempDir()
	storetest.Must(t, os.WriteFile(filepath.Join(dir, listedPrefix+".txt"), []byte(listedSuffix+":3\n"), 0o600))
	if ok, err := open(t, List{From: dir}).Has(t.Context(), listed); !ok || err != nil {
		t.Errorf("got %v, %v", ok, err)
	}
}
