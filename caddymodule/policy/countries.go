package policy

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// readCountries returns the prefixes in the form of +370. It returns what is none as it is,
// and checkCountries refuses it.
func readCountries(countries []string) []string {
	read := slices.Clone(countries)
	for i, s := range read {
		read[i] = cmp.Or(typed.PhonePrefix(s), s)
	}
	return read
}

// checkCountries refuses what is no prefix of phones, what appears twice, and all beside others. An
// empty list, which only JSON can have, would allow all.
func checkCountries(countries []string) error {
	if countries != nil && len(countries) == 0 {
		return errors.New("the list is empty; name a prefix, or leave it out")
	}
	countries = readCountries(countries)
	for i, s := range countries {
		switch {
		case s == tenant.AllCountries && len(countries) > 1:
			return errors.New("all takes no other countries; write it alone, or remove it")
		case s != tenant.AllCountries && typed.PhonePrefix(s) == "":
			return fmt.Errorf("'%s' is not the beginning of an international number; write it as +370", s)
		case slices.Contains(countries[:i], s):
			return fmt.Errorf("%s appears twice; remove one", s)
		}
	}
	return nil
}
