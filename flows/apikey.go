package flows

import (
	"crypto/sha256"
	"crypto/subtle"
)

// Company returns the company whose API key was sent. An unknown company can't
// be told from a wrong key, neither by the answer nor by the time it takes.
func (s *Service) Company(code string, keys []string) (*Company, error) {
	company := s.Companies[code]
	if company != nil && company.NoAPIKey {
		return company, nil
	}
	if len(keys) == 0 {
		return nil, ErrAPIKeyMissing
	}
	if !company.hasKey(keys[0]) || len(keys) > 1 {
		return nil, ErrAPIKeyInvalid
	}
	return company, nil
}

// CompanyByKey returns the company, whichever it is, whose API key was sent.
func (s *Service) CompanyByKey(keys []string) (*Company, error) {
	if len(keys) == 0 {
		return nil, ErrAPIKeyMissing
	}
	var found *Company
	for _, company := range s.Companies {
		if company.hasKey(keys[0]) {
			found = company
		}
	}
	if found == nil || len(keys) > 1 {
		return nil, ErrAPIKeyInvalid
	}
	return found, nil
}

// hasKey compares with each key, in constant time. No company has none.
func (c *Company) hasKey(key string) bool {
	hashes := [][sha256.Size]byte{{}} // what no key hashes to
	if c != nil {
		hashes = c.APIKeys
	}
	sent := sha256.Sum256([]byte(key))
	equal := 0
	for i := range hashes {
		equal |= subtle.ConstantTimeCompare(sent[:], hashes[i][:])
	}
	return c != nil && equal == 1
}
