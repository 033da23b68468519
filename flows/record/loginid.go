package record

import (
	"iter"
	"slices"
	"strings"
	"unicode"

	"github.com/nyaruka/phonenumbers"
	"golang.org/x/text/unicode/norm"

	"github.com/mnemogate/mnemogate/flows/password"
)

// NormalizeLoginID returns the form in which a login id of any kind is stored and
// looked up. It ignores case and surrounding space (Unicode NFKC, case folded). In an
// international phone number it also removes spaces, dots, dashes and brackets, and
// replaces a leading 00 with +.
func NormalizeLoginID(s string) string {
	s = password.Fold(s)
	if phone := phoneDigits(s); phone != "" {
		return phone
	}
	return s
}

// NormalizePhone returns a phone number as E.164, or "" if s is not one.
func NormalizePhone(s string) string { return phoneDigits(norm.NFKC.String(strings.TrimSpace(s))) }

// NationalPhone returns a phone number that is written as people dial it in a region
// (ISO 3166-1 alpha-2), without + and 00, as E.164. It returns "" if s is not a possible
// number there, by the rules of google/libphonenumber, or if region is empty.
func NationalPhone(s, region string) string {
	digits := strings.ReplaceAll(dialled(norm.NFKC.String(s)), "/", "")
	if region == "" || len(digits) < 4 || len(digits) > 20 || strings.HasPrefix(digits, "00") || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	number, err := phonenumbers.Parse(digits, region)
	if err != nil || phonenumbers.IsPossibleNumberWithReason(number) != phonenumbers.IS_POSSIBLE {
		return ""
	}
	return phoneDigits(phonenumbers.Format(number, phonenumbers.E164))
}

// IsRegion reports whether NationalPhone knows the numbers of a region.
func IsRegion(region string) bool { return phonenumbers.GetSupportedRegions()[region] }

// NormalizeLoginIDPart normalises a part of a login id, so that it can be found in
// normalised login ids. If the part looks like a piece of a phone number, with a plus,
// spaces or brackets, it removes spaces, brackets, dashes and dots.
func NormalizeLoginIDPart(s string) string {
	s = password.Fold(s)
	const digits, marks = "0123456789", "+() "
	if strings.ContainsAny(s, marks) && strings.ContainsAny(s, digits) && strings.Trim(s, digits+marks+"-.") == "" {
		return strings.Map(func(r rune) rune {
			if strings.ContainsRune("() -.", r) {
				return -1
			}
			return r
		}, s)
	}
	return s
}

// LoginIDs yields an account's normalised login ids, each after the name of its field. If
// several are taken, the first one is reported.
func LoginIDs(a Account) iter.Seq2[string, string] {
	return func(yield func(field, id string) bool) {
		for _, field := range [...]struct{ name, value string }{
			{"primary_phone", a.Phone},
			{"primary_email", a.Email},
			{"login_name", a.LoginName},
		} {
			if id := NormalizeLoginID(field.value); id != "" && !yield(field.name, id) {
				return
			}
		}
	}
}

// FoldAnswer folds like password.Fold, and replaces each run of spaces with one space.
func FoldAnswer(s string) string { return strings.Join(strings.Fields(password.Fold(s)), " ") }

// dialled returns a phone number without what people write between the digits. It also
// removes invisible formatting characters: numbers that are copied from a contact list
// often contain marks for left-to-right text.
func dialled(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '.' || unicode.In(r, unicode.White_Space, unicode.Dash, unicode.Ps, unicode.Pe, unicode.Cf) {
			return -1
		}
		return r
	}, s)
}

// phoneDigits returns + and the digits of an international number of 7 to 15 digits
// (ITU-T E.164), or "".
func phoneDigits(s string) string {
	s = dialled(s)
	digits, ok := strings.CutPrefix(s, "+")
	if !ok {
		digits, ok = strings.CutPrefix(s, "00")
	}
	if !ok || len(digits) < 7 || len(digits) > 15 || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return "+" + digits
}

// NormalizeBackupCode accepts a code as people type it: with spaces and dashes, in
// any case.
func NormalizeBackupCode(s string) string {
	return strings.NewReplacer(" ", "", "-", "").Replace(strings.ToUpper(s))
}

// MaskPhone keeps the first two and the last two digits of an E.164 number.
func MaskPhone(phone string) string {
	if len(phone) < 5 {
		return ""
	}
	return phone[:3] + strings.Repeat("*", len(phone)-5) + phone[len(phone)-2:]
}

// SameEmail reports whether two addresses differ at most in the case of ASCII letters.
// The folding of login ids would go too far: it makes faß.de and fass.de equal, which
// have different owners.
func SameEmail(a, b string) bool {
	return slices.EqualFunc([]byte(a), []byte(b), func(x, y byte) bool { return lowerASCII(x) == lowerASCII(y) })
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
