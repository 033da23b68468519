package flows

import (
	"context"
	"strconv"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file has the first step of every request: which company its API key opens.

// companyOf is Company for requests that a login page also sends. If the Request allows
// it, the key of the page is valid too.
func (s *Service) companyOf(ctx context.Context, r *Request) (company *tenant.Company, key string, err error) {
	code, keys := r.Company, r.APIKeys
	company, key, err = s.Company(code, keys)
	if err != wire.ErrAPIKeyInvalid || !r.PageKey || len(keys) != 1 || !tokens.IsPageKey(keys[0]) {
		return company, key, err
	}
	secrets, unanswered := s.Keys(ctx)
	if unanswered != nil {
		return nil, "", unanswered
	}
	good := secrets.VerifyPageKey(code, keys[0], s.Now()) // checked even for an unknown company, so that it takes as long
	if company = s.Companies[code]; good && company != nil {
		return company, s.reportKey(company, KeyOfPage), nil
	}
	return nil, "", err
}

// Admits reports whether a request has an API key of its company. It does not report the
// key to KeyUsed.
func (s *Service) Admits(ctx context.Context, r *Request) bool {
	_, _, err := s.Quiet().companyOf(ctx, r)
	return err == nil
}

// Quiet returns the Service without KeyUsed, for requests whose key is reported elsewhere.
func (s *Service) Quiet() *Service { return &Service{Manager: s.Manager} }

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

// A page must be reloaded when its key has expired: pageKeyLife after the start of the
// pageKeyStep in which it was made. So the page stays the same for a pageKeyStep.
const (
	pageKeyLife = time.Hour
	pageKeyStep = time.Minute
)

// PageKey returns a key for the login page of a company. It does not check whether the
// company has such a page. The key stays the same for a minute. The error is
// wire.ErrUnavailable if the store's secret can't be loaded.
func (s *Service) PageKey(ctx context.Context, company string) (string, error) {
	keys, err := s.Keys(record.WithStoreTime(ctx))
	if err != nil {
		return "", err
	}
	return keys.NewPageKey(company, s.Now().Truncate(pageKeyStep).Add(pageKeyLife)), nil
}
