package flows

import (
	"context"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"golang.org/x/crypto/chacha20poly1305"
)

// Anyone can begin a login of anyone, as often as they like. So a session in
// state checkpassword is kept by nobody: its token holds it, sealed with a key
// that only the nodes of a deployment have. What must be known of such a token
// is whether it was used: the step that uses it charges its claim, a counter
// that takes one.

// What is sealed, each field of a fixed length, so that a decoy's token looks
// like any other. A random nonce of 24 bytes is good for any number of tokens.
const (
	companyTagBytes = 16
	aliasBytes      = sha256.Size
	sealedBytes     = chacha20poly1305.NonceSizeX + companyTagBytes + 3*8 + aliasBytes + chacha20poly1305.Overhead
)

var sealedLength = len(tokenPrefix) + base64.RawURLEncoding.EncodedLen(sealedBytes)

// isSealed reports whether a token is not one of newToken.
func isSealed(token string) bool {
	return len(token) == sealedLength && token[:len(tokenPrefix)] == tokenPrefix
}

type companyTag [companyTagBytes]byte

func tagOfCompany(code string) companyTag {
	sum := sha256.Sum256([]byte(code))
	return companyTag(sum[:companyTagBytes])
}

// secrets are what is derived from the store's secret.
type secrets struct {
	alias     []byte // the key of aliases: the secret itself
	sealer    cipher.AEAD
	totp      cipher.AEAD
	challenge []byte // the key that challenges of captcha pow are signed with
	page      []byte // the key that those of login pages are signed with
}

func (s *Service) storeSecrets(ctx context.Context) (*secrets, error) {
	if known := s.derived.Load(); known != nil {
		return known, nil
	}
	secret, err := s.Accounts.Secret(ctx)
	if err != nil {
		return nil, wire.Unavailable("loading the store's secret", err)
	}
	sealer, err := newSessionSealer(secret)
	if err != nil {
		return nil, err
	}
	totp, err := newTOTPSealer(secret)
	if err != nil {
		return nil, err
	}
	challenge, err := deriveKey(secret, "mnemogate captcha challenges")
	if err != nil {
		return nil, err
	}
	page, err := deriveKey(secret, "mnemogate page keys")
	if err != nil {
		return nil, err
	}
	s.derived.Store(&secrets{secret, sealer, totp, challenge, page})
	return s.derived.Load(), nil
}

func newSessionSealer(secret []byte) (cipher.AEAD, error) {
	return newSealer(secret, "mnemogate sealed sessions")
}

// deriveKey derives a key from the store's secret for one purpose (RFC 5869).
func deriveKey(secret []byte, purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, secret, nil, purpose, chacha20poly1305.KeySize)
}

// newSealer returns what seals and opens under such a key.
func newSealer(secret []byte, purpose string) (cipher.AEAD, error) {
	key, err := deriveKey(secret, purpose)
	if err != nil {
		return nil, err
	}
	return chacha20poly1305.NewX(key)
}

// seal returns the token of a session in state checkpassword.
func seal(sealer cipher.AEAD, s record.Session) string {
	nonce := make([]byte, chacha20poly1305.NonceSizeX, sealedBytes)
	rand.Read(nonce) // never fails: it ends the process instead
	tag := tagOfCompany(s.Company)
	text := append(make([]byte, 0, sealedBytes), tag[:]...)
	text = binary.BigEndian.AppendUint64(text, uint64(s.Account))
	text = binary.BigEndian.AppendUint32(text, uint32(s.Era))
	text = binary.BigEndian.AppendUint32(text, uint32(s.Epoch))
	text = binary.BigEndian.AppendUint64(text, uint64(s.Expires.UnixMicro()))
	var alias [aliasBytes]byte
	hex.Decode(alias[:], []byte(s.LoginID)) // the alias is hex
	text = append(text, alias[:]...)
	return tokenPrefix + base64.RawURLEncoding.EncodeToString(sealer.Seal(nonce, nonce, text, []byte(record.CheckPassword)))
}

// unseal returns the session in a token, with nothing in Company, and the tag of
// its company.
func unseal(sealer cipher.AEAD, token string) (s record.Session, tag companyTag, ok bool) {
	var raw [sealedBytes]byte
	n, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(token[len(tokenPrefix):]))
	if err != nil || n != sealedBytes {
		return record.Session{}, tag, false
	}
	nonce, sealed := raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:]
	text, err := sealer.Open(sealed[:0], nonce, sealed, []byte(record.CheckPassword))
	if err != nil {
		return record.Session{}, tag, false
	}
	tag = companyTag(text)
	numbers := text[companyTagBytes:]
	number := func(i int) int64 { return int64(binary.BigEndian.Uint64(numbers[8*i:])) }
	half := func(i int) int64 { return int64(binary.BigEndian.Uint32(numbers[4*i:])) }
	s = record.Session{
		Hash:    record.HashToken(token),
		ID:      sealedID(token),
		Account: number(0),
		Era:     half(2),
		Epoch:   half(3),
		State:   record.CheckPassword,
		Expires: time.UnixMicro(number(2)),
	}
	s.Ends = s.Expires
	if alias := numbers[3*8:]; [aliasBytes]byte(alias) != [aliasBytes]byte{} {
		s.LoginID = hex.EncodeToString(alias)
	}
	return s, tag, true
}

// sealedID is the ID of the session that a sealed token holds.
func sealedID(token string) string {
	sum := sha256.Sum256([]byte("id of " + token))
	return hex.EncodeToString(sum[:16])
}

// enterSealed takes a step to checkpassword, of which nothing is stored.
func (s *Service) enterSealed(ctx context.Context, c *call, st step) (Reply, error) {
	secrets, err := s.storeSecrets(ctx)
	if err != nil {
		return Reply{}, err
	}
	if err := s.charge(ctx, c, st.counters...); err != nil {
		return Reply{}, err
	}
	st.state = record.CheckPassword
	session := c.newSession(st, record.TokenHash{})
	token := seal(secrets.sealer, session)
	c.issued = sealedID(token)
	return Reply{SessionToken: token, SessionState: record.CheckPassword, ExpiresIn: secondsUntil(session.Expires, c.now)}, nil
}

// openSealed finds the session in the call's token, which must be a company's that
// meets want, and its account.
func (s *Service) openSealed(ctx context.Context, c *call, want Demand) error {
	secrets, err := s.storeSecrets(ctx)
	if err != nil {
		return err
	}
	session, tag, ok := unseal(secrets.sealer, c.token)
	owner := s.tagged(tag)
	if !ok || owner == nil || !want.meets(owner.Code) || !c.now.Before(session.Expires.Add(record.Keep)) {
		return wire.ErrTokenInvalid
	}
	session.Company = owner.Code
	c.company, c.session = owner, &session
	claim := c.counter("claim", hex.EncodeToString(session.Hash[:]), tenant.Rate{N: 1, Per: session.Expires.Add(record.Keep).Sub(c.now)})
	c.claim = &claim
	if err = s.Sessions.Charge(ctx, c.now, record.Look(claim)...); err != nil {
		if c.claimed(err) {
			return wire.ErrTokenInvalid
		}
		return wire.Unavailable("asking whether the token was used", err)
	}
	a, err := s.account(ctx, c)
	if err != nil {
		return err
	}
	c.loaded = &a
	if !c.now.Before(session.Expires) {
		return wire.ErrTokenExpired
	}
	return nil
}

// claimed reports whether err says that the call's sealed token was used.
func (c *call) claimed(err error) bool {
	full, ok := errors.AsType[*record.Full](err)
	return ok && c.claim != nil && full.Key == c.claim.Key
}

// tagged returns the company of a tag, nil if it is none of ours.
func (s *Service) tagged(tag companyTag) *tenant.Company {
	s.tagging.Do(func() {
		s.byTag = map[companyTag]*tenant.Company{}
		for code, company := range s.Companies {
			s.byTag[tagOfCompany(code)] = company
		}
	})
	return s.byTag[tag]
}

// refuseSealed says why a sealed token does not open the protected path.
func (s *Service) refuseSealed(ctx context.Context, want Demand, token string, now time.Time) error {
	if err := s.openSealed(ctx, &call{token: token, now: now}, want); err != nil {
		return err
	}
	return wire.ErrSessionInvalid
}
