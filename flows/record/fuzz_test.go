package record

import (
	"regexp"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/password"
)

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
		phone := NormalizePhone(s)
		masked := MaskPhone(phone)
		if phone == "" {
			if masked != "" {
				t.Errorf("no phone is masked as %q", masked)
			}
			return
		}
		if !e164.MatchString(phone) {
			t.Fatalf("%+q becomes %q", s, phone)
		}
		if again := NormalizePhone(phone); again != phone {
			t.Errorf("%+q becomes %q and then %q", s, phone, again)
		}
		// No digit is lost, added or moved, so two numbers never become one.
		given := strings.TrimPrefix(noDigit.ReplaceAllString(password.Normalize(s), ""), "00")
		if given != phone[1:] {
			t.Errorf("%+q, with the digits %s, becomes %q", s, given, phone)
		}
		if id := NormalizeLoginID(s); id != phone {
			t.Errorf("%+q is the phone %q and the login id %+q", s, phone, id)
		}
		spread := phone[:3] + " (" + phone[3:5] + ") - " + phone[5:]
		for _, other := range []string{spread, "00" + spread[1:], "\t" + phone + "\u3000"} {
			if got := NormalizePhone(other); got != phone {
				t.Errorf("%+q becomes %q, want %q", other, got, phone)
			}
		}
		if len(masked) != len(phone) || masked[:3] != phone[:3] || masked[len(masked)-2:] != phone[len(phone)-2:] ||
			strings.Trim(masked[3:len(masked)-2], "*") != "" {
			t.Errorf("%q is masked as %q", phone, masked)
		}
	})
}

func FuzzNationalPhone(f *testing.F) {
	for _, s := range []string{
		"8 600 12345", "(8-600) 12345", "60012345", "061234567", "0170/5551234", "0600 12345", "2125551234", "1 (212) 555-1234", "011447911123456",
		"37060012345", "112", "0", "0011", "８６００１２３４５", "8600x2345", "+860012345", "015-12345678", "0 11 15 2345-6789", "tel:860012345", "860012345;ext=1",
	} {
		for _, region := range []string{"LT", "DE", "US", "AR", "IT", "BR", "RU", "SM", "GB", "", "XX"} {
			f.Add(s, region)
		}
	}
	f.Fuzz(func(t *testing.T, s, region string) {
		phone := NationalPhone(s, region)
		if phone == "" {
			return
		}
		if !IsRegion(region) {
			t.Errorf("%+q is %q in the region %q, which does not exist", s, phone, region)
		}
		if !e164.MatchString(phone) || NormalizePhone(phone) != phone {
			t.Fatalf("%+q becomes %q", s, phone)
		}
		if other := NormalizePhone(s); other != "" {
			t.Errorf("%+q is the international number %q and, in %s, %q", s, other, region, phone)
		}
		if again := NationalPhone(phone, region); again != "" {
			t.Errorf("%q, from %+q, is read again as %q", phone, s, again)
		}
		given := noDigit.ReplaceAllString(password.Normalize(s), "")
		if !strings.HasSuffix(phone, given[len(given)-4:]) {
			t.Errorf("%+q, with the digits %s, becomes %q", s, given, phone)
		}
		if spread := NationalPhone(" ("+given[:2]+") "+given[2:3]+"-"+given[3:]+"\u00a0", region); spread != phone {
			t.Errorf("%+q becomes %q, and spread %q", s, phone, spread)
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
		folded := FoldAnswer(s)
		if again := FoldAnswer(folded); again != folded {
			t.Errorf("%+q becomes %+q and then %+q", s, folded, again)
		}
		if folded != strings.TrimFunc(folded, unicode.IsSpace) || strings.Contains(folded, "  ") {
			t.Errorf("%+q becomes %+q, with space that says nothing", s, folded)
		}
		spaced := " " + strings.Join(strings.FieldsFunc(s, unicode.IsSpace), "\u00a0\t ") + "\u3000"
		if other := FoldAnswer(spaced); other != folded {
			t.Errorf("%+q becomes %+q, in other spaces %+q", s, folded, other)
		}
		wantBounded(t, s, folded)
		if normal := password.Normalize(s); password.Normalize(normal) != normal {
			t.Errorf("the password %+q becomes %+q and then another", s, normal)
		}
		wantBounded(t, s, password.Normalize(s))
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

func FuzzBackupCode(f *testing.F) {
	for _, s := range []string{"ABCDE23456", "abcde-23456", " ab cd-e2 34-56 ", "---", "ABCDE‐23456", "ıſ", "ŉ", "ABCDE23456\u0000", "\xff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		code := NormalizeBackupCode(s)
		if again := NormalizeBackupCode(code); again != code {
			t.Errorf("%+q becomes %+q and then %+q", s, code, again)
		}
		if strings.ContainsAny(code, " -") {
			t.Errorf("%+q becomes %+q", s, code)
		}
		if utf8.RuneCountInString(code) > utf8.RuneCountInString(s) {
			t.Errorf("%+q becomes %+q, which is longer", s, code)
		}
		if other := NormalizeBackupCode("-" + strings.Join(strings.Split(s, ""), " ") + " "); utf8.ValidString(s) && other != code {
			t.Errorf("%+q becomes %+q, in groups %+q", s, code, other)
		}
		if strings.ContainsAny(s, "-") && strings.Trim(s, "-") == "" && code != "" {
			t.Errorf("%+q becomes %+q", s, code)
		}
	})
}
