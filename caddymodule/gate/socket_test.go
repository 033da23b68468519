package gate

import (
	"net/http"
	"slices"
	"strings"
	"testing"
)

// FuzzSocketTokens lets a client list any protocols. The application sees no token
// of ours, and of the others each byte in its place.
func FuzzSocketTokens(f *testing.F) {
	const ours = socketToken + someToken
	f.Add("chat, "+ours, "v2")
	f.Add(ours, ours)
	f.Add(ours+",,", " ,\t")
	f.Add("chat,\t"+ours+" ,superchat", "")
	f.Add(socketToken, "x"+ours+"; "+ours)
	f.Add("\""+ours+"\"", strings.ToUpper(socketToken)+"x")
	f.Add("a\x00,"+ours+"\xa0", "mnemogate.bearer")
	f.Fuzz(func(t *testing.T, first, second string) {
		sent := []string{first, second}
		header := http.Header{socketProtocols: slices.Clone(sent)}
		tokens := takeSocketTokens(header)
		left, there := header[socketProtocols]
		if tokens == nil {
			if !slices.Equal(left, sent) {
				t.Errorf("%q became %q", sent, left)
			}
			return
		}
		var others []string
		for _, protocol := range strings.Split(first+","+second, ",") {
			if protocol = strings.Trim(protocol, " \t"); protocol != "" && !strings.HasPrefix(protocol, socketToken) {
				others = append(others, protocol)
			}
		}
		var kept []string
		for _, line := range left {
			for _, protocol := range strings.Split(line, ",") {
				if protocol = strings.Trim(protocol, " \t"); protocol != "" {
					kept = append(kept, protocol)
				}
			}
		}
		if !slices.Equal(kept, others) || there != (others != nil) {
			t.Errorf("of %q there is left %q, want %q", sent, left, others)
		}
		for _, token := range tokens {
			if !strings.Contains(first+","+second, socketToken+token) || strings.Contains(token, ",") {
				t.Errorf("%q of %q", token, sent)
			}
		}
		if takeSocketTokens(header) != nil {
			t.Errorf("%q is left of %q", header, sent)
		}
	})
}
