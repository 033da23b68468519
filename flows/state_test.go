package flows

import (
	"strings"
	"testing"
)

func TestTokensAreDrawnIntoTheirBucket(t *testing.T) {
	seen := map[string]bool{}
	for i := range 64 * Buckets {
		token, hash := newToken(tokenPrefix, i%Buckets)
		if hash.Bucket() != i%Buckets || hash != hashToken(token) || !tokenShaped(tokenPrefix, token) {
			t.Fatalf("bucket %d: %q has the hash %x in bucket %d", i%Buckets, token, hash, hash.Bucket())
		}
		// Neither what is drawn once nor what is drawn until it fits comes twice.
		for _, part := range []string{strings.TrimPrefix(token, tokenPrefix)[:32], token[len(token)-11:]} {
			if seen[part] {
				t.Fatalf("%q comes twice", part)
			}
			seen[part] = true
		}
	}
}

func BenchmarkNewToken(b *testing.B) {
	b.ReportAllocs()
	for i := range b.N {
		newToken(tokenPrefix, i%Buckets)
	}
}
