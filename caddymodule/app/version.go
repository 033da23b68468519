package app

import (
	"cmp"
	"regexp"
	"runtime/debug"
	"strings"
)

// version is that of CHANGELOG.md: the release on top, or, below "Unreleased", the
// next one with -dev. A test compares them. Go itself knows no version of a module that
// was built from a directory.
const version = "v0.2.0-dev"

// revision is the commit. xcaddy.sh sets it, with -ldflags -X.
var revision string

// Version returns the version that this program was built from. An unreleased one is
// followed by its commit, if that is known: v0.2.0-dev+ce04d48c6012.
func Version() string {
	if !strings.HasSuffix(version, "-dev") {
		return version
	}
	if commit := cmp.Or(revision, fetchedRevision()); commit != "" {
		return version + "+" + commit
	}
	return version
}

// pseudoVersion is what Go calls a commit that has no tag: its time, and its hash.
var pseudoVersion = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})$`)

// fetchedRevision returns the commit that xcaddy fetched, as it does for --with <module>@<commit>.
func fetchedRevision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if m.Path != "github.com/mnemogate/mnemogate" {
			continue
		}
		if m.Replace != nil {
			m = m.Replace
		}
		if found := pseudoVersion.FindStringSubmatch(m.Version); found != nil {
			return found[1]
		}
	}
	return ""
}
