package gate

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A profileHeader passes one field of the user's account to the application.
type profileHeader struct {
	field record.ProfileField
	name  string
}

// profileHeaders maps the words of the configuration to the headers.
var profileHeaders = map[string]profileHeader{
	"role":  {record.ProfileRole, "X-Profile-Role"},
	"email": {record.ProfileEmail, "X-Profile-Email"},
	"phone": {record.ProfilePhone, "X-Profile-Phone"},
}

func profileOf(forward []string) (headers []profileHeader) {
	for _, word := range forward {
		headers = append(headers, profileHeaders[word])
	}
	return headers
}

// checkForward refuses invalid values of the option forward.
func (h *Handler) checkForward() error {
	for i, word := range h.Forward {
		p, ok := profileHeaders[word]
		switch {
		case !ok:
			return fmt.Errorf("forward: %q is not role, email or phone", word)
		case slices.Contains(h.Forward[:i], word):
			return fmt.Errorf("forward: it has %s twice", word)
		case strings.EqualFold(p.name, h.Header), strings.EqualFold(p.name, h.CompanyHeader):
			return fmt.Errorf("forward: %s is header or company_header already; give that another name", p.name)
		}
	}
	return nil
}

// tellProfile sets a header for each configured field that has a value.
func (h *Handler) tellProfile(header http.Header, profile record.Profile) {
	values := make([]string, 0, len(h.profile))
	for _, p := range h.profile {
		if value := profile.Value(p.field); value != "" {
			values = append(values, value)
			header[p.name] = values[len(values)-1 : len(values) : len(values)]
		}
	}
}
