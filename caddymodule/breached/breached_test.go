package breached

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/tenant"
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
	if err != nil {
		t.Fatal(err)
	}
	return opened.List
}

func TestOnlyFiveDigitsGoOut(t *testing.T) {
	var asked *http.Request
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r
		fmt.Fprintf(w, "%s:1\r\n%s:3", below, listedSuffix)
	}))
	defer s.Close()
	for _, from := range []string{s.URL + "/range", s.URL + "/range/"} {
		if ok, err := open(t, List{From: from}).Has(t.Context(), listed); !ok || err != nil {
			t.Errorf("got %v, %v", ok, err)
		}
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
			got, err := open(t, List{From: s.URL}).Has(t.Context(), listed)
			if got != c.want || (err != nil) != (c.fails != "") || err != nil && !strings.Contains(err.Error(), c.fails) {
				t.Errorf("got %v, %v", got, err)
			}
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
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.content), 0o600); err != nil {
				t.Fatal(err)
			}
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

// A readCounter counts the bytes that are read.
type readCounter struct {
	*strings.Reader
	read int
}

func (r *readCounter) ReadAt(p []byte, off int64) (int, error) {
	n, err := r.Reader.ReadAt(p, off)
	r.read += n
	return n, err
}

// Every line is found, no other hash is, and a search reads little of a large file.
func TestARangeIsSearchedBySeeking(t *testing.T) {
	for _, end := range []string{"\n", "\r\n"} {
		var file strings.Builder
		const lines = 5000
		suffix := func(i int) string { return fmt.Sprintf("%035X", i) }
		for i := range lines {
			fmt.Fprintf(&file, "%s:%d%s", suffix(2*i+1), 1+i*i*i%1_000_003, end)
		}
		for _, content := range []string{file.String(), strings.TrimRight(file.String(), end)} {
			for i := range 2*lines + 1 {
				r := &readCounter{Reader: strings.NewReader(content)}
				got, err := seek(r, r.Size(), suffix(i))
				if err != nil || got != (i%2 == 1) {
					t.Fatalf("%d: got %v, %v", i, got, err)
				}
				if r.read > 14*2*maxLine {
					t.Fatalf("%d: it read %d bytes", i, r.read)
				}
			}
		}
	}
}

var ranges = flag.Int("ranges", 8, "how many range files of 1 MB TestALookUpInALargeDirectory makes; 1000 for 1 GB")

// A look-up in a directory of many large files takes no time to speak of, and no memory:
// a file has thirty times the lines of a real range.
func TestALookUpInALargeDirectory(t *testing.T) {
	const lines = 26_000
	dir := t.TempDir()
	var file bytes.Buffer
	for i := range lines {
		fmt.Fprintf(&file, "%035X:%d\r\n", i, 1+i%10)
	}
	for i := range *ranges {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%05X.txt", i)), file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	d := directory{dir}
	size := int64(file.Len())
	var took []time.Duration
	allocated := testing.AllocsPerRun(2000, func() {
		began := time.Now()
		i := len(took)
		r, err := d.open(fmt.Sprintf("%05X", i%*ranges))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if got, err := seek(r, size, fmt.Sprintf("%035X", i*977%(2*lines))); err != nil || got != (i*977%(2*lines) < lines) {
			t.Fatalf("%d: got %v, %v", i, got, err)
		}
		took = append(took, time.Since(began))
	})
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	t.Logf("%d MB: p50 %v, p99 %v, %.0f allocations", *ranges*file.Len()>>20, took[len(took)/2], p99, allocated)
	if *ranges >= 1000 && p99 > 5*time.Millisecond { // CI is too busy to judge by the clock
		t.Errorf("p99 is %v", p99)
	}
}

func TestAListThatCannotBeAskedIsRefused(t *testing.T) {
	empty := t.TempDir()
	file := filepath.Join(empty, "pwnedpasswords.txt")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[string]string{
		"":                                "the URL of a server or a directory",
		empty:                             "-s false",
		empty + "/none":                   "no such file",
		file:                              "not a directory",
		"http://ranges.example.com":       "insecure",
		"ftp://ranges.example.com":        "https",
		"https://ranges.example.com/?q=":  "neither ? nor #",
		"https://ranges.example.com/#abc": "neither ? nor #",
	} {
		l := List{From: from}
		if _, err := l.Open(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %q", from, err, want)
		}
	}
	l := List{From: off, Require: true}
	if _, err := l.Open(); err == nil {
		t.Error("require without a list is accepted")
	}
	insecure := open(t, List{From: "http://ranges.example.com", Insecure: true})
	if w := insecure.(*server).Weaknesses(); len(w) != 1 {
		t.Errorf("the weaknesses are %v", w)
	}
}
