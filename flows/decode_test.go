package flows

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/wire"
)

func TestBodiesThatAreRefused(t *testing.T) {
	deep := strings.Repeat("[", 20000)
	for name, body := range map[string]string{
		"nothing":                       ``,
		"space":                         ` `,
		"null":                          `null`,
		"an array":                      `[{"login_id":"a","password":"b"}]`,
		"a string":                      `"login_id"`,
		"two objects":                   `{"login_id":"a","password":"b"}{}`,
		"a comma behind":                `{"login_id":"a","password":"b"},`,
		"NUL behind":                    "{\"login_id\":\"a\",\"password\":\"b\"}\x00",
		"cut off":                       `{"login_id":"a","password":"b"`,
		"a comma at the end":            `{"login_id":"a","password":"b",}`,
		"a comment":                     `{"login_id":"a",/**/"password":"b"}`,
		"single quotes":                 `{'login_id':'a','password':'b'}`,
		"a byte order mark":             "\ufeff" + `{"login_id":"a","password":"b"}`,
		"a duplicate key":               `{"login_id":"a","password":"b","login_id":"a"}`,
		"a duplicate key, escaped":      `{"login_id":"a","password":"b","\u006cogin_id":"a"}`,
		"a duplicate unknown key":       `{"login_id":"a","password":"b","x":1,"x":1}`,
		"a duplicate key within":        `{"login_id":"a","password":"b","x":{"y":1,"y":1}}`,
		"another case":                  `{"Login_id":"a","password":"b"}`,
		"another case beside it":        `{"login_id":"a","password":"b","PASSWORD":"c"}`,
		"another case of an optional":   `{"login_id":"a","password":"b","Captcha_Response":"c"}`,
		"another case by folding":       `{"login_id":"a","pa` + "\u017f" + `sword":"b"}`,
		"another case, escaped":         `{"login_id":"a","password":"b","\u0050assword":"c"}`,
		"invalid UTF-8":                 "{\"login_id\":\"a\xff\",\"password\":\"b\"}",
		"invalid UTF-8 in a key":        "{\"login_id\":\"a\",\"password\":\"b\",\"\xff\":1}",
		"an overlong form":              "{\"login_id\":\"\xc0\xaf\",\"password\":\"b\"}",
		"a surrogate in UTF-8":          "{\"login_id\":\"\xed\xa0\x80\",\"password\":\"b\"}",
		"a lone surrogate":              `{"login_id":"\ud800","password":"b"}`,
		"a lone low surrogate":          `{"login_id":"\udc00","password":"b"}`,
		"surrogates swapped":            `{"login_id":"\udc00\ud800","password":"b"}`,
		"a lone surrogate somewhere":    `{"login_id":"a","password":"b","x":["\ud800"]}`,
		"NUL":                           `{"login_id":"a\u0000","password":"b"}`,
		"NUL as it is":                  "{\"login_id\":\"a\x00\",\"password\":\"b\"}",
		"NUL in a key":                  `{"login_id":"a","password":"b","x\u0000":1}`,
		"NUL somewhere":                 `{"login_id":"a","password":"b","x":{"y":["\u0000"]}}`,
		"a control character":           "{\"login_id\":\"a\n\",\"password\":\"b\"}",
		"a number":                      `{"login_id":1,"password":"b"}`,
		"a boolean":                     `{"login_id":true,"password":"b"}`,
		"an object":                     `{"login_id":{},"password":"b"}`,
		"a list":                        `{"login_id":["a"],"password":"b"}`,
		"a string for a list":           `{"login_id":"a","password":"b","accept_disclaimers":"c"}`,
		"a number in a list":            `{"login_id":"a","password":"b","accept_disclaimers":["c",1]}`,
		"null in a list":                `{"login_id":"a","password":"b","accept_disclaimers":["c",null]}`,
		"empty in a list":               `{"login_id":"a","password":"b","accept_disclaimers":[""]}`,
		"a list in a list":              `{"login_id":"a","password":"b","accept_disclaimers":[["c"]]}`,
		"missing":                       `{"login_id":"a"}`,
		"empty":                         `{"login_id":"","password":"b"}`,
		"null for a required one":       `{"login_id":null,"password":"b"}`,
		"deep":                          `{"login_id":"a","password":"b","x":` + deep,
		"a bad escape":                  `{"login_id":"\x61","password":"b"}`,
		"a number that is none":         `{"login_id":"a","password":"b","x":01}`,
		"a word that is none":           `{"login_id":"a","password":"b","x":NaN}`,
		"a key without quotes":          `{login_id:"a","password":"b"}`,
		"UTF-16":                        "\xfe\xff\x00{\x00}",
		"one more than a login id":      `{"login_id":"` + strings.Repeat("ą", 255) + `","password":"b"}`,
		"one more than a disclaimer":    `{"login_id":"a","password":"b","accept_disclaimers":["` + strings.Repeat("ą", 130) + `"]}`,
		"one more than 64 disclaimers":  `{"login_id":"a","password":"b","accept_disclaimers":["c"` + strings.Repeat(`,"c"`, 64) + `]}`,
		"a secret in the wrong place":   `{"login_id":"a","password":{"hunter2":1}}`,
		"a secret for a key, twice":     `{"login_id":"a","password":"b","hunter2":1,"hunter2":1}`,
		"a secret behind":               `{"login_id":"a","password":"b"} hunter2`,
		"a secret where a number stood": `{"login_id":"a","password":"b","x":hunter2}`,
	} {
		t.Run(name, func(t *testing.T) {
			err := wire.Decode([]byte(body), new(checkCredentialsRequest))
			refusal, ok := errors.AsType[*wire.Refusal](err)
			if !ok || refusal.Err != wire.ErrValidation || refusal.Message == "" {
				t.Fatalf("got %v, want %v with a message", err, wire.ErrValidation)
			}
			if strings.Contains(refusal.Message, "hunter2") {
				t.Errorf("the message repeats a secret: %s", refusal.Message)
			}
		})
	}
}

// A client finds its mistake if the message names the field.
func TestRefusedBodiesNameTheField(t *testing.T) {
	for body, want := range map[string]string{
		`{"login_id":"a","password":"b","login_id":"a"}`:                   "The body has the field login_id twice.",
		`{"login_id":"a","password":"b","\u006cogin_id":"a"}`:              "The body has the field login_id twice.",
		`{"login_id":"a","password":{"x":1,"x":1}}`:                        "The field password has the same key twice.",
		`{"login_id":"a","password":"b","x":1,"x":1}`:                      "The body has the same key twice.",
		`{"login_id":"a","password":"b\u0000"}`:                            "The field password contains a NUL character. Remove it.",
		`{"login_id":"a","password":"b","accept_disclaimers":["a\u0000"]}`: "The field accept_disclaimers contains a NUL character. Remove it.",
		`{"login_id":"a","password":"b","x":{"login_id":"\u0000"}}`:        "The body contains a NUL character. Remove it.",
		`{"login_id":"a","password":"b","login_id\u0000":1}`:               "The body contains a NUL character. Remove it.",
	} {
		if got := refusalMessage(wire.Decode([]byte(body), new(checkCredentialsRequest))); got != want {
			t.Errorf("%s: got %q, want %q", body, got, want)
		}
	}
	for _, id := range []string{"0", "-0", "null"} {
		err := wire.Decode([]byte(`{"code":"a","redirect_uri":"b","provider_id":`+id+`}`), new(oauthRequest))
		if got, want := refusalMessage(err), "The field provider_id is missing or 0."; got != want {
			t.Errorf("%s: got %q, want %q", id, got, want)
		}
	}
}

func TestBodiesThatAreTaken(t *testing.T) {
	for name, c := range map[string]struct {
		body string
		want checkCredentialsRequest
	}{
		"all fields": {
			`{"login_id":"a","password":"b","captcha_response":"c","accept_disclaimers":["d","e"],"device_token":"f","remember_device":true}`,
			checkCredentialsRequest{"a", "b", "c", []string{"d", "e"}, "f", true},
		},
		"space around":          {"\r\n\t {\"login_id\" : \"a\",\n\"password\":\"b\"} \n", checkCredentialsRequest{LoginID: "a", Password: "b"}},
		"null is absent":        {`{"login_id":"a","password":"b","captcha_response":null,"accept_disclaimers":null}`, checkCredentialsRequest{LoginID: "a", Password: "b"}},
		"an empty optional":     {`{"login_id":"a","password":"b","captcha_response":""}`, checkCredentialsRequest{LoginID: "a", Password: "b"}},
		"unknown fields":        {`{"login_id":"a","x":{"Login_id":[1,{"a":null}]},"password":"b","logіn_id":1}`, checkCredentialsRequest{LoginID: "a", Password: "b"}},
		"an unknown empty key":  {`{"login_id":"a","password":"b","":1}`, checkCredentialsRequest{LoginID: "a", Password: "b"}},
		"escapes":               {`{"\u006cogin_id":"\u0061\n","password":"\ud83d\ude00"}`, checkCredentialsRequest{LoginID: "a\n", Password: "😀"}},
		"the replacement sign":  {`{"login_id":"\ufffd","password":"` + "\ufffd" + `"}`, checkCredentialsRequest{LoginID: "\ufffd", Password: "\ufffd"}},
		"surrounding space":     {`{"login_id":" a ","password":" b "}`, checkCredentialsRequest{LoginID: " a ", Password: " b "}},
		"as long as can be":     {`{"login_id":"` + strings.Repeat("😀", 254) + `","password":"` + strings.Repeat("\u0301", 128) + `"}`, checkCredentialsRequest{LoginID: strings.Repeat("😀", 254), Password: strings.Repeat("\u0301", 128)}},
		"a value for a key":     {`{"login_id":"Password","password":"LOGIN_ID"}`, checkCredentialsRequest{LoginID: "Password", Password: "LOGIN_ID"}},
		"64 disclaimers":        {`{"login_id":"a","password":"b","accept_disclaimers":["c"` + strings.Repeat(`,"c"`, 63) + `]}`, checkCredentialsRequest{LoginID: "a", Password: "b", AcceptDisclaimers: slices.Repeat([]string{"c"}, 64)}},
		"a repeated disclaimer": {`{"login_id":"a","password":"b","accept_disclaimers":["c","c"]}`, checkCredentialsRequest{LoginID: "a", Password: "b", AcceptDisclaimers: []string{"c", "c"}}},
	} {
		t.Run(name, func(t *testing.T) {
			var got checkCredentialsRequest
			if err := wire.Decode([]byte(c.body), &got); err != nil {
				t.Fatal(refusalMessage(err))
			}
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
	for _, body := range []string{"", "{}", ` {"x":1} `} {
		if err := wire.Decode([]byte(body), new(emptyRequest)); err != nil {
			t.Errorf("without fields, %q: %v", body, err)
		}
	}
	for _, body := range []string{" ", "null", "[]", "{", "{}{}", `{"x":1,"x":1}`, "x"} {
		if err := wire.Decode([]byte(body), new(emptyRequest)); !errors.Is(err, wire.ErrValidation) {
			t.Errorf("without fields, %q: got %v", body, err)
		}
	}
}

func refusalMessage(err error) string {
	if r, ok := errors.AsType[*wire.Refusal](err); ok {
		return r.Message
	}
	return fmt.Sprint(err)
}

// requests has one request of each type with fields, and the limits of its strings.
var requests = []struct {
	request any
	longest map[string]int
}{
	{loginRequest{}, map[string]int{"login_id": 254, "device_token": 128}},
	{checkPasswordRequest{}, map[string]int{"password": 128, "captcha_response": 4096, "device_token": 128}},
	{checkOTPRequest{}, map[string]int{"otp": 16, "backup_code": 64}},
	{setPasswordRequest{}, map[string]int{"new_password": 128}},
	{checkCredentialsRequest{}, map[string]int{"login_id": 254, "password": 128, "captcha_response": 4096, "device_token": 128}},
	{oauthRequest{}, map[string]int{"code": 4096, "redirect_uri": 2048, "code_verifier": 128, "nonce": 256, "device_token": 128}},
	{recoverRequest{}, map[string]int{"login_id": 254, "captcha_response": 4096}},
	{recoveryCheckOTPRequest{}, map[string]int{"otp": 16}},
	{checkQuestionRequest{}, map[string]int{"control_answer": 256}},
	{checkLinkRequest{}, map[string]int{"token": 128}},
}

// Limits count characters, not bytes.
func TestLimits(t *testing.T) {
	for _, r := range requests {
		typ := reflect.TypeOf(r.request)
		full := map[string]any{"provider_id": 1}
		for field, longest := range r.longest {
			full[field] = strings.Repeat("ą", longest)
		}
		decoded := func() error {
			body, err := json.Marshal(full)
			if err != nil {
				t.Fatal(err)
			}
			return wire.Decode(body, reflect.New(typ).Interface())
		}
		if err := decoded(); err != nil {
			t.Errorf("%s: %s", typ.Name(), refusalMessage(err))
		}
		for field, longest := range r.longest {
			full[field] = strings.Repeat("a", longest+1)
			if err := decoded(); !strings.Contains(refusalMessage(err), field) {
				t.Errorf("%s: %d characters in %s: got %v", typ.Name(), longest+1, field, err)
			}
			full[field] = "a"
		}
		for i := range typ.NumField() {
			f := typ.Field(i)
			if _, listed := r.longest[f.Tag.Get("json")]; f.Type.Kind() == reflect.String && f.Type.Name() == "string" && !listed {
				t.Errorf("%s: no limit of %s is checked", typ.Name(), f.Tag.Get("json"))
			}
		}
	}
}

// walk checks with another JSON package that a value has nothing that Decode must
// refuse.
func walk(d *json.Decoder, fields []wire.Field, depth int) error {
	t, err := d.Token()
	if err != nil {
		return err
	}
	if s, ok := t.(string); ok && strings.ContainsRune(s, 0) {
		return errors.New("it has a NUL")
	}
	open, ok := t.(json.Delim)
	if !ok {
		return nil
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				return err
			}
			name := key.(string)
			known := ""
			for _, f := range fields {
				if strings.EqualFold(f.Name, name) {
					known = f.Name
				}
			}
			if seen[name] || strings.ContainsRune(name, 0) || depth == 0 && known != "" && known != name {
				return fmt.Errorf("of its key %q", name)
			}
			seen[name] = true
		}
		if err := walk(d, fields, depth+1); err != nil {
			return err
		}
	}
	_, err = d.Token() // the end
	return err
}
