package typed

import (
	"net/mail"
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

var e164 = regexp.MustCompile(`^\+[1-9][0-9]{6,14}$`)

func FuzzPhone(f *testing.F) {
	for _, s := range []string{
		"+37060012345", "0037060012345", "+370 (600) 12-345", "＋３７０６００１２３４５", "+370.600.12345", "+0370600123", "+", "00", "+44 (0)20 7946 0958",
		"+123456", "+1234567890123456", "+370\u2011600\u201412345", "+37060012345x", " 00 370 600 12345 ", "+٣٧٠٦٠٠١٢٣٤٥", "+370²600", "+2630075898", "+49001701234567",
		"8 600 12345", "(8-600) 12345", "60012345", "061234567", "0170/5551234", "0600 12345", "2125551234", "1 (212) 555-1234", "011447911123456",
		"37060012345", "112", "0", "0011", "８６００１２３４５", "8600x2345", "+860012345", "015-12345678", "0 11 15 2345-6789", "tel:860012345", "860012345;ext=1",
	} {
		for _, region := range []string{"LT", "DE", "US", "AR", "IT", "BR", "RU", "SM", "GB", "ZW", "", "XX"} {
			f.Add(s, region)
		}
	}
	f.Fuzz(func(t *testing.T, s, region string) {
		phone := Phone(s, region)
		if phone == "" {
			return
		}
		if !e164.MatchString(phone) {
			t.Fatalf("%+q becomes %q", s, phone)
		}
		// However the number is written, it stays the same.
		for _, again := range []string{phone, phone[:3] + " (" + phone[3:5] + ") - " + phone[5:], "00" + phone[1:], "\t" + phone + "\u3000"} {
			if got := Phone(again, region); got != phone {
				t.Errorf("%+q becomes %q, and %+q becomes %q", s, phone, again, got)
			}
		}
		if got := Phone(phone, ""); got != phone {
			t.Errorf("%+q becomes %q, and without the region %q", s, phone, got)
		}
		if id := LoginID(s, region); id != phone {
			t.Errorf("%+q is the phone %q and the login id %+q", s, phone, id)
		}
		digits := dialled(s)
		if !strings.HasSuffix(phone, digits[len(digits)-4:]) {
			t.Errorf("%+q, with the digits %s, becomes %q", s, digits, phone)
		}
		if dialled := Phone(digits, region); dialled != phone {
			t.Errorf("%+q becomes %q, and dialled %q", s, phone, dialled)
		}
	})
}

func FuzzEmail(f *testing.F) {
	for _, s := range []string{
		"alice@example.com", "taro..yamada@docomo.ne.jp", "hanako.@docomo.ne.jp", `"taro..yamada"@docomo.ne.jp`, "ü@bücher.example", "a@xn--bcher-kva.example",
		"ａｌｉｃｅ＠ｅｘａｍｐｌｅ．ｃｏｍ", "a@example。com", "a@faß.de", "a@xn--fa-hia.de", "a@xn--a.example", "a@xn--xn---epa.example", "\"a\\\"b\"@c.de", "a@\u0130.example", "(a)@b",
		"a@\u200d.example", "x\u200cn--a@x\u200cn--a.example", "ali\u200bce@exam\u00adple.com", "a@xn--ls8h.la", "A@B", "a\u0345@\u1e9e.de", "a@נּ.example",
		"a@نامه\u200cای.example", "\u200d\"a..b\"@ශ්\u200dරී.example \u200c",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // no body can contain it
		}
		email, id := Email(s), LoginID(s, "")
		if again := LoginID(id, ""); again != id {
			t.Errorf("%+q is the login id %+q and then %+q", s, id, again)
		}
		if email == "" {
			return
		}
		if again := Email(email); again != email {
			t.Errorf("%+q is stored as %+q and then as %+q", s, email, again)
		}
		if other := LoginID(email, ""); other != id {
			t.Errorf("%+q is the login id %+q, and stored as %+q it is %+q", s, id, email, other)
		}
		parsed, err := mail.ParseAddress(Sendable(email))
		if err != nil || parsed.Name != "" || parsed.Address != email {
			t.Fatalf("%+q is stored as %+q and sent to %+q, which is read as %v, %v", s, email, Sendable(email), parsed, err)
		}
		ascii, err := ASCIIDomain(email)
		if err != nil {
			t.Fatalf("%+q is stored as %+q: %v", s, email, err)
		}
		if other := LoginID(ascii, ""); other != id {
			t.Errorf("%+q is the login id %+q, and with the domain in ASCII, %+q, it is %+q", s, id, ascii, other)
		}
	})
}

func FuzzControlAnswer(f *testing.F) {
	for _, s := range []string{"Whiskers", "  the\tBLACK\u00a0 cat ", "Straße", "ΌΣΟΣ", "ﬁn", "İ", "Ꭰꭰ", "\u1e9e", "\u0345α", "㎏", "\u2028", "\ufdfa", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if !utf8.ValidString(s) {
			return // no body can contain it
		}
		folded := Answer(s)
		if again := Answer(folded); again != folded {
			t.Errorf("%+q becomes %+q and then %+q", s, folded, again)
		}
		if folded != strings.TrimFunc(folded, unicode.IsSpace) || strings.Contains(folded, "  ") {
			t.Errorf("%+q becomes %+q, with space that says nothing", s, folded)
		}
		spaced := " " + strings.Join(strings.FieldsFunc(s, unicode.IsSpace), "\u00a0\t ") + "\u3000"
		if other := Answer(spaced); other != folded {
			t.Errorf("%+q becomes %+q, in other spaces %+q", s, folded, other)
		}
		wantBounded(t, s, folded)
	})
}

// wantBounded checks that a text does not grow by more than Unicode's longest
// compatibility decomposition: 3 bytes become 18 characters of 3 bytes each.
func wantBounded(t *testing.T, from, to string) {
	t.Helper()
	if len(to) > 18*len(from) {
		t.Errorf("%+q, of %d bytes, has become %d", from, len(from), len(to))
	}
}

func FuzzCode(f *testing.F) {
	for _, s := range []string{
		"123456", "123 456", "１２３４５６", "۱۲۳۴۵۶", "𝟙𝟚𝟛𝟜𝟝𝟞", "12\u200b34–56\n", "½23456", "12345६", "ABCDE23456", "abcde-23456", " ab cd-e2 34-56 ", "---", "ABCDE‐23456", "ıſ", "ŉ", "ABCDE23456\u0000", "\xff",
	} {
		f.Add(s)
	}
	asciiDigits := regexp.MustCompile(`^[0-9]{6}$`)
	f.Fuzz(func(t *testing.T, s string) {
		for _, read := range []func(string) (string, bool){func(s string) (string, bool) { return OTP(s, 6) }, BackupCode} {
			code, ok := read(s)
			if again, still := read(code); ok && (again != code || !still) {
				t.Errorf("%+q becomes %+q and then %+q", s, code, again)
			}
			if other, still := read("–" + strings.Join(strings.Split(s, ""), " ") + "\u200b"); ok && (other != code || !still) {
				t.Errorf("%+q becomes %+q, in groups %+q", s, code, other)
			}
		}
		if code, ok := OTP(s, 6); ok != asciiDigits.MatchString(code) {
			t.Errorf("%+q becomes %+q, which is a code: %v", s, code, ok)
		}
		wantBounded(t, s, plain(s))
	})
}

func FuzzToken(f *testing.F) {
	f.Add("mgl_AbC\r\n d\u3000")
	f.Fuzz(func(t *testing.T, s string) {
		if token := Token(s); strings.ContainsFunc(token, unicode.IsSpace) || Token(" "+s+"\n") != token {
			t.Errorf("%+q becomes %+q", s, token)
		}
	})
}
