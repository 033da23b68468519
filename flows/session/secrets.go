package session

import (
	"context"
	"crypto/rand"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Secrets reads the secrets of the store, and can replace them.
type Secrets struct {
	*Config
	journal *Journal
}

// Rekey gives the store a new secret after the present one has leaked. Sessions, passkeys,
// passwords, backup codes and device tokens do not depend on it. What does:
//
//   - Tokens of begun logins and step-ups, one-time codes, codes and proofs of contacts, page
//     keys and challenges are made with the new secret once it begins, and accepted with both
//     until tokens.Overlap has passed.
//   - Names of addresses, phones and unknown login ids in counters change, so their counts
//     begin anew.
//   - Secrets of authenticator apps are sealed again by Rekey. Until then, all nodes open
//     them with the old secret.
//   - Signing keys get a successor, and retire: see assertion.Keyring.
//   - The name of the deployment, new user handles and the names of kept answers stay those of
//     the first secret.
//
// Nodes read the secrets again every readSecrets. A new one begins only when all nodes have
// read it, so none meets anything made with a secret that it does not know. Rekey can be
// repeated after an interruption: it continues with a secret that began within the Overlap.
// It does not wait for one of a clock that was ahead.

const (
	readSecrets  = 5 * time.Second
	secretBegins = 3 * readSecrets // after it is stored
	secretRules  = 2 * readSecrets // after it begins: all nodes use it, and requests with the old one are over
	retrySecrets = 2 * time.Second // after the store did not answer
	maxAhead     = time.Minute     // more than secretBegins, by more than clocks may differ

	resealPage = 500
)

// knownSecrets are those that a node has read.
type knownSecrets struct {
	known   atomic.Pointer[knownKeys] // nil until the first use
	reading sync.Mutex                // held while the secrets are read
}

// knownKeys are the keys of a node, or why it has none, and when it reads the secrets again.
type knownKeys struct {
	keys *tokens.Keys
	err  error
	due  time.Time
}

// Keys returns the keys that are derived from the store's secrets. If the store does not
// answer, it returns those that the node knows; only without any, the error is
// wire.ErrUnavailable.
func (s *Secrets) Keys(ctx context.Context) (*tokens.Keys, error) {
	known := s.Node.secrets.known.Load()
	if known != nil && s.Now().Before(known.due) {
		return known.keys, known.err
	}
	defer record.SpendStoreTime(ctx)()
	if known == nil || known.keys == nil || s.Now().Sub(known.due) > readSecrets { // the node had nothing to do, and may know too little
		s.Node.secrets.reading.Lock()
	} else if !s.Node.secrets.reading.TryLock() {
		return known.keys, nil
	}
	defer s.Node.secrets.reading.Unlock()
	if now := s.Node.secrets.known.Load(); now != known {
		return now.keys, now.err // another call has read them meanwhile
	}
	next := &knownKeys{due: s.Now().Add(readSecrets)}
	// Other callers wait for it, too.
	secrets, err := s.Accounts.Secrets(record.NotYielding(record.Detached(ctx)))
	if err == nil {
		next.keys, err = tokens.NewKeys(secrets, s.Now())
	}
	if err != nil {
		next.due = s.Now().Add(retrySecrets)
		if known != nil {
			next.keys = known.keys
		}
		if next.keys == nil {
			next.err = wire.Unavailable("loading the store's secrets", err)
		}
	}
	s.Node.secrets.known.Store(next)
	return next.keys, next.err
}

// Rekeyed is what Rekey has done.
type Rekeyed struct {
	Apps      int       // whose secrets it sealed again
	Next      time.Time // from when Rekey makes another secret
	Continued time.Time // when the secret of an earlier call began, if this one continued it
}

// Rekey returns when all nodes use the new secret and all secrets of authenticator apps are
// sealed with it. Its event is emitted if it stores a secret.
func (s *Secrets) Rekey(ctx context.Context, event record.Event) (done Rekeyed, err error) {
	secrets, err := s.Accounts.Secrets(ctx)
	if err == nil {
		err = record.CheckSecrets(secrets)
	}
	if err != nil {
		return done, wire.Unavailable("loading the store's secrets", err)
	}
	newest := secrets[len(secrets)-1]
	now := s.Now()
	if newest.Number > 0 && now.Before(newest.Begins.Add(tokens.Overlap)) && newest.Begins.Before(now.Add(maxAhead)) {
		done.Continued = newest.Begins
	} else {
		newest = record.Secret{Number: newest.Number + 1, Value: make([]byte, 32), Begins: now.Add(secretBegins)}
		rand.Read(newest.Value)
		if err := s.Accounts.AddSecret(ctx, newest); errors.Is(err, record.ErrConflict) {
			return s.Rekey(ctx, event) // continue with that of another call
		} else if err != nil {
			return done, wire.Unavailable("storing a secret", err)
		}
		s.journal.Emit(ctx, event)
	}
	done.Next = newest.Begins.Add(tokens.Overlap).UTC()
	select {
	case <-s.after(newest.Begins.Add(secretRules).Sub(s.Now())):
	case <-ctx.Done():
		return done, ctx.Err()
	}
	// Not s.Keys: if the store does not answer, those are still of the old secret, and
	// nothing would be sealed again.
	if secrets, err = s.Accounts.Secrets(ctx); err != nil {
		return done, wire.Unavailable("loading the store's secrets", err)
	}
	keys, err := tokens.NewKeys(secrets, newest.Begins)
	if err != nil {
		return done, err
	}
	companies, err := s.Accounts.CompaniesWithAccounts(ctx) // also those that are configured on other nodes only
	if err != nil {
		return done, wire.Unavailable("looking for companies", err)
	}
	for _, company := range companies {
		n, err := s.reseal(ctx, company, keys)
		done.Apps += n
		if err != nil {
			return done, err
		}
	}
	return done, nil
}

// reseal seals the secrets of a company's authenticator apps with the current secret. It is
// no change of the accounts.
func (s *Secrets) reseal(ctx context.Context, company string, keys *tokens.Keys) (resealed int, err error) {
	again := func(a *record.Account) (ends bool, err error) {
		a.TOTP, a.TOTPPending = keys.ResealTOTP(company, company, a.TOTP), keys.ResealTOTP(company, company, a.TOTPPending)
		return false, nil
	}
	for after, more := "", true; more; {
		accounts, err := s.Accounts.List(ctx, company, after, resealPage)
		if err != nil {
			return resealed, wire.Unavailable("listing accounts", err)
		}
		for _, a := range accounts {
			after = a.Mnemocode
			sealed := a
			if again(&sealed); sealed.TOTP == a.TOTP && sealed.TOTPPending == a.TOTPPending {
				continue
			}
			_, err := s.Accounts.Update(ctx, company, a.ID, again)
			if err != nil && !errors.Is(err, record.ErrNotFound) { // it was deleted meanwhile
				return resealed, wire.Unavailable("sealing the secret of an app", err)
			}
			resealed++
		}
		more = len(accounts) == resealPage
	}
	return resealed, nil
}
