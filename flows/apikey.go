package flows

import (
	"crypto/sha256"
	"crypto/subtle"
	"strconv"
)

// KeyOfPage is what a login page's own key is called, which has no place in the
// configuration.
const KeyOfPage = "page"

// Company returns the company whose API key was sent, and what the key is called:
// its place among the company's keys, from 1, or nothing where none is asked for. An
// unknown company can't be told from a wrong key, neither by the answer nor by the
// time it takes.
func (s *Service) Company(code string, keys []string) (company *Company, key string, err error) {
	company = s.Companies[code]
	if company != nil && company.NoAPIKey {
		return company, "", nil
	}
	if len(keys) == 0 {
		return nil, "", ErrAPIKeyMissing
	}
	place := company.placeOf(keys[0])
	if place == 0 || len(keys) > 1 {
		return nil, "", ErrAPIKeyInvalid
	}
	return company, s.uses(company, strconv.Itoa(place)), nil
}

// CompanyByKey returns the company, whichever it is, whose API key was sent.
func (s *Service) CompanyByKey(keys []string) (*Company, error) {
	if len(keys) == 0 {
		return nil, ErrAPIKeyMissing
	}
	var found *Company
	var key int
	for _, company := range s.Companies {
		if place := company.placeOf(keys[0]); place != 0 {
			found, key = company, place
		}
	}
	if found == nil || len(keys) > 1 {
		return nil, ErrAPIKeyInvalid
	}
	s.uses(found, strconv.Itoa(key))
	return found, nil
}

// uses tells that a good key of a company was sent, and returns what it is called.
func (s *Service) uses(c *Company, key string) string {
	if s.KeyUsed != nil {
		s.KeyUsed(c.Code, key)
	}
	return key
}

// placeOf returns a key's place among the company's, from 1, or 0 if it is none of
// them. It compares with each, in constant time. No company has none.
func (c *Company) placeOf(key string) int {
	hashes := [][sha256.Size]byte{{}} // what no key hashes to
	if c != nil {
		hashes = c.APIKeys
	}
	sent := sha256.Sum256([]byte(key))
	place := 0
	for i := range hashes {
		place = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(sent[:], hashes[i][:]), i+1, place)
	}
	if c == nil {
		return 0
	}
	return place
}
