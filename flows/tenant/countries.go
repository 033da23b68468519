package tenant

import (
	"strings"

	"github.com/mnemogate/mnemogate/flows/message"
)

// AllCountries is the only entry of SMSCountries in a company that lifts the
// restriction of its app.
const AllCountries = "all"

// shortCodes are the calling codes of one and two digits. All others have three. No
// calling code is a prefix of another (ITU-T E.164).
const shortCodes = " 1 7 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 " +
	"60 61 62 63 64 65 66 81 82 84 86 90 91 92 93 94 95 98 "

// CallingCode returns the calling code of a phone, with its plus. There are fewer than
// a thousand.
func CallingCode(phone string) string {
	for n := 2; n <= 3 && n <= len(phone); n++ {
		if strings.Contains(shortCodes, " "+phone[1:n]+" ") {
			return phone[:n]
		}
	}
	return phone[:min(4, len(phone))]
}

// Country returns the prefix of a phone under which SMSPerCountry counts it: its longest
// prefix in SMSCountries or, if all countries are allowed, its calling code. If
// SMSCountries has no prefix of the phone, allowed is false.
func (l *Limits) Country(phone string) (prefix string, allowed bool) {
	if len(l.SMSCountries) == 0 || l.SMSCountries[0] == AllCountries {
		return CallingCode(phone), true
	}
	for _, country := range l.SMSCountries {
		if strings.HasPrefix(phone, country) && len(country) > len(prefix) {
			prefix = country
		}
	}
	if prefix == "" {
		return CallingCode(phone), false
	}
	return prefix, true
}

// SendsTo reports whether SMSCountries allows SMS to a phone, and a gateway serves it.
func (c *Company) SendsTo(phone string) bool {
	_, allowed := c.Limits.Country(phone)
	return allowed && message.Serves(c.SMS, phone)
}
