package gate

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/store/storetest"
)

var must = storetest.Must

// returnTos are what a login may go on to, and what it may not.
var returnTos = map[bool][]string{
	true: {
		"/", "/x", "/a/b/", "/x?y=z", "/?", "/x?to=https://evil.example/&p=//evil.example", "/x#y", "/%C4%97?q=%09", "/a%2Fb", "/@evil.example", "/:443", "/a:b", "/x?y\\z", "/..", "/a/../b", "/%ff", "/x?%zz", "/x#//y", "/x?request=" + strings.Repeat("x", 8000),
	},
	false: {
		"", "x", "?x", "#x", ".", "//evil.example", "///evil.example", "/\\evil.example", "\\/evil.example", "\\\\evil.example", "/\t/evil.example", "/%09/evil.example", " //evil.example", "/\n/evil.example",
		"https://evil.example", "https:evil.example", "https:/evil.example", "javascript:alert(1)", "data:text/html,x", "//evil.example@app.example.com", "/.//evil.example", "/a/..//evil.example", "/..//evil.example", "/%2e%2e%2f/evil.example", "/x/%2F", "/%2e//evil.example",
		"/%2Fevil.example", "/%5Cevil.example", "/%5cevil.example", "/x\u00a0", "/ė", "/x y", "/x\x00", "/x%00", "/%", "/%zz", "/x\x7f", "/x%7f", "*", "/%2", "/%u0041", "/" + strings.Repeat("x", maxReturnTo),
	},
}

// The server and the page have one rule.
func TestWhereALoginMayGoOn(t *testing.T) {
	for want, all := range returnTos {
		byPage := inNode[bool](t, `(s) => isReturnTo(s)`, all)
		for i, s := range all {
			if isReturnTo(s) != want || byPage[i] != want {
				t.Errorf("%q: by the server %t, by the page %t, want %t", s, isReturnTo(s), byPage[i], want)
			}
		}
	}
}

// inNode returns what a function of JavaScript makes of each string. It can call what
// returnto.js exports.
func inNode[T any](t *testing.T, function string, all []string) (made []T) {
	t.Helper()
	if _, err := exec.LookPath("node"); err != nil {
		storetest.SkipOrFail(t, "no node")
	}
	module, err := os.ReadFile("../page/assets/returnto.js")
	must(t, err)
	node := exec.Command("node", "--input-type=module", "-e", string(module)+`
import { readFileSync } from 'node:fs';
const made = JSON.parse(readFileSync(0)).map(`+function+`);
console.log(JSON.stringify(made));`)
	raw, _ := json.Marshal(all)
	node.Stdin = bytes.NewReader(raw)
	out, err := node.Output()
	must(t, err)
	if err := json.Unmarshal(out, &made); err != nil || len(made) != len(all) {
		t.Fatalf("got %d of %d, %v", len(made), len(all), err)
	}
	return made
}

const thisOrigin = "https://app.example.com"

// browserGoes is a model of where a browser goes from a page of this origin: WHATWG's
// URL parser (4.4), as far as the origin and slashes at the beginning of a path depend
// on it. Elsewhere is "".
func browserGoes(s string) (path string) {
	s = strings.TrimFunc(s, func(c rune) bool { return c <= ' ' })
	s = lineBreaksAndTabs.Replace(s)
	if scheme, rest, ok := strings.Cut(s, ":"); ok && isScheme(scheme) {
		if !strings.EqualFold(scheme, "https") {
			return ""
		}
		s = rest
	}
	if end := strings.IndexAny(s, "?#"); end >= 0 {
		s = s[:end]
	}
	s = strings.ReplaceAll(s, "\\", "/")
	if strings.HasPrefix(s, "//") {
		return ""
	}
	if !strings.HasPrefix(s, "/") {
		s = "/acme/" + s
	}
	var segments []string
	all := strings.Split(s[1:], "/")
	for i, segment := range all {
		last := i == len(all)-1
		switch strings.ReplaceAll(strings.ToLower(segment), "%2e", ".") {
		case "..":
			segments = segments[:max(0, len(segments)-1)]
		case ".":
		default:
			segments = append(segments, segment)
			continue
		}
		if last {
			segments = append(segments, "")
		}
	}
	return "/" + strings.Join(segments, "/")
}

var lineBreaksAndTabs = strings.NewReplacer("\t", "", "\n", "", "\r", "") // that browsers remove

func isScheme(s string) bool {
	for i, c := range strings.ToLower(s) {
		if !('a' <= c && c <= 'z' || i > 0 && strings.ContainsRune("0123456789+-.", c)) {
			return false
		}
	}
	return s != ""
}

// checkReturnTo checks that a browser stays here, however it comes to s: directly,
// behind the origin, decoded once more, or by the path alone that it has read.
func checkReturnTo(t *testing.T, s string) {
	t.Helper()
	decoded, _ := url.PathUnescape(s)
	for _, to := range []string{s, decoded} {
		path := browserGoes(to)
		if path == "" || browserGoes(path) == "" {
			t.Errorf("%q goes on at %q, and leaves", s, to)
		}
	}
	sent, _, _ := strings.Cut(s, "#") // behind it browsers take anything, and send nothing
	u, err := url.Parse(sent)
	if err != nil || u.Host != "" || u.Scheme != "" || u.User != nil || u.Opaque != "" {
		t.Errorf("%q is %+v, %v", s, u, err)
		return
	}
	base, _ := url.Parse(thisOrigin + "/acme/login")
	for _, u := range []*url.URL{base.ResolveReference(u), base.JoinPath(u.Path)} {
		if u.Host != base.Host || u.Scheme != "https" || strings.HasPrefix(u.Path, "//") {
			t.Errorf("%q is resolved as %s", s, u)
		}
	}
	if joined, err := url.Parse(thisOrigin + sent); err != nil || joined.Host != base.Host {
		t.Errorf("%q behind the origin is %v", s, joined)
	}
}

func FuzzReturnTo(f *testing.F) {
	for _, s := range []string{
		"/x?y#z", "//evil.example", "/\\evil.example", "/\t/evil.example", "/%09/evil", "/%2f%2fevil", "/.//evil", "/a/%2e%2e//evil", "https:evil", "javascript:x", "/@evil", "/;//evil", "/%252f/evil", "/\u2044evil", "/?\\", "/#//", "/#%",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if isReturnTo(s) {
			checkReturnTo(t, s)
		}
	})
}

// What is made of a few pieces that browsers treat in ways of their own is judged by a
// real one's parser, Node's, and so is the model of it.
func TestABrowserStaysWhereReturnToIs(t *testing.T) {
	pieces := []string{"/", "\\", ".", "..", "\t", " ", "%09", "%2f", "%5C", "%2e", "@", ":", "?", "#", "evil.example", "https:", "javascript:", "\u00a0", "\x00"}
	all := []string{""}
	for from, length := 0, 0; length < 4; length++ {
		to := len(all)
		for _, s := range all[from:to] {
			for _, piece := range pieces {
				all = append(all, s+piece)
			}
		}
		from = to
	}
	real := inNode[string](t, `(s) => {
  let u;
  try { u = new URL(s, 'https://app.example.com/acme/login'); } catch { return ''; }
  return u.origin === 'https://app.example.com' ? u.pathname : '';
}`, all)
	byPage := inNode[bool](t, `(s) => isReturnTo(s)`, all)
	accepted := 0
	for i, s := range all {
		stays := func(path string) string {
			return fmt.Sprint(path != "", strings.HasPrefix(path, "//"))
		}
		if stays(real[i]) != stays(browserGoes(s)) {
			t.Errorf("%q goes to %q, and by the model to %q", s, real[i], browserGoes(s))
		}
		if isReturnTo(s) != byPage[i] {
			t.Errorf("%q: by the server %t, by the page %t", s, isReturnTo(s), byPage[i])
		}
		if isReturnTo(s) {
			accepted++
			checkReturnTo(t, s)
		}
	}
	if accepted < len(all)/100 {
		t.Errorf("only %d of %d are accepted", accepted, len(all))
	}
}

func TestWhoIsABrowsersNavigation(t *testing.T) {
	const chromium = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"
	for _, c := range []struct {
		method string
		header http.Header
		want   bool
	}{
		{"GET", http.Header{"Accept": {chromium}}, true},
		{"HEAD", http.Header{"Accept": {chromium}, "Sec-Fetch-Mode": {"navigate"}}, true},
		{"GET", http.Header{"Accept": {"application/json", "x/y , Text/HTML ;q=0.1"}}, true},
		{"POST", http.Header{"Accept": {chromium}}, false},
		{"OPTIONS", http.Header{"Accept": {chromium}}, false},
		{"GET", http.Header{}, false},
		{"GET", http.Header{"Accept": {"*/*"}}, false},
		{"GET", http.Header{"Accept": {"*/*, text/html;q=0"}}, false},
		{"GET", http.Header{"Accept": {"text/html; Q=0.000, */*"}}, false},
		{"GET", http.Header{"Accept": {"text/html;level=1;q=0.001"}}, true},
		{"GET", http.Header{"Accept": {"text/html;q=none"}}, false},
		{"GET", http.Header{"Accept": {"text/*, application/text/html, text/htmlx"}}, false},
		{"GET", http.Header{"Accept": {chromium}, "Sec-Fetch-Mode": {"cors"}}, false},
		{"GET", http.Header{"Accept": {chromium}, "Sec-Fetch-Mode": {"no-cors"}}, false},
		{"GET", http.Header{"Accept": {chromium}, "Sec-Fetch-Mode": {"navigate", "cors"}}, false},
		{"GET", http.Header{"Accept": {chromium}, "Sec-Fetch-Mode": {""}}, false},
		{"GET", http.Header{"Accept": {"text/event-stream"}}, false},
		{"GET", http.Header{"Accept": {chromium}, "Upgrade": {"websocket"}}, false},
		{"GET", http.Header{"Accept": {chromium}, "Authorization": {"Bearer x"}}, false},
	} {
		if got := isNavigation(&http.Request{Method: c.method, Header: c.header}); got != c.want {
			t.Errorf("%s with %v: %v", c.method, c.header, got)
		}
	}
}
