package guest

import (
	"strings"
	"testing"
)

// The digest of a variable that was not set would admit those who send an empty key.
func TestTheDigestOfNothingIsNoKey(t *testing.T) {
	for key, want := range map[string]string{
		"sha256:E3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855": "the SHA-256 of nothing",
		"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b857": "",
		"": "it is empty",
	} {
		if _, err := HashKey(key); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", key, err)
		}
	}
}
