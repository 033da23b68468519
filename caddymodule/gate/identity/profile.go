package identity

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A profileHeader tells the application something about the user or the session.
type profileHeader struct {
	name    string
	value   func(*record.Session) string
	field   record.ProfileField // what sessions must store for it; all store the role
	whole   bool                // it needs Requirement.Whole
	claimed bool                // assertions have a claim for it, too
}

// profileHeaders maps the words of the configuration to the headers.
var profileHeaders = map[string]profileHeader{
	"role":         {name: "X-Profile-Role", value: valueOf(record.ProfileRole), field: record.ProfileRole, claimed: true},
	"email":        {name: "X-Profile-Email", value: valueOf(record.ProfileEmail), field: record.ProfileEmail, claimed: true},
	"phone":        {name: "X-Profile-Phone", value: valueOf(record.ProfilePhone), field: record.ProfilePhone, claimed: true},
	"token":        {name: "X-Profile-Token", value: tokenID},
	"session":      {name: "X-Profile-Session", value: func(s *record.Session) string { return s.ID }, whole: true},
	"auth_time":    {name: "X-Profile-Auth-Time", value: authTime, whole: true},
	"auth_methods": {name: "X-Profile-Auth-Methods", value: func(s *record.Session) string { return string(s.Profile.Methods()) }},
}

func valueOf(f record.ProfileField) func(*record.Session) string {
	return func(s *record.Session) string { return s.Profile.Value(f) }
}

// actorHeader tells the application who acts as the user with an issued token.
const actorHeader = "X-Profile-Actor"

func tokenID(s *record.Session) string {
	if s.Issued == nil {
		return ""
	}
	return s.Issued.ID
}

// authTime is empty for an issued token, which is no login.
func authTime(s *record.Session) string {
	if s.Issued != nil {
		return ""
	}
	return strconv.FormatInt(s.LoginTime().Unix(), 10)
}

// Private returns the names of the headers that logs must not show: with an assertion
// others can act as the user, and an email or phone is personal data.
func (s *Sender) Private() (names []string) {
	if s.headers.Assertion != nil {
		names = append(names, s.headers.Assertion.Header)
	}
	for _, word := range []string{"email", "phone"} {
		if slices.Contains(s.headers.Forward, word) {
			names = append(names, profileHeaders[word].name)
		}
	}
	return names
}

// checkForward refuses invalid values of the option forward.
func (h *Headers) checkForward() error {
	for i, word := range h.Forward {
		p, ok := profileHeaders[word]
		switch {
		case !ok:
			return fmt.Errorf("forward: %q is unknown; choose any of %s", word, strings.Join(slices.Sorted(maps.Keys(profileHeaders)), ", "))
		case slices.Contains(h.Forward[:i], word):
			return fmt.Errorf("forward: it has %s twice; remove one", word)
		case strings.EqualFold(p.name, h.Header), strings.EqualFold(p.name, h.CompanyHeader):
			return fmt.Errorf("forward: %s is header or company_header already; give that another name", p.name)
		}
	}
	return nil
}

// setProfile sets a header for each configured word that has a value.
func (s *Sender) setProfile(header http.Header, session *record.Session) {
	for _, p := range s.profile {
		if value := p.value(session); value != "" {
			header[p.name] = []string{value}
		}
	}
}
