package assertion

import (
	"context"
	"encoding/json"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	// Limit is how many sessions it remembers assertions for, at least. It remembers up to
	// twice as many.
	Limit int

	shards [64]shard
}

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
// Created. For two thirds of an assertion's life it returns the same one again, unless the
// session was raised since. Then it signs a new one. If that fails, it returns the same one
// until a sixth of the life is left. The error is wire.ErrRestricted if the session is used
// with too many issuers at once. Other errors are those of Keys, or mean that signing failed.
func (s *Signer) Assertion(ctx context.Context, issuer string, session record.Session) (string, error) {
	now := s.Now()
	of, ok := s.shards[int(session.Hash[len(session.Hash)-1])%len(s.shards)].find(session.Hash, issuer, now, s.TTL, s.Limit/len(s.shards))
	if !ok {
		return "", &wire.Refusal{Err: wire.ErrRestricted, RetryAfter: s.TTL, Message: "The session is used on too many hosts at once. Wait for the number of seconds in Retry-After, then try again."}
	}
	if made := of.made.Load(); made.serves(session.Profile, now, renewAfter(s.TTL)) {
		return made.token, nil
	}
	of.signing.Lock()
	defer of.signing.Unlock()
	made := of.made.Load()
	if made.serves(session.Profile, now, renewAfter(s.TTL)) {
		return made.token, nil // another request has signed it meanwhile
	}
	// Keys may wait for a store that does not answer, if none could be loaded for long.
	token, err := s.sign(ctx, issuer, session, of)
	if err != nil && made.serves(session.Profile, s.Now(), s.TTL*5/6) {
		return made.token, nil
	}
	return token, err
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

// renewAfter is the age from which an assertion is signed again.
func renewAfter(ttl time.Duration) time.Duration { return ttl * 2 / 3 }

// serves reports whether there is an assertion for the profile that is younger than age.
func (m *signedToken) serves(profile record.Profile, now time.Time, age time.Duration) bool {
	return m != nil && m.profile == profile && now.Sub(m.at) < age
}

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
				return made == nil || now.Sub(made.at) >= renewAfter(ttl)
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
