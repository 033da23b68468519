package flows

import (
	"bytes"
	stdjson "encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file has the fuzz targets of code that has no fuzz test in a file of its own.

// said matches the messages about bodies. Other text could come from the sender.
var said = regexp.MustCompile(`^(Spell the field [a-z_]+ exactly like this\.|The field [a-z_]+ (is missing or (empty|0)|is longer than \d+ characters|has more than \d+ elements|has the wrong type\. The OpenAPI document names the right one|is not valid JSON in UTF-8)\.` +
	`|The (body|field [a-z_]+) (contains a NUL character\. Remove it|has the same key twice)\.|The body has the field [a-z_]+ twice\.|The body must be one JSON object.*\.` +
	`|Each element of [a-z_]+ must have 1 to \d+ characters\.)$`)

// FuzzEveryBody decodes a body for a route. An accepted body must be within the
// limits and keep its meaning when it is encoded again.
func FuzzEveryBody(f *testing.F) {
	for i, body := range []string{
		`{"login_id":"a"}`, `{"password":"b","captcha_response":"c","accept_disclaimers":["d","e"]}`, `{"otp":"123456"}`, `{"backup_code":null,"otp":"1"}`, ``,
		`{"new_password":"\u0007 \ud83d\ude00"}`, `{"login_id":"a","password":"b"}`, `{"provider_id":1,"code":"c","redirect_uri":"r","nonce":""}`,
		`{"provider_id":1.0}`, `{"provider_id":1e0}`, `{"provider_id":"1"}`, `{"provider_id":99999999999999999999}`, `{"accept_disclaimers":{}}`, `{"x":[[[[[[[[]]]]]]]]}`,
		`{"method":"PHONE","login_id":"a","captcha_response":"b"}`, `{"token":"t"}`, `{"control_answer":"x"}`, `{"A":1,"a":1}`, "\ufeff{}", `{"login_id":"a"} {}`, `{"x":1e700}`,
	} {
		f.Add([]byte(body), uint8(i))
	}
	credentials := uint8(slices.IndexFunc(Routes, func(r Route) bool { return r.Path == "auth/checkcredentials" }))
	for _, body := range []string{
		`{}`, `{"login_id":"a","password":"b","accept_disclaimers":["c"],"captcha_response":null}`, `{"login_id":"a","login_id":"b"}`, `{"Login_ID":"a"}`,
		`{"login_id":"\ud800","password":"b"}`, `{"login_id":"\u0000","password":"b"}`, `{"login_id":"a","password":"b","x":{"y":[1,{"z":"\ud83d\ude00"}]}} `,
		`{"login_id":"a","password":"b"}x`, "{\"login_id\":\"\xff\"}", `{"login_id":"a",/**/"password":"b"}`, `{'login_id':'a','password':'b'}`, `{login_id:"a","password":"b"}`,
		`{"login_id":"\x61","password":"b"}`, `{"login_id":"a","password":"b","x":NaN}`, "{\"login_id\":\"a\n\",\"password\":\"b\"}", `{"login_id":"\udc00","password":"b"}`,
	} {
		f.Add([]byte(body), credentials)
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint8) {
		route := &Routes[int(n)%len(Routes)]
		req := reflect.New(route.run.request)
		if err := wire.Decode(body, req.Interface()); err != nil {
			var refused *wire.Refusal
			if !errors.As(err, &refused) || refused.Err != wire.ErrValidation || !said.MatchString(refused.Message) {
				t.Errorf("%s: %q: got %v", route.Path, body, err)
			}
			return
		}
		if len(body) > 0 {
			decoder := stdjson.NewDecoder(bytes.NewReader(body))
			decoder.UseNumber() // JSON's numbers have no bound
			if err := walk(decoder, route.Fields(), 0); !stdjson.Valid(body) || !utf8.Valid(body) || err != nil {
				t.Errorf("%s: %q: taken, though it is no JSON in UTF-8, or %v", route.Path, body, err)
			}
		}
		replaced := bytes.Contains(body, []byte("\ufffd")) || bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`))
		values := map[string]any{}
		for i, field := range route.Fields() {
			v := req.Elem().Field(i)
			if field.Required && v.IsZero() {
				t.Errorf("%s: %q: taken, though %s is missing", route.Path, body, field.Name)
			}
			var texts []string
			switch field.Kind {
			case reflect.String:
				texts = []string{v.String()}
			case reflect.Slice:
				texts = v.Interface().(wire.Codes)
			}
			for _, s := range texts {
				if field.Max > 0 && utf8.RuneCountInString(s) > field.Max || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
					t.Errorf("%s: %q: taken, though %s is %+q", route.Path, body, field.Name, s)
				}
				if strings.ContainsRune(s, utf8.RuneError) && !replaced {
					t.Errorf("%s: %q: taken, though it has half a surrogate", route.Path, body)
				}
			}
			if v.Kind() == reflect.Slice && v.Len() > field.MaxItems {
				t.Errorf("%s: %q: taken, though %s is long", route.Path, body, field.Name)
			}
			values[field.Name] = v.Interface()
			if v.Kind() == reflect.Slice && v.IsNil() {
				values[field.Name] = nil
			}
		}
		written, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(route.run.request)
		if err := wire.Decode(written, again.Interface()); err != nil {
			t.Fatalf("%s: %q, written as %q: %v", route.Path, body, written, err)
		}
		for i := range again.Elem().NumField() {
			a, b := req.Elem().Field(i), again.Elem().Field(i)
			if !reflect.DeepEqual(a.Interface(), b.Interface()) && (a.Kind() != reflect.Slice || a.Len()+b.Len() > 0) {
				t.Errorf("%s: %q became %v, written as %q %v", route.Path, body, req.Elem(), written, again.Elem())
			}
		}
	})
}
