package record

import (
	"context"
	"time"
)

// A SigningKey is a company's key that signs assertions.
type SigningKey struct {
	Number  int64  // 1 for the company's first key; each later one has the next number
	Sealed  string // the private key, encrypted with a key that is derived from a Secret
	Created time.Time
}

// SigningKeys keeps the companies' signing keys.
type SigningKeys interface {
	// SigningKeys returns the company's keys, ordered by Number.
	SigningKeys(ctx context.Context, company string) ([]SigningKey, error)
	// AddSigningKey stores a key. It returns ErrConflict if the company has a key
	// with this Number. Of several callers with the same number, one succeeds.
	AddSigningKey(ctx context.Context, company string, key SigningKey) error
	// RemoveSigningKeys deletes the company's keys whose Number is below number.
	RemoveSigningKeys(ctx context.Context, company string, number int64) error
}
