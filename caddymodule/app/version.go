package app

import (
	"cmp"
	"regexp"
	"runtime/debug"
	"strings"
)

// version is the topmost release of CHANGELOG.md or, while changes are listed under
// "Unreleased", the next release with -dev. A test compares them. Go itself does not
// record a version for a module that was built from a directory.
const version = "v0.1.0-dev"

// revision is the commit. xcaddy.sh sets it with -ldflags -X.
var revision string

// Version returns the version of this program. An unreleased version ends in its
// commit, if that is known: v0.1.0-dev+ce04d48c6012.
func Version() string {
	if !strings.HasSuffix(version, "-dev") {
		return version
	}
	if commit := cmp.Or(revision, fetchedRevision()); commit != "" {
		return version + "+" + commit
	}
	return version
}

// pseudoVersion matches the version that Go gives to a commit without a tag, which
// contains its time and its hash.
var pseudoVersion = regexp.MustCompile(`[-.]\d{14}-([0-9a-f]{12})$`)

// fetchedRevision returns the commit that xcaddy fetched for --with
// <module>@<commit>.
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
