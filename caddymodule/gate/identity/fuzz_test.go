package identity

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var notAlphanumeric = regexp.MustCompile(`[^a-z0-9]`)

// FuzzStrip lets a client send any header: none is left that any server takes
// for the user's name, and none that makes a proxy drop or turn what we set.
func FuzzStrip(f *testing.F) {
	f.Add("X-Profile-Mnemocode", "x", "close")
	f.Add("x_profile.mnemocode", "x", "x-profile-mnemocode, Upgrade")
	f.Add("X~COMPANY'CODE", "", "keep-alive,close , X-Company-Code")
	f.Add("Upgrade", "h2c", "Upgrade, HTTP2-Settings")
	f.Add("Upgrade", "WebSocket", "UPGRADE")
	f.Add("X-Profile-Mnemocode ", "x", ",,\x00")
	f.Add("x_profile_Role", "admin", "X-Profile-Email")
	f.Add("X.PROFILE~PHONE", "x", "")
	f.Add("x_profile_auth_methods", "mfa", "X-Profile-Session")
	f.Fuzz(func(t *testing.T, name, value, connection string) {
		h := new(Headers)
		h.SetDefaults()
		r := &http.Request{Header: http.Header{}, Trailer: http.Header{}, Body: http.NoBody}
		for _, header := range []http.Header{r.Header, r.Trailer} {
			header[name] = []string{value}
			header[http.CanonicalHeaderKey(name)] = []string{value}
		}
		if connection != "" {
			r.Header["Connection"] = append(r.Header["Connection"], connection)
		}
		h.Strip(r)
		for _, header := range []http.Header{r.Header, r.Trailer} {
			for name := range header {
				switch notAlphanumeric.ReplaceAllString(asciiLower(name), "-") {
				case "x-profile-mnemocode", "x-company-code", "x-profile-role", "x-profile-email", "x-profile-phone",
					"x-profile-session", "x-profile-auth-time", "x-profile-auth-methods":
					t.Errorf("%q is left", name)
				}
			}
		}
		upgrade, upgrades := r.Header["Upgrade"]
		if upgrades && !slices.EqualFunc(upgrade, []string{"websocket"}, strings.EqualFold) {
			t.Errorf("Upgrade: %q is left", upgrade)
		}
		for _, line := range r.Header["Connection"] {
			for option := range strings.SplitSeq(line, ", ") {
				switch option := strings.ToLower(option); {
				case option == "close", option == "keep-alive", option == "upgrade" && upgrades:
				default:
					t.Errorf("Connection: %q is left", line)
				}
			}
		}
	})
}

func asciiLower(s string) string {
	b := []byte(s)
	for i, c := range b {
		if 'A' <= c && c <= 'Z' {
			b[i] = c + 'a' - 'A'
		}
	}
	return string(b)
}
