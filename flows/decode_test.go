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

// FuzzEveryBody has more bodies that are no JSON.
func TestBodiesThatAreRefused(t *testing.T) {
	const login = `{"login_id":"a","password":"b"`
	for name, bodies := range map[string][]string{
		"no object":       {``, ` `, `null`, `"login_id"`, `[` + login + `}]`},
		"trailing data":   {login + `}{}`, login + `},`, login + "}\x00", login + `} hunter2`},
		"no JSON":         {login, login + `,}`, "\ufeff" + login + `}`, login + `,"x":01}`, login + `,"x":hunter2}`, login + `,"x":` + strings.Repeat("[", 20000), "\xfe\xff\x00{\x00}"},
		"a duplicate key": {login + `,"login_id":"a"}`, login + `,"\u006cogin_id":"a"}`, login + `,"hunter2":1,"hunter2":1}`, login + `,"x":{"y":1,"y":1}}`},
		"another case": {`{"Login_id":"a","password":"b"}`, login + `,"PASSWORD":"c"}`, login + `,"Captcha_Response":"c"}`,
			`{"login_id":"a","pa` + "\u017f" + `sword":"b"}`, `{"login_id":"a","password":"b","\u0050assword":"c"}`},
		"no UTF-8": {"{\"login_id\":\"a\xff\",\"password\":\"b\"}", login + ",\"\xff\":1}", "{\"login_id\":\"\xc0\xaf\",\"password\":\"b\"}",
			"{\"login_id\":\"\xed\xa0\x80\",\"password\":\"b\"}", `{"login_id":"\udc00\ud800","password":"b"}`, login + `,"x":["\ud800"]}`},
		"NUL": {`{"login_id":"a\u0000","password":"b"}`, "{\"login_id\":\"a\x00\",\"password\":\"b\"}", login + `,"x\u0000":1}`, login + `,"x":{"y":["\u0000"]}}`},
		"a wrong type": {`{"login_id":1,"password":"b"}`, `{"login_id":true,"password":"b"}`, `{"login_id":["a"],"password":"b"}`, `{"login_id":"a","password":{"hunter2":1}}`,
			login + `,"accept_disclaimers":"c"}`, login + `,"accept_disclaimers":["c",1]}`, login + `,"accept_disclaimers":["c",null]}`, login + `,"accept_disclaimers":[["c"]]}`},
		"missing or empty": {`{"login_id":"a"}`, `{"login_id":"","password":"b"}`, `{"login_id":null,"password":"b"}`, login + `,"accept_disclaimers":[""]}`},
		"too long": {`{"login_id":"` + strings.Repeat("ą", 255) + `","password":"b"}`, login + `,"accept_disclaimers":["` + strings.Repeat("ą", 65) + `"]}`, login + `,"accept_disclaimers":["a@` + strings.Repeat("ą", 65) + `"]}`,
			login + `,"accept_disclaimers":["c"` + strings.Repeat(`,"c"`, 64) + `]}`},
	} {
		for _, body := range bodies {
			err := wire.Decode([]byte(body), new(checkCredentialsRequest))
			refusal, ok := errors.AsType[*wire.Refusal](err)
			if !ok || refusal.Err != wire.ErrValidation || refusal.Message == "" || strings.Contains(refusal.Message, "hunter2") {
				t.Errorf("%s: %.80s: got %v, want %v with a message that repeats no secret", name, body, err, wire.ErrValidation)
			}
		}
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
		`{"login_id":"a","password":"caf\ud83d"}`:                          "The field password is not valid JSON in UTF-8.",
		"{\"login_id\":\"a\",\"password\":\"b\xff\"}":                      "The field password is not valid JSON in UTF-8.",
		`{"login_id":"a","accept_disclaimers":["a\ud83d"]}`:                "The field accept_disclaimers is not valid JSON in UTF-8.",
		`{"login_id":"a","hunter2":"\ud83d"}`:                              "The body must be one JSON object in UTF-8, with nothing after it.",
		`{"login_id":"a"} {}`:                                              "The body must be one JSON object in UTF-8, with nothing after it.",
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
	const login = `{"login_id":"a","password":"b"`
	both := checkCredentialsRequest{LoginID: "a", Password: "b"}
	for body, want := range map[string]checkCredentialsRequest{
		login + `,"captcha_response":"c","accept_disclaimers":["d","d"],"device_token":"f","remember_device":true}`: {"a", "b", "c", []string{"d", "d"}, "f", true},
		"\r\n\t {\"login_id\" : \"a\",\n\"password\":\"b\"} \n":                                                     both,
		login + `,"captcha_response":null,"accept_disclaimers":null}`:                                               both,
		login + `,"captcha_response":"","":1,"x":{"Login_id":[1,{"a":null}]},"logіn_id":1}`:                         both,
		`{"\u006cogin_id":"\u0061\n","password":"\ud83d\ude00"}`:                                                    {LoginID: "a\n", Password: "😀"},
		`{"login_id":"\ufffd","password":"` + "\ufffd" + `"}`:                                                       {LoginID: "\ufffd", Password: "\ufffd"},
		`{"login_id":" Password ","password":"LOGIN_ID"}`:                                                           {LoginID: " Password ", Password: "LOGIN_ID"},
		`{"login_id":"` + strings.Repeat("😀", 254) + `","password":"` + strings.Repeat("\u0301", 128) + `"}`:        {LoginID: strings.Repeat("😀", 254), Password: strings.Repeat("\u0301", 128)},
		login + `,"accept_disclaimers":["c"` + strings.Repeat(`,"c"`, 63) + `]}`:                                    {LoginID: "a", Password: "b", AcceptDisclaimers: slices.Repeat([]string{"c"}, 64)},
	} {
		var got checkCredentialsRequest
		if err := wire.Decode([]byte(body), &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v", body, got, err)
		}
	}
	for body, taken := range map[string]bool{
		"": true, "{}": true, ` {"x":1} `: true,
		" ": false, "null": false, "[]": false, "{": false, "{}{}": false, `{"x":1,"x":1}`: false, "x": false,
	} {
		if err := wire.Decode([]byte(body), new(emptyRequest)); (err == nil) != taken || !taken && !errors.Is(err, wire.ErrValidation) {
			t.Errorf("without fields, %q: %v", body, err)
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
