package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
)

// allCountries stands in the place of countries.
const allCountries = "all"

var country = regexp.MustCompile(`^\+[1-9][0-9]{0,6}$`)

func (l *Limits) checkCountries() error {
	for i, s := range l.SMSCountries {
		switch {
		case s == allCountries && len(l.SMSCountries) > 1:
			return errors.New("limits sms_countries: all takes no countries besides")
		case s != allCountries && !country.MatchString(s):
			return fmt.Errorf("limits sms_countries: '%s' is no beginning of international numbers; write it as +370", s)
		case slices.Contains(l.SMSCountries[:i], s):
			return fmt.Errorf("limits sms_countries: %s is there twice", s)
		}
	}
	return nil
}
