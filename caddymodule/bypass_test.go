package caddymodule

import (
	"strings"
	"testing"
)

// What is told of routes is told at each start and by doctor.
func TestRoutesAreToldOfAtStartAndByDoctor(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, site: `
		handle /public/* {
			reverse_proxy BACKEND
		}
		handle {
			mnemogate
			reverse_proxy BACKEND
		}`})
	warning := "requests may also come to " + s.backend.addr + " without it, and with identity headers of their own making"
	if !strings.Contains(s.log(), warning) {
		t.Error("the log does not tell")
	}
	if got := s.cli("", "doctor").out; !strings.Contains(got, warning) || !strings.Contains(got, "put it before each reverse_proxy to there") {
		t.Errorf("doctor tells %s", got)
	}
}
