package flows

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// pageKeyLife is how long a page may be open before it must be loaded anew.
const pageKeyLife = time.Hour

// PageKey returns a key for the login page of a company, which need not have one.
// The error is wire.ErrUnavailable if the store can't be asked for its secret.
func (s *Service) PageKey(ctx context.Context, company string) (string, error) {
	keys, err := s.Keys(record.WithStoreTime(ctx))
	if err != nil {
		return "", err
	}
	return keys.NewPageKey(company, s.Now().Add(pageKeyLife)), nil
}

// clientOf is Company for what a login page calls as well: its key will do, too.
func (s *Service) clientOf(ctx context.Context, code string, keys []string) (company *tenant.Company, key string, err error) {
	company, key, err = s.Company(code, keys)
	if err != wire.ErrAPIKeyInvalid || len(keys) != 1 || !tokens.IsPageKey(keys[0]) {
		return company, key, err
	}
	secrets, unanswered := s.Keys(ctx)
	if unanswered != nil {
		return nil, "", unanswered
	}
	good := secrets.GoodPageKey(code, keys[0], s.Now()) // also of a company that there is not: it takes as long
	if company = s.Companies[code]; good && company != nil {
		return company, s.uses(company, KeyOfPage), nil
	}
	return nil, "", err
}
