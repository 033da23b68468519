package tenant

import (
	"strconv"
	"strings"

	"github.com/nyaruka/phonenumbers"

	"github.com/mnemogate/mnemogate/flows/message"
)

// AllCountries is the only entry of SMSCountries in a company that lifts the
// restriction of its app.
const AllCountries = "all"

// CallingCode returns the calling code of a phone, with its plus. There are fewer than
// a thousand: all have one to three digits, and none is a prefix of another (ITU-T E.164).
func CallingCode(phone string) string {
	for n := 2; n <= 3 && n <= len(phone); n++ {
		if code, _ := strconv.Atoi(phone[1:n]); phonenumbers.GetSupportedCallingCodes()[code] {
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
