package bench

import (
	"net/http"
	"testing"
)

// The protected path in each way that a session can be brought, with what is told of it
// and written down, over each version of HTTP, against reverse_proxy alone with the same
// header and the same logs:
//
//	-bench 'Ways/cookie/http3'
func BenchmarkWays(b *testing.B) {
	upstream, t := startUpstream(b), comparison()
	defer t.print()
	n := fewerSessions(b, 100_000)
	seed := seeded(b, n, n)
	for _, way := range []struct{ name, guard, header, global, more string }{
		{name: "bearer", guard: "mnemogate"},
		{name: "cookie", guard: "mnemogate {\ncookie session\n}", header: "Cookie: session="},
		{name: "forward", guard: "mnemogate {\nforward role email phone\n}"},
		{name: "audit", guard: "mnemogate", global: "\nlog audit {\ninclude mnemogate.audit\noutput file DIR/audit.log\n}"},
		{name: "access", guard: "mnemogate", more: "log {\noutput discard\n}"},
	} {
		b.Run(way.name, func(b *testing.B) {
			bare := startSubject(b, subjectConfig{more: way.more, http3: true}, upstream)
			c := embedded(seed)
			c.guard, c.more, c.http3 = way.guard, way.more, true
			c.global += way.global
			ours := startSubject(b, c, upstream)
			ours.closed()
			ours.warm(seed)
			for _, version := range []string{"http1", "http2", "http3"} {
				with := func(s *subject, name string) *side {
					side := s.side(name, 32, version == "http2", http.StatusOK, anyOf(seed))
					side.load.header = way.header
					if version == "http3" {
						side.load.addr, side.load.http3 = s.udp, s.tls
					}
					return side
				}
				b.Run(version, func(b *testing.B) {
					ours.asked(b, func() { compare(b, t, with(bare, "bare"), with(ours, "mnemogate")) })
				})
			}
		})
	}
}
