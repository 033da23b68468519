package integration

import (
	"strings"
	"testing"

	"github.com/caddyserver/caddy/v2/caddyconfig"
)

// handled returns a Caddyfile with options of the directive. The first one is on line 11.
func handled(options string) string {
	return "{\nmnemogate {\ncompany acme {\napi_key off\ncaptcha off\n}\n}\n}\nhttp:// {\nmnemogate {\n" + options + "\n}\n}"
}

// Wrong uses of forward, assertion and check, besides those in testdata, are refused with
// their line. For role see TestRolesThatCannotBeMeantAreRefused.
func TestMistakesAreRefusedWithTheirLine(t *testing.T) {
	t.Parallel()
	const count = "wrong argument count or unexpected line ending after "
	for options, want := range map[string]string{
		"forward":                              "forward: " + count + "'forward', at Caddyfile:11",
		"forward role role":                    "forward: it has role twice; remove one, at Caddyfile:11",
		"forward role\nforward email":          "forward already specified, at Caddyfile:12",
		"forward Role":                         `forward: "Role" is unknown; choose any of auth_methods, auth_time, email, phone, role, session, at Caddyfile:11`,
		"header X-Profile-Role\nforward role":  "forward: X-Profile-Role is header or company_header already; give that another name, at Caddyfile:12",
		"check":                                "check: " + count + "'check', at Caddyfile:11",
		"check /a /b":                          "check: " + count + "'/a', at Caddyfile:11",
		"check /check/*":                       `check: "/check/*" is not a path; begin with a slash, and write it without escapes, .. or // in it, at Caddyfile:11`,
		"check /check?x":                       `check: "/check?x" is not a path`,
		"check /{env.CHECK}":                   `check: "/{env.CHECK}" is not a path`,
		"check /acme/login":                    "check: mnemogate answers /acme/login already; choose another path, at Caddyfile:11",
		"check /acme/v2/jwks.json":             "check: mnemogate answers /acme/v2/jwks.json already; choose another path, at Caddyfile:11",
		"check /up\nhealth /up":                "check: /up is the path of health; choose another, at Caddyfile:12",
		"check /up\npublic /up":                "check: public covers /up; choose a path that is not public, at Caddyfile:12",
		`assertion ""`:                         "assertion: name the application that it is for, as in assertion profile-api, at Caddyfile:11",
		"assertion app {\nissuer\n}":           "assertion: issuer: " + count + "'issuer', at Caddyfile:12",
		"assertion app {\nttl 60s\nttl 30s\n}": "assertion: ttl already specified, at Caddyfile:13",
		"assertion app {\nheader X Proof\n}":   "assertion: header: " + count + "'X', at Caddyfile:12",
		"assertion app {\nheader X_Proof\n}":   `assertion: header: "X_proof" cannot be the name of a header here; use letters, digits and dashes, at Caddyfile:`,
		"header X-Proof\nassertion app {\nheader x-proof\n}": "assertion: header: X-Proof is header or company_header already; choose another name, at Caddyfile:",
	} {
		_, err := adaptAndValidate(handled(options))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), ", at Caddyfile:") {
			t.Errorf("%s\n\tgot  %v\n\twant %s", options, err, want)
		}
	}
}

// JSON has no lines, but the same mistakes are refused, by the name of the option.
func TestMistakesInJSONAreRefused(t *testing.T) {
	t.Parallel()
	adapted, _, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(handled("")), nil)
	if err != nil {
		t.Fatal(err)
	}
	const handler = `"handler":"mnemogate"`
	if strings.Count(string(adapted), handler) != 1 {
		t.Fatalf("%s", adapted)
	}
	for options, want := range map[string]string{
		`"role":[{"role":"admin","paths":["/x"]}]`:              "",
		`"role":[{"role":"admin"}]`:                             "role: name at least one path",
		`"role":[{"role":"admin","paths":[""]}]`:                `role: "" is not a path to match`,
		`"role":[{"paths":["/x"]}]`:                             `role: "" is not a role; write the role before its paths, as in role admin /admin/*`,
		`"role":[{"role":"admin","path":["/x"]}]`:               `unknown field "path"`,
		`"role":{"admin":["/x"]}`:                               "cannot unmarshal object into Go struct field Handler.Rules.role",
		`"forward":["name"]`:                                    `forward: "name" is unknown; choose any of`,
		`"forward":["role","role"]`:                             "forward: it has role twice; remove one",
		`"forward":"role"`:                                      "cannot unmarshal string into Go struct field Handler.Headers.forward",
		`"check":"check"`:                                       `check: "check" is not a path; begin with a slash`,
		`"check":"/x","health":"/x"`:                            "check: /x is the path of health; choose another",
		`"check":"/x","public":["/*"]`:                          "check: public covers /x; choose a path that is not public",
		`"check":["/x"]`:                                        "cannot unmarshal array into Go struct field Handler.check",
		`"assertion":{}`:                                        "assertion: name the application that it is for, as in assertion profile-api",
		`"assertion":{"audience":"app","ttl":60}`:               "assertion: ttl: choose 10s to 10m",
		`"assertion":{"audience":"app","key":"x"}`:              `unknown field "key"`,
		`"assertion":{"audience":"app","keys":["x"]}`:           "assertion: key: key 1 of 1: it is no private key in PEM; make one with",
		`"assertion":{"audience":"app","issuer":"example.com"}`: `assertion: issuer: "example.com" is not a URL; write one like`,
		`"assertion":{"audience":"app","header":"Cookie"}`:      "assertion: header: Cookie has another meaning; choose another name",
	} {
		err := validate([]byte(strings.Replace(string(adapted), handler, handler+","+options, 1)))
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s\n\tgot  %v\n\twant %s", options, err, want)
		}
	}
}
