package integration

import (
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// anAssertion matches a JWT.
var anAssertion = regexp.MustCompile(`eyJ[\w-]+\.[\w-]+\.[\w-]{86}`)

// mistakable returns what a lenient backend may make of a header's name.
func mistakable(name string) string {
	return strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name))
}

// linesNamed returns the header and trailer lines of a raw request whose name a
// backend might mistake for one of names.
func linesNamed(raw string, names ...string) []string {
	guarded := map[string]bool{}
	for _, name := range names {
		guarded[mistakable(name)] = true
	}
	var found []string
	for line := range strings.SplitSeq(raw, "\r\n") {
		if name, _, ok := strings.Cut(line, ":"); ok && guarded[mistakable(name)] {
			found = append(found, line)
		}
	}
	slices.Sort(found)
	return found
}

// spellings returns names that might be mistaken for a header's name. They have
// other characters in place of one or all dashes, and other letter cases.
func spellings(name string) []string {
	all := []string{name, strings.ToLower(name), strings.ToUpper(name)}
	for _, c := range "!#$%&'*+.^_`|~-" {
		all = append(all, strings.ReplaceAll(name, "-", string(c)), strings.Replace(name, "-", string(c), 1),
			strings.ToUpper(strings.ReplaceAll(name, "-", string(c))))
	}
	return all
}

// Contract, section 7: only this module sets or removes the identity headers.
func TestOnlyOurIdentityHeadersReachTheApplication(t *testing.T) {
	t.Parallel()
	setups := []struct {
		name          string
		config        siteConfig
		user, company string
		profile       []string
	}{
		{"default names", siteConfig{}, "X-Profile-Mnemocode", "X-Company-Code", nil},
		{"a profile", siteConfig{handler: "forward role phone"}, "X-Profile-Mnemocode", "X-Company-Code", []string{"X-Profile-Phone: +37060000001"}}, // alice has no role
		{"an assertion", siteConfig{handler: "assertion app {\nheader X-Proof\n}"}, "X-Profile-Mnemocode", "X-Company-Code", []string{"X-Proof: (an assertion)"}},
		{"other names, and Caddy lets odd ones through", siteConfig{
			handler: "header x-User-ID2\ncompany_header Tenant-\nforward_authorization",
			servers: "expected_underscore_headers x_user_id2 x-user_id2 x_user-id2 tenant_\nexpected_dot_headers x.user.id2 x-user.id2 x.user-id2 tenant.",
		}, "X-User-Id2", "Tenant-", nil},
	}
	for _, setup := range setups {
		t.Run(setup.name, func(t *testing.T) {
			setup.config.company = people
			s := startSite(t, setup.config)
			token := s.login("alice@example.com")
			want := append([]string{setup.company + ": acme", setup.user + ": alice"}, setup.profile...)
			slices.Sort(want)
			check := func(t *testing.T, how string) string {
				t.Helper()
				requests := s.backend.requests()
				got := anAssertion.ReplaceAllString(requests[len(requests)-1], "(an assertion)")
				if lines := linesNamed(got, slices.Concat(guardedHeaders, []string{setup.user, setup.company, "X-Proof"})...); !slices.Equal(lines, want) {
					t.Errorf("%s: the application got %q, want %q", how, lines, want)
				}
				return got
			}
			var forged, declared strings.Builder
			names := append(spellings(setup.user), spellings(setup.company)...)
			switch { // with more, there would be too many trailers
			case setup.name == "an assertion":
				names = append(spellings("X-Proof"), spellings("X-Mnemogate-Assertion")...)
			case setup.profile != nil:
				names = append(spellings("X-Profile-Role"), spellings("X-Profile-Phone")...)
			default:
				for _, name := range guardedHeaders {
					names = append(names, name, strings.ReplaceAll(strings.ToLower(name), "-", "_"))
				}
			}
			for _, name := range names {
				forged.WriteString(name + ": mallory\r\n")
				declared.WriteString("Trailer: " + name + "\r\n")
			}
			start := "GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n"
			s.run("headers", func(t *testing.T) {
				for _, name := range names { // one by one: if there are several, Caddy drops some itself
					s.exchange(start + name + ": mallory\r\nConnection: close\r\n\r\n").is(200)
					check(t, name)
				}
				s.exchange(start + forged.String() + forged.String() + "Connection: close\r\n\r\n").is(200)
				check(t, "all together")
			})
			s.run("headers of HTTP/1.0", func(t *testing.T) {
				s.exchange(strings.Replace(start, "1.1", "1.0", 1) + forged.String() + "\r\n").is(200)
				check(t, "HTTP/1.0")
			})
			s.run("headers of HTTP/2", func(t *testing.T) {
				r := s.request("GET", "/", "")
				r.Header["authorization"] = []string{"Bearer " + token}
				for _, name := range names {
					r.Header[strings.ToLower(name)] = []string{"mallory", "eve"}
				}
				s.doH2(r).is(200)
				check(t, "HTTP/2")
			})
			s.run("similar names are left alone", func(t *testing.T) {
				s.exchange(start + "X-" + setup.user + ": 1\r\n" + setup.user + "-2: 2\r\n" + setup.user[1:] + ": 3\r\nConnection: close\r\n\r\n").is(200)
				got := check(t, "similar names")
				if len(linesNamed(got, "X-"+setup.user, setup.user+"-2", setup.user[1:])) != 3 {
					t.Errorf("the application got %q", got)
				}
			})
			s.run("named in Connection", func(t *testing.T) {
				for _, value := range []string{
					setup.user, strings.ToLower(setup.user) + "," + setup.company, "close, " + setup.user, "keep-alive,," + setup.company + " ,\t" + setup.user,
					"upgrade, " + setup.user,
				} {
					s.exchange(start + "Connection: " + value + "\r\nConnection: close, " + setup.user + "\r\nProxy-Connection: " + setup.user + "\r\n\r\n").is(200)
					check(t, value)
				}
			})
			body := "Transfer-Encoding: chunked\r\nConnection: close\r\n"
			s.run("declared trailers", func(t *testing.T) {
				s.exchange(start + body + declared.String() + "Trailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\n" + forged.String() + "X-Sum: 9\r\n\r\n").is(200)
				if got := check(t, "declared"); !strings.Contains(got, "\r\nX-Sum: 9\r\n") || linesNamed(got, "Trailer")[0] != "Trailer: X-Sum" {
					t.Errorf("the other trailer is lost: %q", got)
				}
			})
			s.run("undeclared trailers", func(t *testing.T) {
				s.exchange(start + body + "\r\n3\r\nabc\r\n0\r\n" + forged.String() + "\r\n").is(200)
				check(t, "none declared")
				s.exchange(start + body + "Trailer: X-Sum\r\n\r\n3\r\nabc\r\n0\r\n" + forged.String() + "X-Sum: 9\r\n\r\n").is(200)
				check(t, "another declared")
				s.exchange(start + body + "\r\n0\r\n" + forged.String() + "\r\n").is(200)
				check(t, "no body")
			})
			s.run("trailers of HTTP/2", func(t *testing.T) {
				r := s.request("POST", "/", "abc")
				r.Header.Set("Authorization", "Bearer "+token)
				r.ContentLength = -1
				r.Trailer = http.Header{"X-Sum": {"9"}}
				for _, name := range names {
					r.Trailer[http.CanonicalHeaderKey(name)] = []string{"mallory"}
				}
				s.doH2(r).is(200)
				if got := check(t, "declared"); !strings.Contains(got, "\r\nX-Sum: 9\r\n") {
					t.Errorf("the other trailer is lost: %q", got)
				}
				for _, also := range [][]string{nil, {"trailer", "x-sum"}, {"trailer", strings.ToLower(setup.user)}} {
					c := s.h2()
					c.headers(false, append([]string{":method", "POST", ":scheme", "http", ":authority", "x", ":path", "/", "authorization", "Bearer " + token}, also...)...)
					c.data("abc", false)
					c.headers(true, "x-sum", "9", strings.ToLower(setup.user), "mallory", strings.ToLower(setup.company), "mallory", "x_sum", "8")
					if status, _ := c.answer(""); status != "200" {
						t.Errorf("got %s", status)
					}
					check(t, "HTTP/2, undeclared")
				}
			})
			s.run("credentials", func(t *testing.T) {
				s.exchange(start + "X-Api-Key: " + testKey + "\r\nx-api-key: other\r\nConnection: close\r\n\r\n").is(200)
				got := check(t, "credentials")
				if strings.Contains(strings.ToLower(got), "x-api-key") {
					t.Errorf("the API key is sent on: %q", got)
				}
				if sent := strings.Contains(got, token); sent != strings.Contains(setup.config.handler, "forward_authorization") {
					t.Errorf("is the token sent on? %v", sent)
				}
			})
		})
	}
}

// Contract, section 7: these headers could make a backend use another path or user
// than mnemogate has checked. They never reach it from a client, on any path.
func TestNoGuardedHeaderReachesTheApplication(t *testing.T) {
	t.Parallel()
	s := startSite(t, siteConfig{company: people, handler: "header X-User\ncompany_header X-Tenant\npublic /open"})
	token := s.login("alice@example.com")
	for path, want := range map[string][]string{"/open": nil, "/x": {"X-Tenant: acme", "X-User: alice"}} {
		head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
		if want != nil {
			head += bearer(token)
		}
		for _, name := range slices.Concat(guardedHeaders, []string{"X-User", "X-Tenant"}) {
			for _, spelling := range spellings(name) {
				forged := spelling + ": forged\r\n"
				s.exchange(head + forged + "Trailer: " + spelling + "\r\n\r\n3\r\nabc\r\n0\r\n" + forged + "\r\n").is(200)
				requests := s.backend.requests()
				if got := linesNamed(requests[len(requests)-1], slices.Concat(guardedHeaders, []string{"X-User", "X-Tenant"})...); !slices.Equal(got, want) {
					t.Errorf("%s with %s: the application got %q, want %q", path, spelling, got, want)
				}
			}
		}
	}
}
