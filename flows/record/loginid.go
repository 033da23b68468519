package record

import (
	"strings"
	"unicode"

	"github.com/mnemogate/mnemogate/flows/password"
	"golang.org/x/text/unicode/norm"
)

// NormalizeLoginID returns the one form under which a login id, of whichever
// kind, is kept and looked up: without regard to case and surrounding space
// (Unicode NFKC, case folded) and, if it is an international phone number,
// without spaces, dots, dashes and brackets and with + for 00.
func NormalizeLoginID(s string) string {
	s = fold(s)
	if phone := phoneDigits(s); phone != "" {
		return phone
	}
	return s
}

// NormalizePhone returns a phone number as E.164, or "" if s is none.
func NormalizePhone(s string) string { return phoneDigits(norm.NFKC.String(strings.TrimSpace(s))) }

// NormalizeLoginIDPart returns the form in which a part of a login id is found in
// normalised ones. One that looks like a part of a phone number, with a plus, spaces or
// brackets, is without the marks that such numbers are written with.
func NormalizeLoginIDPart(s string) string {
	s = fold(s)
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

// LoginIDs returns an account's login ids, normalised, by the name of their field.
func LoginIDs(a Account) map[string]string {
	ids := map[string]string{}
	for field, id := range map[string]string{
		"primary_phone": a.Phone,
		"primary_email": a.Email,
		"login_name":    a.LoginName,
	} {
		if id = NormalizeLoginID(id); id != "" {
			ids[field] = id
		}
	}
	return ids
}

// fold makes texts equal that a person takes for the same.
func fold(s string) string { return password.Fold(s) }

// FoldAnswer is fold with each run of spaces squeezed to one.
func FoldAnswer(s string) string { return strings.Join(strings.Fields(fold(s)), " ") }

// phoneDigits returns + and the digits of an international number of 7 to 15
// digits (ITU-T E.164), or "". Marks that nobody sees come along where a number
// is copied out of a list of contacts: they say that it is written left to right.
func phoneDigits(s string) string {
	s = strings.Map(func(r rune) rune {
		if r == '.' || unicode.In(r, unicode.White_Space, unicode.Dash, unicode.Ps, unicode.Pe, unicode.Cf) {
			return -1
		}
		return r
	}, s)
	digits, ok := strings.CutPrefix(s, "+")
	if !ok {
		digits, ok = strings.CutPrefix(s, "00")
	}
	if !ok || len(digits) < 7 || len(digits) > 15 || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return ""
	}
	return "+" + digits
}

// NormalizeBackupCode takes the code as people type it: with spaces and
// dashes, in any case.
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

// SameEmail compares byte for byte, but for the case of ASCII letters. Login ids
// are folded further, and that makes one of addresses which are several people's:
// faß.de and fass.de have different owners.
func SameEmail(a, b string) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range len(a) {
		if lowerASCII(a[i]) != lowerASCII(b[i]) {
			return false
		}
	}
	return true
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}
