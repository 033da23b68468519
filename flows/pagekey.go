package flows

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// pageKeyLife is how long a page may be open before it must be loaded anew. It is
// counted from the beginning of a minute, so that a page is one for a minute.
const (
	pageKeyLife = time.Hour
	pageKeyStep = time.Minute
)

// PageKey returns a key for the login page of a company, which need not have one. It
// is the same throughout a minute.
// The error is wire.ErrUnavailable if the store can't be asked for its secret.
func (s *Service) PageKey(ctx context.Context, company string) (string, error) {
	keys, err := s.Keys(record.WithStoreTime(ctx))
	if err != nil {
		return "", err
	}
	return keys.NewPageKey(company, s.Now().Truncate(pageKeyStep).Add(pageKeyLife)), nil
}

// clientOf is Company for what a login page calls as well: its key will do, too, where
// the Request says so.
func (s *Service) clientOf(ctx context.Context, r *Request) (company *tenant.Company, key string, err error) {
	code, keys := r.Company, r.APIKeys
	company, key, err = s.Company(code, keys)
	if err != wire.ErrAPIKeyInvalid || !r.PageKey || len(keys) != 1 || !tokens.IsPageKey(keys[0]) {
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
