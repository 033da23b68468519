package flows

import (
	"strconv"

	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// KeyOfPage is what a login page's own key is called, which has no place in the
// configuration.
const KeyOfPage = "page"

// Company returns the company whose API key was sent, and what the key is called:
// its place among the company's keys, from 1, or nothing where none is asked for. An
// unknown company can't be told from a wrong key, neither by the answer nor by the
// time it takes.
func (s *Service) Company(code string, keys []string) (company *tenant.Company, key string, err error) {
	company = s.Companies[code]
	if company != nil && company.NoAPIKey {
		return company, "", nil
	}
	if len(keys) == 0 {
		return nil, "", wire.ErrAPIKeyMissing
	}
	place := company.PlaceOf(keys[0])
	if place == 0 || len(keys) > 1 {
		return nil, "", wire.ErrAPIKeyInvalid
	}
	return company, s.uses(company, strconv.Itoa(place)), nil
}

// CompanyByKey returns the company, whichever it is, whose API key was sent.
func (s *Service) CompanyByKey(keys []string) (*tenant.Company, error) {
	if len(keys) == 0 {
		return nil, wire.ErrAPIKeyMissing
	}
	var found *tenant.Company
	var key int
	for _, company := range s.Companies {
		if place := company.PlaceOf(keys[0]); place != 0 {
			found, key = company, place
		}
	}
	if found == nil || len(keys) > 1 {
		return nil, wire.ErrAPIKeyInvalid
	}
	s.uses(found, strconv.Itoa(key))
	return found, nil
}

// uses tells that a good key of a company was sent, and returns what it is called.
func (s *Service) uses(c *tenant.Company, key string) string {
	if s.KeyUsed != nil {
		s.KeyUsed(c.Code, key)
	}
	return key
}
