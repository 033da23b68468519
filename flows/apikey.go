package flows

import (
	"strconv"

	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// KeyOfPage is the name of a login page's own key, which is not in the configuration.
const KeyOfPage = "page"

// Company returns the company with this code if the client sent one of its API keys. It
// also returns the name of the key: its position among the company's keys, from 1, or ""
// if the company requires no key. An unknown company and a wrong key get the same answer
// after the same time. The error is wire.ErrAPIKeyMissing or wire.ErrAPIKeyInvalid.
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
	return company, s.reportKey(company, strconv.Itoa(place)), nil
}

// CompanyByKey returns the company that the API key belongs to. Its errors are those of
// Company.
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
	s.reportKey(found, strconv.Itoa(key))
	return found, nil
}

// reportKey reports a valid key of a company to KeyUsed. It returns the name of the key.
func (s *Service) reportKey(c *tenant.Company, key string) string {
	if s.KeyUsed != nil {
		s.KeyUsed(c.Code, key)
	}
	return key
}
