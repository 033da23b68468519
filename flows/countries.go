package flows

import (
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// shortCodes are the calling codes of one and two digits, which ITU-T E.164 assigns
// so that none begins another: all others have three.
const shortCodes = " 1 7 20 27 30 31 32 33 34 36 39 40 41 43 44 45 46 47 48 49 51 52 53 54 55 56 57 58 " +
	"60 61 62 63 64 65 66 81 82 84 86 90 91 92 93 94 95 98 "

// callingCode is a phone's, with its plus.
func callingCode(phone string) string {
	for n := 2; n <= 3 && n <= len(phone); n++ {
		if strings.Contains(shortCodes, " "+phone[1:n]+" ") {
			return phone[:n]
		}
	}
	return phone[:min(4, len(phone))]
}

// country is what of a phone counts for SMSPerCountry: the longest of SMSCountries
// that it begins with or, where all are allowed, its calling code. It is not allowed
// if none of SMSCountries is its.
func (l *Limits) country(phone string) (prefix string, allowed bool) {
	if len(l.SMSCountries) == 0 {
		return callingCode(phone), true
	}
	for _, country := range l.SMSCountries {
		if strings.HasPrefix(phone, country) && len(country) > len(prefix) {
			prefix = country
		}
	}
	if prefix == "" {
		return callingCode(phone), false
	}
	return prefix, true
}

// countryAgain is after what time an SMS to a country that is not allowed may be asked
// for again: only an operator can change that.
const countryAgain = 24 * time.Hour

// countrySMS is the budget of a phone's country, if it has one. Where the country is
// not allowed, it is full.
func (c *call) countrySMS(phone string) ([]record.Counter, error) {
	rate := c.company.Limits.SMSPerCountry
	prefix, allowed := c.company.Limits.country(phone)
	if !allowed {
		return nil, &record.Full{Key: c.counter("sms-countries", prefix, rate).Key, Until: c.now.Add(countryAgain)}
	}
	if rate == (Rate{}) {
		return nil, nil
	}
	return []record.Counter{c.counter("sms-per-country", prefix, rate)}, nil
}
