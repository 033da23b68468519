package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// SpendPasskeyChallenge marks a valid challenge as used, on all nodes, and charges the
// counters in the same step. It returns false if the challenge was used before.
func (s *Manager) SpendPasskeyChallenge(ctx context.Context, at *limits.Attempt, challenge []byte, counters ...record.Counter) (bool, error) {
	hash := sha256.Sum256(challenge)
	used := at.Counter("passkey", hex.EncodeToString(hash[:]), tenant.Rate{N: 1, Per: tenant.PasskeyLife})
	err := s.Sessions.Charge(ctx, at.Now, append(counters, used)...)
	if full, ok := errors.AsType[*record.Full](err); ok && full.Key == used.Key {
		return false, nil
	}
	return err == nil, at.Refused(err)
}
