package tokens

import (
	"strings"
	"testing"

	"github.com/mnemogate/mnemogate/flows/record"
)

func TestTokensAreDrawnIntoTheirBucket(t *testing.T) {
	seen := map[string]bool{}
	for i := range 64 * record.Buckets {
		token, hash := New(Prefix, i%record.Buckets)
		if hash.Bucket() != i%record.Buckets || hash != record.HashToken(token) || !IsWellFormed(Prefix, token) {
			t.Fatalf("bucket %d: %q has the hash %x in bucket %d", i%record.Buckets, token, hash, hash.Bucket())
		}
		// Neither the part that is drawn once nor the part that is drawn until it
		// fits the bucket repeats.
		for _, part := range []string{strings.TrimPrefix(token, Prefix)[:32], token[len(token)-11:]} {
			if seen[part] {
				t.Fatalf("%q comes twice", part)
			}
			seen[part] = true
		}
	}
}
