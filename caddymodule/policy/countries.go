package policy

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/mnemogate/mnemogate/flows/tenant"
)

var country = regexp.MustCompile(`^\+[1-9][0-9]{0,6}$`)

func checkCountries(countries []string) error {
	for i, s := range countries {
		switch {
		case s == tenant.AllCountries && len(countries) > 1:
			return errors.New("limits sms_countries: all takes no other countries; write it alone, or remove it")
		case s != tenant.AllCountries && !country.MatchString(s):
			return fmt.Errorf("limits sms_countries: '%s' is not the beginning of an international number; write it as +370", s)
		case slices.Contains(countries[:i], s):
			return fmt.Errorf("limits sms_countries: %s appears twice; remove one", s)
		}
	}
	return nil
}
