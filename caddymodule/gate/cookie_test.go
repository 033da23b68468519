package gate

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzCookies lets a client send any cookies. The application sees none of ours, and
// of the others each byte in its place; what stands for the user is what browsers
// and Go take for our cookie.
func FuzzCookies(f *testing.F) {
	const ours = defaultCookie + "=" + someToken
	f.Add("a=1; "+ours+"; b=2", "c=3")
	f.Add(ours, ours)
	f.Add(ours+";"+ours, "")
	f.Add(" \t"+defaultCookie+" = \""+someToken+"\" ;;a", "; ")
	f.Add(defaultCookie, "x"+ours+", "+ours)
	f.Add("a=\""+ours+"\"; b=\"; "+ours+"\"", "="+ours)
	f.Add("__host-MNEMOGATE=1;\xa0"+ours, "\x00;=;")
	f.Add("\r"+defaultCookie, "0")
	f.Fuzz(func(t *testing.T, first, second string) {
		h := &Handler{Cookie: defaultCookie}
		sent := []string{first, second}
		r := &http.Request{Header: http.Header{"Cookie": slices.Clone(sent)}}
		found := cookies(r, h.Cookie)
		h.dropCookies(r)
		left := r.Header["Cookie"]
		if again := cookies(r, h.Cookie); again != nil {
			t.Errorf("%q of %q is left", again, sent)
		}
		for _, c := range r.Cookies() {
			if c.Name == defaultCookie {
				t.Errorf("%q is left of %q", c, sent)
			}
		}
		var others []string // as they were sent, each line from its first to its last
		dropped := 0
		for _, line := range sent {
			var pairs []string
			for _, pair := range strings.Split(line, ";") {
				if name, _, _ := strings.Cut(pair, "="); strings.Trim(name, " \t\r\n") == defaultCookie {
					dropped++
				} else {
					pairs = append(pairs, pair)
				}
			}
			kept := strings.Join(pairs, ";")
			if len(kept) < len(line) {
				kept = strings.Trim(kept, " \t")
			}
			if kept != "" || line == "" {
				others = append(others, kept)
			}
		}
		if !slices.Equal(left, others) || dropped != len(found) {
			t.Errorf("of %q there is left %q, want %q; %d were taken for ours, want %d", sent, left, others, len(found), dropped)
		}
		if dropped == 0 && !slices.Equal(left, sent) {
			t.Errorf("%q became %q", sent, left)
		}
	})
}
