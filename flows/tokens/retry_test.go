package tokens

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A store with a kept answer shows neither the request nor the answer. Only the same request
// opens it, on every node and after a change of the secret.
func TestAnAnswerIsSealedForItsRequest(t *testing.T) {
	now := time.Now()
	first := record.Secret{Value: bytes.Repeat([]byte{1}, 32)}
	one, err := NewKeys([]record.Secret{first}, now)
	must(t, err)
	two, err := NewKeys([]record.Secret{first, {Number: 1, Value: bytes.Repeat([]byte{2}, 32), Begins: now}}, now)
	must(t, err)
	other, err := NewKeys([]record.Secret{{Value: bytes.Repeat([]byte{3}, 32)}}, now)
	must(t, err)
	parts, answer := []string{"route", "token", "body"}, []byte("a new token")
	sealed, err := one.SealAnswer(answer, parts...)
	must(t, err)
	if again, err := one.SealAnswer(answer, parts...); err != nil || bytes.Equal(again[:24], sealed[:24]) {
		t.Errorf("two answers have one nonce: %v", err)
	}
	stored := one.RetryName(parts...) + string(sealed)
	for _, part := range append(parts, string(answer)) {
		if strings.Contains(stored, part) {
			t.Errorf("the store shows %q", part)
		}
	}
	if got, err := two.OpenAnswer(sealed, parts...); err != nil || !bytes.Equal(got, answer) || two.RetryName(parts...) != one.RetryName(parts...) {
		t.Errorf("another node opens it as %q, %v", got, err)
	}
	for _, wrong := range [][]string{{"route", "token", "bod"}, {"route", "tokenb", "ody"}, {"route", "token"}, {"route", "token", "body", ""}, nil} {
		if got, err := one.OpenAnswer(sealed, wrong...); err == nil {
			t.Errorf("%q opens it as %q", wrong, got)
		}
		if one.RetryName(wrong...) == one.RetryName(parts...) {
			t.Errorf("%q has the same name", wrong)
		}
	}
	if _, err := other.OpenAnswer(sealed, parts...); err == nil || other.RetryName(parts...) == one.RetryName(parts...) {
		t.Error("another deployment opens it")
	}
	for n := range sealed {
		if _, err := one.OpenAnswer(sealed[:n], parts...); err == nil {
			t.Errorf("the first %d bytes can be opened", n)
		}
	}
}
