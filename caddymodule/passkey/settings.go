// Package passkey reads and writes WebAuthn's formats with the library go-webauthn. Start
// with Settings, which configure it, and then read Verifier.
package passkey

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
)

// Settings let users log in with passkeys.
type Settings struct {
	// The domain that the passkeys belong to (WebAuthn's RP ID): that of the site, or
	// a parent domain that all its sites share. Browsers offer a passkey on this
	// domain and those below it. It can't be changed later: all passkeys would be
	// lost.
	RPID string `json:"rp_id,omitempty"`

	// The origins whose pages and apps may use the passkeys: `https://` with the
	// domain or one below it, or an Android app as
	// `android:apk-key-hash:<SHA-256 of its certificate, in base64url>`. Plain http
	// works for localhost only. Origins elsewhere, such as `https://example.de`, are
	// in `/.well-known/webauthn`, which browsers read at `https://<rp_id>`: its site
	// must be one of mnemogate. Default: `https://<rp_id>`.
	Origins []string `json:"origins,omitempty"`

	// What authenticators call the site. Default: the name of the company.
	Name string `json:"name,omitempty"`
}

// Off reports whether the settings are empty. A company turns off passkeys with empty
// settings.
func (s *Settings) Off() bool { return s.RPID == "" && s.Origins == nil && s.Name == "" }

// WorksOn reports whether pages of a host may use the passkeys. A host may have a
// wildcard. If it has a placeholder, it is unknown, and WorksOn returns true.
func (s *Settings) WorksOn(host string) bool {
	origins := s.Origins
	if !slices.ContainsFunc(origins, func(o string) bool { return !isAndroidApp(o) }) {
		origins = []string{"https://" + s.RPID}
	}
	return unknown(host) || slices.ContainsFunc(origins, func(origin string) bool {
		u, err := url.Parse(origin)
		if parent, any := strings.CutPrefix(host, "*"); any {
			return err == nil && strings.HasSuffix(u.Hostname(), parent)
		}
		return err == nil && strings.EqualFold(u.Hostname(), host)
	})
}

// Owns reports whether a host is rp_id or below it, so that apps may use the passkeys.
func (s *Settings) Owns(host string) bool {
	own := "." + s.RPID
	parent := "." + strings.ToLower(strings.TrimPrefix(host, "*."))
	return unknown(host) || strings.HasSuffix(parent, own) || strings.HasPrefix(host, "*") && strings.HasSuffix(own, parent)
}

func unknown(host string) bool {
	return strings.ContainsFunc(host, func(r rune) bool { return r == '{' || r > unicode.MaxASCII })
}

// Check refuses settings with which no browser would use a passkey. Its errors begin with
// the name of the option.
func (s *Settings) Check() error {
	if err := checkRPID(s.RPID); err != nil {
		return fmt.Errorf("rp_id: %w", err)
	}
	for i, origin := range s.Origins {
		if err := s.checkOrigin(origin); err != nil {
			return fmt.Errorf("origins: %q: %w", origin, err)
		}
		if slices.Contains(s.Origins[:i], origin) {
			return fmt.Errorf("origins: %q is named twice; remove one", origin)
		}
	}
	if err := checkLabels(s.Related()); err != nil {
		return fmt.Errorf("origins: %w", err)
	}
	if utf8.RuneCountInString(s.Name) > 64 || strings.ContainsFunc(s.Name, unicode.IsControl) {
		return errors.New("name: it must have at most 64 characters and no control characters; shorten it")
	}
	return guest.Inside("name", guest.CheckNoPlaceholder(s.Name, "write the name as users read it"))
}

func checkRPID(id string) error {
	if id == "" {
		return errors.New("it is missing; write the domain of the site, such as example.com")
	}
	if strings.ContainsAny(id, ":/?#@*") {
		return fmt.Errorf("%q is not a domain; write it without scheme, port and path, such as example.com", id)
	}
	if _, err := netip.ParseAddr(id); err == nil {
		return fmt.Errorf("%s is an IP address, for which browsers have no passkeys; write a domain", id)
	}
	ascii, err := idna.Lookup.ToASCII(id)
	if err != nil || strings.HasSuffix(id, ".") || strings.HasPrefix(id, ".") {
		return fmt.Errorf("%q is not a domain; write one like example.com", id)
	}
	if ascii != id {
		return fmt.Errorf("%q is not how browsers write the domain; write %s", id, ascii)
	}
	suffix, _ := publicsuffix.PublicSuffix(id)
	if suffix == id && id != "localhost" { // every name without a dot is one
		return fmt.Errorf("%s is a public suffix, below which anyone can have a domain, so browsers refuse it; write the site's own domain, such as example.%s", id, id)
	}
	return nil
}

// androidApp matches the origin of an Android app. The hash has 32 bytes.
var androidApp = regexp.MustCompile(`^android:apk-key-hash:[A-Za-z0-9_-]{43}$`)

func isAndroidApp(origin string) bool { return strings.HasPrefix(origin, "android:") }

func (s *Settings) checkOrigin(origin string) error {
	if isAndroidApp(origin) {
		if !androidApp.MatchString(origin) {
			return errors.New("write android:apk-key-hash: and the SHA-256 of the app's certificate, 43 characters of base64url")
		}
		return nil
	}
	u, err := url.Parse(origin)
	if err != nil || u.Host == "" || origin != u.Scheme+"://"+u.Host || strings.ToLower(origin) != origin || strings.Contains(origin, "*") {
		return fmt.Errorf("it is not an origin; write scheme, domain and, if needed, port, in lower case, such as https://%s", s.RPID)
	}
	if written := guest.BrowserOrigin(origin); written != origin {
		return fmt.Errorf("browsers write it as %s; write that", written)
	}
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost") {
		return errors.New("browsers have passkeys on https only, and on http://localhost; write https")
	}
	if s.isRelated(u) && u.Scheme != "https" {
		return fmt.Errorf("its domain is neither rp_id (%s) nor below it; correct one of them", s.RPID)
	}
	return nil
}

// isRelated reports whether an origin is elsewhere than rp_id.
func (s *Settings) isRelated(origin *url.URL) bool {
	return !strings.HasSuffix("."+origin.Hostname(), "."+s.RPID)
}

// Related returns the origins that are elsewhere than rp_id (WebAuthn Level 3, section 5.11).
func (s *Settings) Related() (origins []string) {
	for _, origin := range s.Origins {
		if u, err := url.Parse(origin); err == nil && !isAndroidApp(origin) && s.isRelated(u) {
			origins = append(origins, origin)
		}
	}
	return origins
}

// mostLabels is how many different names of sites all browsers read (WebAuthn Level 3, section
// 5.11.1).
const mostLabels = 5

func checkLabels(origins []string) error {
	labels := map[string]bool{}
	for _, origin := range origins {
		u, err := url.Parse(origin)
		if err != nil {
			return err
		}
		site, err := publicsuffix.EffectiveTLDPlusOne(u.Hostname())
		if err != nil {
			return fmt.Errorf("%q: its domain is neither rp_id nor below it, nor one that a site of its own could have; correct it", origin)
		}
		label, _, _ := strings.Cut(site, ".")
		labels[label] = true
	}
	if len(labels) > mostLabels {
		return fmt.Errorf("those elsewhere than rp_id have %d different names (example in https://app.example.de is one), and browsers read %d; remove some", len(labels), mostLabels)
	}
	return nil
}
