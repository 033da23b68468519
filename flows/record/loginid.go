package record

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/mnemogate/mnemogate/flows/typed"
)

// HasLoginID reports whether a login id finds the account.
func (a Account) HasLoginID() bool { return a.Phone != "" || a.Email != "" || a.LoginName != "" }

// LoginIDs yields an account's normalised login ids, each after the name of its field. If
// several are taken, the first one is reported. A login name that a login in PhoneRegion
// reads as a phone also takes that phone, so that no other account can have it.
func LoginIDs(a Account) iter.Seq2[string, string] {
	return func(yield func(field, id string) bool) {
		for _, id := range [...]struct{ field, id string }{
			{"primary_phone", a.Phone},
			{"primary_email", typed.LoginID(a.Email, "")},
			{"login_name", typed.LoginID(a.LoginName, "")},
			{"login_name", typed.Phone(a.LoginName, a.PhoneRegion)},
		} {
			if id.id != "" && !yield(id.field, id.id) {
				return
			}
		}
	}
}

// SameLoginIDs reports whether a change leaves an account's login ids alone. They then
// stay as they are stored, even if they would be normalised in another way today.
func SameLoginIDs(before, after Account) bool {
	return before.Phone == after.Phone && before.Email == after.Email && before.LoginName == after.LoginName
}

// MaskPhone keeps the first two and the last two digits of an E.164 number.
func MaskPhone(phone string) string {
	if len(phone) < 5 {
		return ""
	}
	return phone[:3] + strings.Repeat("*", len(phone)-5) + phone[len(phone)-2:]
}

// ScreenName returns what the owner of an account may be called on a screen: the email, else
// the login name, else the masked phone.
func (a Account) ScreenName() string { return cmp.Or(a.Email, a.LoginName, MaskPhone(a.Phone)) }

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
