package flows

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

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
