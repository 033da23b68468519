package bench

import (
	"encoding/base64"
	"net/http"
	"testing"

	"golang.org/x/crypto/bcrypt"
)

// The same protected request behind whatever an operator of Caddy has to choose from:
// nothing, Caddy's own guards, and mnemogate in the ways that a session can be brought.
func BenchmarkBeside(b *testing.B) {
	upstream, t := startUpstream(b), comparison()
	defer t.print()
	hash, err := bcrypt.GenerateFromPassword([]byte(testPassword), bcrypt.DefaultCost)
	if err != nil {
		b.Fatal(err)
	}
	n := fewerSessions(b, 100_000)
	seed := seeded(b, n, n)
	guarding := func(guard string) *subject {
		c := embedded(seed)
		c.guard = guard
		s := startSubject(b, c, upstream)
		s.closed()
		s.warm(seed)
		return s
	}
	bare := startSubject(b, subjectConfig{}, upstream)
	basic := startSubject(b, subjectConfig{guard: "basic_auth {\nuser " + string(hash) + "\n}"}, upstream)
	asking := startSubject(b, subjectConfig{guard: "forward_auth " + startUpstream(b) + " {\nuri /auth\ncopy_headers X-Profile-Mnemocode\n}"}, upstream)
	ours, forwarding, withCookie := guarding("mnemogate"), guarding("mnemogate {\nforward role email phone\n}"), guarding("mnemogate {\ncookie session\n}")
	user := always(base64.StdEncoding.EncodeToString([]byte("user:" + testPassword)))
	with := func(s *side, header string) *side {
		s.load.header = header
		return s
	}
	const clients = 32
	compare(b, t,
		bare.side("bare", clients, false, http.StatusOK, anyOf(seed)),
		with(basic.side("basic_auth", clients, false, http.StatusOK, user), "Authorization: Basic "),
		asking.side("forward_auth", clients, false, http.StatusOK, anyOf(seed)),
		ours.side("mnemogate", clients, false, http.StatusOK, anyOf(seed)),
		forwarding.side("mnemogate+forward", clients, false, http.StatusOK, anyOf(seed)),
		with(withCookie.side("mnemogate+cookie", clients, false, http.StatusOK, anyOf(seed)), "Cookie: session="))
}
