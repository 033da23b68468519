package app

import (
	"strings"
	"testing"
)

func TestVersionNamesTheCommitOfAnUnreleasedBuild(t *testing.T) {
	if !strings.HasSuffix(version, "-dev") {
		t.Skip("this is a release")
	}
	revision = "ce04d48c6012"
	t.Cleanup(func() { revision = "" })
	if got, want := Version(), version+"+ce04d48c6012"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestPseudoVersionsNameTheirCommit(t *testing.T) {
	for v, want := range map[string]string{
		"v0.0.0-20261123215700-ce04d48c6012":   "ce04d48c6012",
		"v0.1.1-0.20261123215700-ce04d48c6012": "ce04d48c6012",
		"v0.1.0":                               "",
		"(devel)":                              "",
	} {
		got := ""
		if found := pseudoVersion.FindStringSubmatch(v); found != nil {
			got = found[1]
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", v, got, want)
		}
	}
}
