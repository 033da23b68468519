package bench

import (
	"math/rand/v2"
	"net/http"
	"testing"
)

// Introspection of remembered sessions, against a plain respond that says as much
// to the same requests:
//
//	-bench Introspect
func BenchmarkIntrospect(b *testing.B) {
	upstream, t := startUpstream(b), comparison()
	defer t.print()
	const key = "introspects-and-nothing-else"
	seed := seeded(b, 1000, 1000)
	bare := startSubject(b, subjectConfig{more: "header Content-Type application/json\n" +
		"respond `{\"active\":true,\"sub\":\"user-100\",\"company\":\"acme\",\"state\":\"authorized\",\"sid\":\"0123456789abcdef0123456789abcdef\",\"iat\":1700000000,\"exp\":1700000000}` 200"}, upstream)
	config := embedded(seed)
	config.guard = ""
	config.more = "mnemogate_accounts {\nkey service " + key + " {\nmay introspect\n}\n}"
	ours := startSubject(b, config, upstream)
	asking := func(name string, s *subject) *side {
		shots := func(client int) func() (shot, bool) {
			random := rand.New(rand.NewPCG(rand.Uint64(), uint64(client)))
			return func() (shot, bool) {
				return shot{token: key, body: `{"token":"` + seed.token(random.IntN(seed.sessions)) + `"}`}, true
			}
		}
		l := newLoad(template{addr: s.addr, method: "POST", path: "/acme/introspect", want: http.StatusOK}, 32, shots)
		b.Cleanup(l.close)
		return &side{name, s, l}
	}
	asking("warm", ours).round()
	ours.asked(b, func() { compare(b, t, asking("bare", bare), asking("mnemogate", ours)) })
}
