package flows

import (
	"context"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// challengeLife is how long a challenge is valid. It must be less than tokens.SpentMemory.
const challengeLife = 5 * time.Minute

// A Challenge is what a client needs to solve captcha pow, ready to be marshalled.
type Challenge struct {
	// The beginning of the captcha_response. It is opaque to clients.
	Challenge string `json:"challenge"`
	// The number of zero bits at the beginning of the hash.
	Bits int `json:"bits"`
	// Seconds for which the challenge is valid.
	ExpiresIn int `json:"expires_in"`
}

// Challenge returns a new challenge of the company whose API key was sent. The error is
// wire.ErrNoRoute if the company's captcha is not pow. Challenge uses only Company,
// APIKeys and PageKey of the Request.
func (s *Service) Challenge(ctx context.Context, r *Request) (c Challenge, err error) {
	ctx = record.WithStoreTime(ctx)
	defer func() { err = s.unanswered(ctx, r, "captcha", err) }()
	company, _, err := s.companyOf(ctx, r)
	if err != nil {
		return Challenge{}, err
	}
	work, ok := company.Captcha.(tenant.ProofOfWork)
	if !ok {
		return Challenge{}, &wire.Refusal{Err: wire.ErrNoRoute, Message: "The captcha of this company is not pow. client.json names it."}
	}
	keys, err := s.Keys(ctx)
	if err != nil {
		return Challenge{}, err
	}
	challenge := keys.NewChallenge(r.Company, s.Now().Add(challengeLife))
	return Challenge{challenge, work.Bits(), int(challengeLife / time.Second)}, nil
}
