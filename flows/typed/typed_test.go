package typed

import (
	"testing"

	"github.com/nyaruka/phonenumbers"
)

func TestPhones(t *testing.T) {
	for _, c := range []struct{ typed, region, want string }{
		{"+44 (0)20 7946 0958", "", "+442079460958"}, // people write the zero for callers at home
		{"+49 (0)170 1234567", "", "+491701234567"},
		{"+4402079460958", "", "+442079460958"},
		{"0044 20 7946 0958", "", "+442079460958"},
		{"+39 06 6982 1234", "", "+390669821234"}, // Italy keeps the zero
		{"+54 9 11 2345-6789", "", "+5491123456789"},
		{"(+370) 600/12.345", "", "+37060012345"},
		{"＋３７０６００１２３４５", "", "+37060012345"},
		{"+٣٧٠٦٠٠١٢٣٤٥", "", "+37060012345"},
		{"\u2068\u200e+370\u00a0600\u2011123\u200b45\u2069\n", "", "+37060012345"},
		{"+3706001234", "", ""}, // no such number in Lithuania
		{"+370600123456", "", ""},
		{"+999000123456", "", ""}, // no such country
		{"+1 555 1234", "", ""},   // dialled within its area only
		{"+37060012345x", "", ""},
		{"+370+60012345", "", ""},
		{"+", "", ""},
		{"00", "", ""},
		{"+263 00 75898", "", "+26375898"}, // the same number in every spelling
		{"+2630075898", "", "+26375898"},

		{"8 600 12345", "LT", "+37060012345"},
		{"(0-600) 12345", "LT", "+37060012345"},
		{"60012345", "LT", "+37060012345"},
		{"37060012345", "LT", "+37060012345"},
		{"0170/555 1234", "DE", "+491705551234"},
		{"06 12 34 56 78", "FR", "+33612345678"},
		{"(212) 555-1234", "US", "+12125551234"},
		{"011 44 7911 123456", "US", "+447911123456"},
		{"０９０ー１２３４ー５６７８", "JP", "+819012345678"}, // the dash of a Japanese keyboard
		{"090ｰ1234ｰ5678", "JP", "+819012345678"},
		{"06 1234 5678", "IT", "+390612345678"},
		{"８６００１２３４５", "LT", "+37060012345"},
		{"+370 600 12345", "DE", "+37060012345"},
		{"00370 600 12345", "US", "+37060012345"},
		{"8 600 12345", "", ""},
		{"112", "LT", ""},
		{"1234567890123", "LT", ""},
		{"8600-12345-anna", "LT", ""},
		{"1-800-FLOWERS", "US", ""},
		{"212 555 1234 ext. 5", "US", ""},
		{"tel:2125551234", "US", ""},
		{"1701234567.0", "DE", ""}, // a column of floats
		{"\u200e1701234567.0", "DE", ""},
		{"1701234567.0 ", "DE", ""},
		{"１７０１２３４５６７．０", "DE", ""},
		{"170.123.456.70", "DE", "+4917012345670"},
		{"", "LT", ""},
	} {
		if got := Phone(c.typed, c.region); got != c.want {
			t.Errorf("%q in %q: got %q, want %q", c.typed, c.region, got, c.want)
		}
	}
}

// A spreadsheet drops the plus. Numbers as people write them in their country, and with the
// plus, stay unambiguous.
func TestPhonesThatMayBeTwo(t *testing.T) {
	for _, c := range []struct {
		typed, region string
		want          bool
	}{
		{"491701234567", "DE", true}, // a mobile, or in Leer
		{"49 1512 3456789", "DE", true},
		{"495424 99405", "DE", true},
		{"461336946", "SE", true},
		{"0491 701234567", "DE", false},
		{"0049 170 1234567", "DE", false},
		{"+491701234567", "DE", false},
		{"491701234567", "", false},
		{"49301234567", "DE", false}, // both are the same
		{"37060012345", "LT", false},
		{"3908038564", "IT", false}, // a mobile; without a 0, +39 08038564 is none
		{"53487742", "CU", false},
		{"x", "DE", false},
	} {
		if got := IsAmbiguous(c.typed, c.region); got != c.want {
			t.Errorf("%q in %q: %v", c.typed, c.region, got)
		}
	}
	for region := range phonenumbers.GetSupportedRegions() {
		for kind := phonenumbers.FIXED_LINE; kind <= phonenumbers.VOICEMAIL; kind++ {
			example := phonenumbers.GetExampleNumberForType(region, kind)
			if example == nil {
				continue
			}
			for _, typed := range []string{phonenumbers.Format(example, phonenumbers.NATIONAL), phonenumbers.Format(example, phonenumbers.INTERNATIONAL), phonenumbers.GetNationalSignificantNumber(example)} {
				if IsAmbiguous(typed, region) {
					t.Errorf("%q in %q: true", typed, region)
				}
			}
		}
	}
}

func TestBeginningsOfPhones(t *testing.T) {
	for typed, want := range map[string]string{
		"+370": "+370", "00370": "+370", "＋３７０": "+370", "+1 (876)": "+1876", "+1-876": "+1876", "370": "", "+0": "", "+": "", "all": "", "+37060012345": "", "+999": "", "+3": "+3", "+3706": "+3706",
	} {
		if got := PhonePrefix(typed); got != want {
			t.Errorf("%q: got %q, want %q", typed, got, want)
		}
	}
}

// What is stored can be sent to. want is the form that is stored, sent the one in which a
// mail goes there.
func TestEmails(t *testing.T) {
	for _, c := range []struct{ typed, want, sent string }{
		{"alice@example.com", "alice@example.com", "alice@example.com"},
		{" Alice@Example.COM\n", "Alice@Example.COM", "Alice@example.com"},
		{"taro..yamada@docomo.ne.jp", "taro..yamada@docomo.ne.jp", `"taro..yamada"@docomo.ne.jp`},
		{"hanako.@docomo.ne.jp", "hanako.@docomo.ne.jp", `"hanako."@docomo.ne.jp`},
		{`"taro..yamada"@docomo.ne.jp`, "taro..yamada@docomo.ne.jp", `"taro..yamada"@docomo.ne.jp`},
		{"a(b)@example.com", "a(b)@example.com", `"a(b)"@example.com`},
		{"ａｌｉｃｅ＠ｅｘａｍｐｌｅ．ｃｏｍ", "alice@example.com", "alice@example.com"},
		{"ali\u200bce@exam\u00adple.com\ufeff", "alice@example.com", "alice@example.com"},
		{"ü@bücher.example", "ü@bücher.example", "ü@xn--bcher-kva.example"},
		{"a@xn--bcher-kva.example", "a@xn--bcher-kva.example", "a@xn--bcher-kva.example"},
		{"a@例え。テスト", "a@例え.テスト", "a@xn--r8jz45g.xn--zckzah"},
		{"a@b｡example", "a@b.example", "a@b.example"},
		{"a\u200c@نامه\u200cای.example", "a@نامه\u200cای.example", "a@xn--mgba3gch31f060k.example"}, // not xn--mgba3gch31f.example
		{"a@نامهای.example", "a@نامهای.example", "a@xn--mgba3gch31f.example"},
		{"a@ශ්\u200dරී.example", "a@ශ්\u200dරී.example", "a@xn--10cl1a0b660p.example"},
		{"a@exam\u200cple.com\u200d ", "a@example.com", "a@example.com"},
		{"a@r3---sn.example", "a@r3---sn.example", "a@r3---sn.example"},
		{"a@localhost", "a@localhost", "a@localhost"},
		{"Alice <alice@example.com>", "", ""},
		{"alice@example.com, bob@example.com", "", ""},
		{`"a b"@example.com`, "", ""},
		{"a b@example.com", "", ""},
		{"a\u1680b@example.com", "", ""},
		{"alice@exam_ple.com", "", ""},
		{"alice@-example.com", "", ""},
		{"alice@example..com", "", ""},
		{"alice@example.com.", "", ""},
		{"alice@xn--a.example", "", ""},
		{"alice@[192.0.2.1]", "", ""},
		{"alice@bob@example.com", "", ""},
		{"alice@", "", ""},
		{"@example.com", "", ""},
		{"alice", "", ""},
		{"", "", ""},
	} {
		got := Email(c.typed)
		if got != c.want {
			t.Errorf("%q is stored as %q, want %q", c.typed, got, c.want)
		}
		if got == "" {
			continue
		}
		if ascii, err := ASCIIDomain(Sendable(got)); err != nil || ascii != c.sent {
			t.Errorf("mail to %q goes to %q, %v, want %q", c.typed, ascii, err, c.sent)
		}
	}
}

func TestCodes(t *testing.T) {
	for _, typed := range []string{
		"123456", "123 456", "１２３４５６", "۱۲۳۴۵۶", "१२३४५६", "𝟙𝟚𝟛𝟜𝟝𝟞", "123456\n", "123\u00a0456", "\u200b123456\ufeff", "123–456", "1-2-3-4-5-6", "①②③④⑤⑥",
	} {
		if digits, ok := OTP(typed, 6); !ok || digits != "123456" {
			t.Errorf("%q is read as %q", typed, digits)
		}
	}
	for _, typed := range []string{"", " ", "12345", "1234567", "12345a", "123.456", "+123456", "½23456", "123\ufff9456"} {
		if digits, ok := OTP(typed, 6); ok {
			t.Errorf("%q is read as %q", typed, digits)
		}
	}
	for _, typed := range []string{"ABCDE-FGH27", "abcde–fgh27", "ａｂｃｄｅ ｆｇｈ２７", "ab cd ef gh 27\n", "ABCDE\u200bFGH٢٧"} {
		if code, ok := BackupCode(typed); !ok || code != "ABCDEFGH27" {
			t.Errorf("%q is read as %q", typed, code)
		}
	}
	for _, typed := range []string{"", "ABCDEFGH2", "ABCDEFGH277", "ABCDEFGH01", "ABCDE_FGH27"} {
		if code, ok := BackupCode(typed); ok {
			t.Errorf("%q is read as %q", typed, code)
		}
	}
}

func TestAPartOfALoginIDIsFoundInItsNormalForm(t *testing.T) {
	for part, want := range map[string]string{
		"EXAMPLE.com":    "example.com",
		" Müller ":       "müller",
		"+370 600":       "+370600",
		"600 12":         "60012",
		"(600) 12-34":    "6001234",
		"2026-11":        "2026-11", // may also be a login name
		"user 12":        "user 12",
		"john.o'neill +": "john.o'neill +",
		"":               "",
		"  ":             "",
		"\u200b":         "",
	} {
		if got := LoginIDPart(part); got != want {
			t.Errorf("%q: got %q, want %q", part, got, want)
		}
	}
}
