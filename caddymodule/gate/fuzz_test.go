package gate

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"testing"
)

var jsonType = regexp.MustCompile(`(?i)^[\s\v\p{Z}\x{85}]*application/json[\s\v\p{Z}\x{85}]*(;|$)`)

// FuzzRequestHeaders: a body's type, and the origin of the page that asks.
func FuzzRequestHeaders(f *testing.F) {
	f.Add("application/json", "https://app.example.com", "POST", "x-api-key,content-type")
	f.Add("application/json; charset=UTF-8", "https://app.example.com.evil.example", "", "")
	f.Add("application/json;charset=\"utf-8\";x=y", "https://APP.example.com", "DELETE\r\nX: y", "a\x00")
	f.Add("application/json; charset*0=utf; charset*1=-8", "null", "*", "*")
	f.Add("application/jsonx", "", "", "")
	f.Add("\fapplication/json\v;", "", "", "")
	f.Add("application/json, text/html", "https://app.example.com https://evil.example", "GET", "")
	f.Add("text/plain; x=\"application/json\"", "https://app.example.com\n", "GET", "")
	f.Fuzz(func(t *testing.T, contentType, origin, method, headers string) {
		header := http.Header{"Content-Type": {contentType}}
		if isJSON(header) && !jsonType.MatchString(contentType) {
			t.Errorf("%q is taken for JSON", contentType)
		}
		twice := http.Header{"Content-Type": {contentType, contentType}}
		encoded := http.Header{"Content-Type": {contentType}, "Content-Encoding": {""}}
		if isJSON(twice) || isJSON(encoded) {
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
