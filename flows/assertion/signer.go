package assertion

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Signer signs the assertions of a site. For each session and issuer, it signs at most
// once in two thirds of the TTL. Set its fields before the first call. Its methods may be
// called concurrently.
type Signer struct {
	Audience string
	TTL      time.Duration         // the life of an assertion
	Fields   []record.ProfileField // the fields of the account to state
	Keys     func(ctx context.Context, company string) (*Keys, error)
	Now      func() time.Time
	// Limit is how many sessions it remembers assertions for. It may remember twice as
	// many for a moment.
	Limit int

	shards     [64]shard
	background atomic.Int64 // how many assertions are being signed in the background
}

// maxBackground bounds Signer.background.
const maxBackground = 256

// claims are the claims of an assertion.
type claims struct {
	Issuer   string   `json:"iss"`
	Audience string   `json:"aud"`
	Subject  string   `json:"sub"`
	Company  string   `json:"company"`
	Session  string   `json:"sid,omitempty"`
	IssuedAt int64    `json:"iat"`
	Expires  int64    `json:"exp"`
	AuthTime int64    `json:"auth_time,omitempty"`
	Methods  []string `json:"amr,omitempty"`
	Role     string   `json:"role,omitempty"`
	Email    string   `json:"email,omitempty"`
	Phone    string   `json:"phone,omitempty"`
	Token    string   `json:"token,omitempty"` // instead of sid and auth_time
	Act      *actor   `json:"act,omitempty"`
}

// An actor is who acts as the subject (RFC 8693, section 4.1).
type actor struct {
	Subject string `json:"sub"`
}

// Assertion returns an assertion about an authorized session, which must have its ID and
// Created. For two thirds of an assertion's life it returns the same one again. Then it
// signs a new one in the background. It waits for that only if less than a sixth of the
// life is left, or the session was raised since. The error is wire.ErrRestricted if the
// session is used with too many issuers at once. Other errors are those of Keys, or mean
// that signing failed.
func (s *Signer) Assertion(ctx context.Context, issuer string, session record.Session) (string, error) {
	now := s.Now()
	of, ok := s.shards[int(session.Hash[len(session.Hash)-1])%len(s.shards)].find(session.Hash, issuer, now, s.TTL, s.Limit/len(s.shards))
	if !ok {
		return "", &wire.Refusal{Err: wire.ErrRestricted, RetryAfter: s.TTL, Message: "The session is used on too many hosts at once. Wait for the number of seconds in Retry-After, then try again."}
	}
	made := of.made.Load()
	switch {
	case made == nil || made.profile != session.Profile || now.Sub(made.at) >= s.TTL*5/6:
		of.signing.Lock()
		defer of.signing.Unlock()
		if made = of.made.Load(); made != nil && made.profile == session.Profile && made.isFresh(now, s.TTL) {
			return made.token, nil // another request has signed it meanwhile
		}
		return s.sign(ctx, issuer, session, of)
	case !made.isFresh(now, s.TTL):
		s.signLater(ctx, issuer, session, of)
	}
	return made.token, nil
}

// signLater signs in the background, unless another request does or maxBackground are
// being signed. It ignores an error: the request that has to wait gets its own.
func (s *Signer) signLater(ctx context.Context, issuer string, session record.Session, of *cacheEntry) {
	if !of.signing.TryLock() {
		return
	}
	if s.background.Add(1) > maxBackground || of.made.Load().isFresh(s.Now(), s.TTL) {
		s.background.Add(-1)
		of.signing.Unlock()
		return
	}
	go func() {
		defer of.signing.Unlock()
		defer s.background.Add(-1)
		_ = panics.Contain(func() error {
			_, err := s.sign(context.WithoutCancel(ctx), issuer, session, of)
			return err
		})
	}()
}

// sign signs an assertion. The caller holds of.signing.
func (s *Signer) sign(ctx context.Context, issuer string, session record.Session, of *cacheEntry) (string, error) {
	keys, err := s.Keys(ctx, session.Company)
	if err != nil {
		return "", err
	}
	now := s.Now()
	stated := claims{
		Issuer: issuer, Audience: s.Audience, Subject: session.Mnemocode, Company: session.Company, Session: session.ID,
		IssuedAt: now.Unix(), Expires: now.Add(s.TTL).Unix(), AuthTime: session.LoginTime().Unix(),
		Methods: session.Profile.Methods().Words(),
	}
	if t := session.Issued; t != nil {
		stated.Token, stated.AuthTime = t.ID, 0
		if t.Actor != "" {
			stated.Act = &actor{t.Actor}
		}
	}
	values := [...]*string{record.ProfileRole: &stated.Role, record.ProfileEmail: &stated.Email, record.ProfilePhone: &stated.Phone}
	for _, f := range s.Fields {
		if *values[f], err = url.PathUnescape(session.Profile.Value(f)); err != nil {
			return "", err
		}
	}
	payload, err := json.Marshal(stated)
	if err != nil {
		return "", err
	}
	signed, err := keys.signing(now).signer.Sign(payload)
	if err != nil {
		return "", wire.Unavailable("signing an assertion", err)
	}
	token, err := signed.CompactSerialize()
	if err == nil {
		of.made.Store(&signedToken{token, session.Profile, now})
	}
	return token, err
}

// A cacheEntry holds the newest assertion about a session by an issuer.
type cacheEntry struct {
	issuer  string
	made    atomic.Pointer[signedToken]
	signing sync.Mutex // held while a new one is signed
}

// cacheEntries are those of one session, oldest first. A site with several hosts has an
// issuer for each.
type cacheEntries []*cacheEntry

// maxIssuers is how many issuers a session can have at once. A client that chooses the host
// chooses the issuer; with a new one for each request, each would cost a signature.
const maxIssuers = 16

func (s cacheEntries) by(issuer string) *cacheEntry {
	for _, of := range s {
		if of.issuer == issuer {
			return of
		}
	}
	return nil
}

type signedToken struct {
	token   string
	profile record.Profile // another one after the session was raised
	at      time.Time
}

// isFresh reports whether an assertion need not be signed again yet.
func (m *signedToken) isFresh(now time.Time, ttl time.Duration) bool { return now.Sub(m.at) < ttl*2/3 }

// A shard remembers assertions. It forgets those of sessions that were not used for a
// whole TTL, or earlier if there are too many.
type shard struct {
	mu            sync.RWMutex
	recent, older map[record.TokenHash]cacheEntries
	turned        time.Time // when recent became older
}

// find returns the entry of a session and an issuer, which is empty if it is new. It
// returns false if the session has too many others that are fresh.
func (s *shard) find(session record.TokenHash, issuer string, now time.Time, ttl time.Duration, limit int) (found *cacheEntry, ok bool) {
	s.mu.RLock()
	found = s.recent[session].by(issuer)
	s.mu.RUnlock()
	if found != nil {
		return found, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	known, recent := s.recent[session]
	if !recent {
		known = s.older[session]
		if s.recent == nil || len(s.recent) >= max(1, limit) || now.Sub(s.turned) >= ttl {
			s.recent, s.older, s.turned = map[record.TokenHash]cacheEntries{}, s.recent, now
		}
	}
	if found = known.by(issuer); found == nil {
		if len(known) == maxIssuers {
			old := slices.IndexFunc(known, func(of *cacheEntry) bool {
				made := of.made.Load()
				return made == nil || !made.isFresh(now, ttl)
			})
			if old < 0 {
				return nil, false
			}
			known = slices.Concat(known[:old], known[old+1:])
		}
		found = &cacheEntry{issuer: issuer}
		known = append(known, found)
	}
	s.recent[session] = known
	return found, true
}
