package session

import (
	"context"
	"crypto/sha256"
	"maps"
	"slices"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// ImaginedID is the ID of an imagined session.
const ImaginedID = "(the id of the session)"

// Imagine returns a manager for which the account has just logged in with all its factors,
// with the token of that session and an API key of the company. It stores and reports
// nothing, and knows no other session. Without an account (ID 0) there is no token. Without
// a company, or if that needs no key, there is no key.
func (m *Manager) Imagine(company *tenant.Company, a record.Account) (imagined *Manager, token, key string) {
	now := m.Now()
	imagined = New(&Config{Companies: m.Companies, Log: m.Log, Forwarded: m.Forwarded, Now: func() time.Time { return now }})
	only := oneSession{}
	if company != nil && !company.NoAPIKey {
		key = tokens.NewID()
		with := *company
		with.APIKeys = append(slices.Clip(with.APIKeys), sha256.Sum256([]byte(key)))
		imagined.Companies = maps.Clone(m.Companies)
		imagined.Companies[company.Code] = &with
	}
	if a.ID != 0 {
		c := imagined.NewCall(Client{})
		c.setCompany(company)
		c.session = &record.Session{ID: ImaginedID}
		st := Step{Account: a, State: record.Authorized}
		if company.LogsInAtProvider(a) {
			st.By = record.ByOAuth
		}
		for _, factor := range slices.Backward(StepUpFactors(company, a, "", ForMFA)) {
			st.By = st.By.With(factor)
		}
		only.session = c.newSession(st)
		token, only.session.Hash = tokens.New(tokens.Prefix, c.Tells.place(&only.session))
	}
	imagined.Sessions = only
	return imagined, token, key
}

// CheckOwner returns nil if the owner of an account can log in, whatever is locked now, or the
// error of a login. The owner has all factors of the account.
func CheckOwner(company *tenant.Company, a record.Account) error {
	if err := tenant.CheckStatus(a); err != nil {
		return err
	}
	if company.LogsInAtProvider(a) || company.CanGive(a, record.ByPasskey) {
		return nil
	}
	switch byCode := a.LogsInByCode(); {
	case !a.HasLoginID():
		return wire.ErrUserRestricted
	case byCode && (a.Phone == "" || !company.CanGive(a, record.BySMS) && a.BackupCodes == 0),
		!byCode && company.NeedsSecondFactor(a) && len(SecondFactors(company, a)) == 0:
		return ErrNoSecondFactor
	case !byCode && !company.HasPassword(a):
		return wire.ErrUserRestricted
	}
	return nil
}

// oneSession is a store that has one session at most. It takes no changes.
type oneSession struct {
	record.Sessions
	session record.Session
}

// Get implements record.Sessions.
func (s oneSession) Get(_ context.Context, hash record.TokenHash) (record.Session, error) {
	if s.session.State == record.None || hash != s.session.Hash {
		return record.Session{}, record.ErrNotFound
	}
	return s.session, nil
}
