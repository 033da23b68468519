package gate

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/caddymodule/gate/identity"
)

var jsonType = regexp.MustCompile(`(?i)^[\s\v\p{Z}\x{85}]*application/json[\s\v\p{Z}\x{85}]*(;|$)`)

// FuzzRequestHeaders: a body's type, and the origin of the page that asks.
func FuzzRequestHeaders(f *testing.F) {
	f.Add("application/json", "https://app.example.com", "POST", "x-api-key,content-type")
	f.Add("application/json; charset=UTF-8", "https://app.example.com.evil.example", "", "")
	f.Add("application/json;charset=\"utf-8\";x=y", "https://APP.example.com", "DELETE\r\nX: y", "a\x00")
	f.Add("application/json; charset*0=utf; charset*1=-8", "null", "*", "*")
	f.Add("application/jsonx", "", "", "")
	f.Add("applİcation/json", "", "", "")
	f.Add("\fapplication/json\v;", "", "", "")
	f.Add("application/json, text/html", "https://app.example.com https://evil.example", "GET", "")
	f.Add("text/plain; x=\"application/json\"", "https://app.example.com\n", "GET", "")
	f.Fuzz(func(t *testing.T, contentType, origin, method, headers string) {
		header := http.Header{"Content-Type": {contentType}}
		if jsonBody.is(header) && !jsonType.MatchString(contentType) {
			t.Errorf("%q is taken for JSON", contentType)
		}
		twice := http.Header{"Content-Type": {contentType, contentType}}
		encoded := http.Header{"Content-Type": {contentType}, "Content-Encoding": {""}}
		if jsonBody.is(twice) || jsonBody.is(encoded) {
			t.Error("it is taken for JSON twice, or encoded")
		}

		const ours = "https://app.example.com"
		h := &Handler{CORS: []string{ours}}
		r := &http.Request{Method: http.MethodOptions, URL: &url.URL{Path: "/"}, Header: http.Header{
			"Origin": {origin}, "Access-Control-Request-Method": {method}, "Access-Control-Request-Headers": {headers}}}
		w := httptest.NewRecorder()
		allowed := h.crossOrigin(w, r)
		if allowed != (origin == ours) {
			t.Errorf("the origin %q is allowed: %v", origin, allowed)
		}
		if allowed && isPreflight(r) {
			h.servePreflight(w, r, target{})
		}
		sent := w.Result().Header // as they go out
		if got := sent.Get(allowOrigin); got != "" && got != ours {
			t.Errorf("%s: %q", allowOrigin, got)
		}
		if allowed != slices.Contains(sent.Values(allowOrigin), ours) || !slices.Contains(sent.Values("Vary"), "Origin") {
			t.Errorf("%q is answered %v", origin, sent)
		}
	})
}

// FuzzAnswerIn lets a stranger post a form to the login page: it leads to the page with
// the four parameters that the page reads, as the form has them, or nowhere.
func FuzzAnswerIn(f *testing.F) {
	f.Add("code=c-1&state=s-1&user=%7B%22name%22%3A%7B%7D%7D")
	f.Add("error=user_cancelled_authorize&state=s-1&iss=https%3A%2F%2Fid.example")
	f.Add("code=%3Cscript%3E&state=%22%0d%0aLocation:%20//evil.example&return_to=//evil.example")
	f.Add("code=a&code=b&state=s")
	f.Add("state=s;code=a")
	f.Add("code=%zz")
	f.Add("code=" + strings.Repeat("x", maxReturnTo))
	f.Add("")
	f.Fuzz(func(t *testing.T, form string) {
		query, err := answerIn(form)
		if err != nil {
			if query != "" {
				t.Errorf("%q: %q, %v", form, query, err)
			}
			return
		}
		sent, _ := url.ParseQuery(form)
		to := "/acme/login?" + query
		u, err := url.ParseRequestURI(to)
		if err != nil || u.Path != "/acme/login" || !isReturnTo("/?"+query) && len(query) < maxReturnTo-2 {
			t.Fatalf("%q leads to %q", form, to)
		}
		for name, values := range u.Query() {
			if !slices.Contains([]string{"code", "error", "iss", "state"}, name) || !slices.Equal(values, sent[name]) {
				t.Errorf("%q leads to %q", form, to)
			}
		}
		if !u.Query().Has("code") && !u.Query().Has("error") {
			t.Errorf("%q leads to %q", form, to)
		}
	})
}

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
		s, err := new(identity.Headers).Provision(nil, nil)
		must(t, err)
		r := &http.Request{Header: http.Header{}, Trailer: http.Header{}, Body: http.NoBody}
		for _, header := range []http.Header{r.Header, r.Trailer} {
			header[name] = []string{value}
			header[http.CanonicalHeaderKey(name)] = []string{value}
		}
		if connection != "" {
			r.Header["Connection"] = append(r.Header["Connection"], connection)
		}
		s.Strip(r)
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
