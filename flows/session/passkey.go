package session

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// SpendPasskeyChallenge marks a valid challenge as used, on all nodes. It returns false if
// the challenge was used before. Each challenge counts as a login of the address, so
// strangers can't fill the store with used challenges.
func SpendPasskeyChallenge(ctx context.Context, at *limits.Attempt, challenge []byte) (first bool, err error) {
	hash := sha256.Sum256(challenge)
	// The challenge expires by the clock of the node that made it, which may be ahead.
	used := at.Counter("passkey", hex.EncodeToString(hash[:]), tenant.Rate{N: 1, Per: time.Hour})
	return at.MarkUsed(ctx, used, append(at.AddressCounters(), at.AddressLogins()...)...)
}
