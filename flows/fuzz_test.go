package flows

import (
	"encoding/base64"
	"errors"
	"net/netip"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
)

// A target that a file is named after is in that file's tests; here is the rest.

var (
	e164    = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)
	noDigit = regexp.MustCompile(`[^0-9]`)
)

func FuzzPhone(f *testing.F) {
	for _, s := range []string{
		"+37060012345", "0037060012345", "+370 (600) 12-345", "＋３７０６００１２３４５", "+370.600.12345", "+0370600123", "+", "00",
		"+123456", "+1234567890123456", "+370\u2011600\u201412345", "+37060012345x", " 00 370 600 12345 ", "+٣٧٠٦٠٠١٢٣٤٥", "+370²600",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		phone := record.NormalizePhone(s)
		masked := maskPhone(phone)
		if phone == "" {
			if masked != "" {
				t.Errorf("no phone is masked as %q", masked)
			}
			return
		}
		if !e164.MatchString(phone) {
			t.Fatalf("%+q becomes %q", s, phone)
		}
		if again := record.NormalizePhone(phone); again != phone {
			t.Errorf("%+q becomes %q and then %q", s, phone, again)
		}
		// No digit is lost, added or moved: two numbers never become one.
		given := strings.TrimPrefix(noDigit.ReplaceAllString(password.Normalize(s), ""), "00")
		if given != phone[1:] {
			t.Errorf("%+q, with the digits %s, becomes %q", s, given, phone)
		}
		if id := record.NormalizeLoginID(s); id != phone {
			t.Errorf("%+q is the phone %q and the login id %+q", s, phone, id)
		}
		spread := phone[:3] + " (" + phone[3:5] + ") - " + phone[5:]
		for _, other := range []string{spread, "00" + spread[1:], "\t" + phone + "\u3000"} {
			if got := record.NormalizePhone(other); got != phone {
				t.Errorf("%+q becomes %q, want %q", other, got, phone)
			}
		}
		if len(masked) != len(phone) || masked[:3] != phone[:3] || masked[len(masked)-2:] != phone[len(phone)-2:] ||
			strings.Trim(masked[3:len(masked)-2], "*") != "" {
			t.Errorf("%q is masked as %q", phone, masked)
		}
	})
}

func FuzzControlAnswer(f *testing.F) {
	for _, s := range []string{"Whiskers", "  the\tBLACK\u00a0 cat ", "Straße", "ΌΣΟΣ", "ﬁn", "İ", "Ꭰꭰ", "\u1e9e", "\u0345α", "㎏", "\u2028", "\ufdfa", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // no body can hold it
		}
		folded := record.FoldAnswer(s)
		if again := record.FoldAnswer(folded); again != folded {
			t.Errorf("%+q becomes %+q and then %+q", s, folded, again)
		}
		if folded != strings.TrimFunc(folded, unicode.IsSpace) || strings.Contains(folded, "  ") {
			t.Errorf("%+q becomes %+q, with space that says nothing", s, folded)
		}
		spaced := " " + strings.Join(strings.FieldsFunc(s, unicode.IsSpace), "\u00a0\t ") + "\u3000"
		if other := record.FoldAnswer(spaced); other != folded {
			t.Errorf("%+q becomes %+q, in other spaces %+q", s, folded, other)
		}
		wantBounded(t, s, folded)
		if normal := password.Normalize(s); password.Normalize(normal) != normal {
			t.Errorf("the password %+q becomes %+q and then another", s, normal)
		}
		wantBounded(t, s, password.Normalize(s))
	})
}

// wantBounded checks that a text has not grown by more than Unicode's longest
// compatibility decomposition: 18 characters of 3 bytes each for one of 3.
func wantBounded(t *testing.T, from, to string) {
	t.Helper()
	if len(to) > 18*len(from) {
		t.Errorf("%+q, of %d bytes, has become %d", from, len(from), len(to))
	}
}

func FuzzBackupCode(f *testing.F) {
	for _, s := range []string{"ABCDE23456", "abcde-23456", " ab cd-e2 34-56 ", "---", "ABCDE‐23456", "ıſ", "ŉ", "ABCDE23456\u0000", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		code := record.NormalizeBackupCode(s)
		if again := record.NormalizeBackupCode(code); again != code {
			t.Errorf("%+q becomes %+q and then %+q", s, code, again)
		}
		if strings.ContainsAny(code, " -") {
			t.Errorf("%+q becomes %+q", s, code)
		}
		if utf8.RuneCountInString(code) > utf8.RuneCountInString(s) {
			t.Errorf("%+q becomes %+q, which is longer", s, code)
		}
		if other := record.NormalizeBackupCode("-" + strings.Join(strings.Split(s, ""), " ") + " "); utf8.ValidString(s) && other != code {
			t.Errorf("%+q becomes %+q, in groups %+q", s, code, other)
		}
		if strings.ContainsAny(s, "-") && strings.Trim(s, "-") == "" && code != "" {
			t.Errorf("%+q becomes %+q", s, code)
		}
	})
}

func FuzzAddressRanges(f *testing.F) {
	for _, s := range []string{
		"192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1", "2001:DB8:0:0:1::2", "fe80::1%eth0", "::1", "@", "", "192.0.2.1:80", "[::1]", "::ffff:c000:201%x", "192.0.2.01",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		narrow, wide := addressRanges(s)
		for _, key := range []string{narrow, wide} {
			if again, _ := addressRanges(key); again != key {
				t.Errorf("%q is counted as %q, that as %q", s, key, again)
			}
		}
		ip, err := netip.ParseAddr(s)
		if err != nil {
			if narrow != s || wide != s {
				t.Errorf("%q, no address, is counted as %q and %q", s, narrow, wide)
			}
			return
		}
		if v4 := ip.Unmap().WithZone("").String(); ip.Unmap().Is4() && (narrow != v4 || wide != v4) {
			t.Errorf("%q is counted as %q and %q", s, narrow, wide)
		}
		spellings := func(ip netip.Addr, what string, want func(n, w string) bool) {
			for _, other := range []string{ip.String(), ip.StringExpanded(), ip.WithZone("eth1").String(), ip.Unmap().String()} {
				if n, w := addressRanges(other); !want(n, w) {
					t.Errorf("%q is counted as %q and %q, but %q, %s, as %q and %q", s, narrow, wide, other, what, n, w)
				}
			}
		}
		bytes := ip.As16()
		if ip.Unmap().Is4() {
			spellings(ip, "the same", func(n, w string) bool { return n == narrow && w == wide })
			return
		}
		change := func(i int, what string, want func(n, w string) bool) {
			bytes[i]++
			if other := netip.AddrFrom16(bytes); !other.Unmap().Is4() {
				spellings(other, what, want)
			}
		}
		change(15, "of its /64", func(n, w string) bool { return n == narrow && w == wide })
		change(7, "of its /48", func(n, w string) bool { return n != narrow && w == wide })
		change(5, "of another /48", func(n, w string) bool { return n != narrow && w != wide })
	})
}

// A token has one spelling: any other of the same bytes is none.
func FuzzTokenShape(f *testing.F) {
	token, _ := newToken(tokenPrefix, 0)
	for _, s := range []string{token, token[:46] + "B", token + "=", "MGS_" + token[4:], "mgl_" + token[4:], "mgs_" + strings.Repeat("+", 43), "mgs_" + strings.Repeat("\n", 43), ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !tokenShaped(tokenPrefix, s) {
			return
		}
		b, err := base64.RawURLEncoding.DecodeString(s[len(tokenPrefix):])
		if err != nil || tokenPrefix+base64.RawURLEncoding.EncodeToString(b) != s {
			t.Errorf("%q is taken for a token", s)
		}
		if got, err := ParseBearer([]string{"Bearer " + s}); err != nil || got != s {
			t.Errorf("%q is a token that no header can carry: %q, %v", s, got, err)
		}
	})
}

// said are the messages about bodies. All else in them would be the sender's.
var said = regexp.MustCompile(`^(The field [a-z_]+ (must be spelled exactly so|is missing or empty|is longer than \d+ characters|has more than \d+ elements|has the wrong type)\.` +
	`|The body contains a NUL character\.|The body has the same key twice\.|The body must be one JSON object.*\.` +
	`|Each element of [a-z_]+ must have 1 to \d+ characters\.)$`)

// FuzzEveryBody decodes a body for a route: what is taken is within the limits
// and means the same when it is written anew.
func FuzzEveryBody(f *testing.F) {
	for i, body := range []string{
		`{"login_id":"a"}`, `{"password":"b","captcha_response":"c","accept_disclaimers":["d","e"]}`, `{"otp":"123456"}`, `{"backup_code":null,"otp":"1"}`, ``,
		`{"new_password":"\u0007 \ud83d\ude00"}`, `{"login_id":"a","password":"b"}`, `{"provider_id":1,"code":"c","redirect_uri":"r","nonce":""}`,
		`{"provider_id":1.0}`, `{"provider_id":1e0}`, `{"provider_id":"1"}`, `{"provider_id":99999999999999999999}`, `{"accept_disclaimers":{}}`, `{"x":[[[[[[[[]]]]]]]]}`,
		`{"method":"PHONE","login_id":"a","captcha_response":"b"}`, `{"token":"t"}`, `{"control_answer":"x"}`, `{"A":1,"a":1}`, "\ufeff{}", `{"login_id":"a"} {}`,
	} {
		f.Add([]byte(body), uint8(i))
	}
	f.Fuzz(func(t *testing.T, body []byte, n uint8) {
		route := &Routes[int(n)%len(Routes)]
		req := reflect.New(route.run.request)
		if err := decode(body, req.Interface()); err != nil {
			var refused *Refusal
			if !errors.As(err, &refused) || refused.Err != ErrValidation || !said.MatchString(refused.Message) {
				t.Errorf("%s: %q: got %v", route.Path, body, err)
			}
			return
		}
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
				texts = v.Interface().([]string)
			}
			for _, s := range texts {
				if field.Max > 0 && utf8.RuneCountInString(s) > field.Max || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
					t.Errorf("%s: %q: taken, though %s is %+q", route.Path, body, field.Name, s)
				}
			}
			if v.Kind() == reflect.Slice && v.Len() > field.MaxItems {
				t.Errorf("%s: %q: taken, though %s is long", route.Path, body, field.Name)
			}
			values[field.Name] = v.Interface()
		}
		written, err := json.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		again := reflect.New(route.run.request)
		if err := decode(written, again.Interface()); err != nil {
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

// FuzzNewPassword judges passwords: a bad one is refused in whatever case, and
// with what the account is called in front of it.
func FuzzNewPassword(f *testing.F) {
	for _, s := range []string{"", "password", "PassWord1", "correct horse battery", "alice@example.com", "Alice.Example-2026", "+370 600 12345", "acmeacme!", "60012345", "ﬀﬀﬀﬀﬀﬀﬀﬀ", "\u0130\u0130\u0130\u0130\u0130\u0130\u0130\u0130"} {
		f.Add(s)
	}
	policy := DefaultPolicy()
	policy.Password.Regex = regexp.MustCompile(`[^0]`)
	company := &Company{Code: "acme", Policy: policy}
	alice := record.Account{Mnemocode: "alice-0001", Email: "alice@example.com", Phone: "+37060012345", LoginName: "Alice the First"}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) || utf8.RuneCountInString(s) > 128 {
			return
		}
		wanted := password.Normalize(s)
		err := company.checkQuality(wanted, alice)
		if err != nil {
			var refused *Refusal
			if !errors.As(err, &refused) || refused.Err != ErrQuality || len(s) > 16 && strings.Contains(refused.Message, s) {
				t.Errorf("%+q: got %v", s, err)
			}
		}
		if err == nil && utf8.RuneCountInString(wanted) < policy.Password.MinLength {
			t.Errorf("%+q is taken", s)
		}
		upper := strings.Map(func(r rune) rune {
			if 'a' <= r && r <= 'z' {
				r -= 'a' - 'A'
			}
			return r
		}, wanted)
		if other := company.checkQuality(upper, alice); (other == nil) != (err == nil) {
			t.Errorf("%+q: %v, in capitals %v", s, err, other)
		}
		if strings.Trim(s, "0123456789!") == "" && len(s) <= password.MaxExtra {
			for _, word := range []string{"alice@example.com", "37060012345", "Alice the First", "ALICE-0001"} {
				if company.checkQuality(word+s, alice) == nil || company.checkQuality(s+word, alice) == nil {
					t.Errorf("%q is taken with %q at an end", word, s)
				}
			}
		}
	})
}
