package flows

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math/bits"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// Captcha pow asks no provider. A challenge is signed with a key that only the
// nodes of a deployment have, so that nothing is stored until it is used. The
// right response, <challenge>.<n>, is found by trying numbers n until its SHA-256
// begins with enough zero bits.

// challengeLife is how long a challenge may be answered: less than captchaMemory.
const challengeLife = 5 * time.Minute

// A challenge is random, says when it ends, and is signed. With an n of up to ten
// digits it is hashed as one block.
const (
	challengeRandom = 9
	challengeText   = challengeRandom + 8
	challengeBytes  = challengeText + 16
)

// A Challenge is what a client of captcha pow needs, ready to be marshalled.
type Challenge struct {
	Challenge string `json:"challenge"`
	Bits      int    `json:"bits"`
	ExpiresIn int    `json:"expires_in"` // whole seconds
}

// Challenge returns a new challenge of the company whose API key was sent. The
// error is ErrNoRoute if its captcha is another.
func (s *Service) Challenge(ctx context.Context, code string, apiKeys []string) (c Challenge, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { s.warnings.Unanswered(s.Log, err, "company", code, "route", "captcha") }()
	company, _, err := s.clientOf(ctx, code, apiKeys)
	if err != nil {
		return Challenge{}, err
	}
	work, ok := company.Captcha.(tenant.ProofOfWork)
	if !ok {
		return Challenge{}, wire.ErrNoRoute
	}
	secrets, err := s.storeSecrets(ctx)
	if err != nil {
		return Challenge{}, err
	}
	challenge := newChallenge(secrets.challenge, code, s.Now().Add(challengeLife))
	return Challenge{challenge, work.Bits(), int(challengeLife / time.Second)}, nil
}

func newChallenge(key []byte, company string, expires time.Time) string {
	text := make([]byte, challengeRandom, challengeBytes)
	rand.Read(text) // never fails: it ends the process instead
	text = binary.BigEndian.AppendUint64(text, uint64(expires.UnixMicro()))
	return base64.RawURLEncoding.EncodeToString(append(text, signature(key, company, text)...))
}

// signature is that of a company's challenge, whose text has one length.
func signature(key []byte, company string, text []byte) []byte {
	mac := hmac.New(sha256.New, key)
	mac.Write(text)
	mac.Write([]byte(company))
	return mac.Sum(nil)[:challengeBytes-challengeText]
}

// worked returns the challenge of the company that a response answers with enough
// zero bits in time, and whether it is such a response.
func worked(key []byte, company string, zeros int, response string, now time.Time) (challenge string, ok bool) {
	challenge, n, _ := strings.Cut(response, ".")
	if n == "" || strings.Trim(n, "0123456789") != "" || len(challenge) != base64.RawURLEncoding.EncodedLen(challengeBytes) {
		return "", false
	}
	var raw [challengeBytes]byte
	length, err := base64.RawURLEncoding.Strict().Decode(raw[:], []byte(challenge))
	if err != nil || length != challengeBytes { // it skips line breaks
		return "", false
	}
	text := raw[:challengeText]
	if !hmac.Equal(signature(key, company, text), raw[challengeText:]) {
		return "", false
	}
	expires := time.UnixMicro(int64(binary.BigEndian.Uint64(text[challengeRandom:])))
	hash := sha256.Sum256([]byte(response))
	return challenge, now.Before(expires) && bits.LeadingZeros64(binary.BigEndian.Uint64(hash[:])) >= zeros
}
