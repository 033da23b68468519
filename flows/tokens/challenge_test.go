package tokens

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// life is the lifetime of the challenges in these tests.
const life = 5 * time.Minute

func solve(challenge string, zeros int) string {
	response := []byte(challenge + ".")
	for n := int64(0); ; n++ {
		response = strconv.AppendInt(response[:len(challenge)+1], n, 10)
		if hash := sha256.Sum256(response); hash[0] == 0 && leadingZeros(hash[:]) >= zeros {
			return string(response)
		}
	}
}

// leadingZeros counts in another way than VerifyWork does.
func leadingZeros(hash []byte) (n int) {
	for _, b := range fmt.Sprintf("%08b", hash) {
		switch b {
		case '0':
			n++
		case '1':
			return n
		}
	}
	return n
}

// What works once is forgotten after SpentMemory, so it must expire before, whoever signed it.
func TestWhatWorksOnceExpiresBeforeItIsForgotten(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	keys, err := NewKeys([]record.Secret{{Value: make([]byte, 32)}}, now)
	must(t, err)
	for ahead, want := range map[time.Duration]bool{life: true, SpentMemory: true, SpentMemory + time.Second: false, 100 * 365 * 24 * time.Hour: false} {
		passkey := FormatPasskeyChallenge(keys.NewPasskeyChallenge("acme", 0, nil, now.Add(ahead)))
		if _, ok := keys.OpenPasskeyChallenge("acme", 0, nil, passkey, now); ok != want {
			t.Errorf("a passkey's challenge that expires in %v: %v", ahead, ok)
		}
		if _, ok := keys.VerifyWork("acme", 0, keys.NewChallenge("acme", now.Add(ahead))+".1", now); ok != want {
			t.Errorf("a captcha's challenge that expires in %v: %v", ahead, ok)
		}
	}
}

// FuzzWork checks that only answers to the one challenge that was issued are
// accepted.
func FuzzWork(f *testing.F) {
	key, now := []byte("0123456789abcdef0123456789abcdef"), time.Unix(1_800_000_000, 0)
	keys, others := &Keys{challenges: [][]byte{key}}, &Keys{challenges: [][]byte{key[1:]}}
	text := binary.BigEndian.AppendUint64(make([]byte, challengeTicket.random), uint64(now.Add(life).UnixMicro()))
	challenge := base64.RawURLEncoding.EncodeToString(append(text, challengeTicket.sign(key, "acme", text)...)) // the same in all processes
	right := solve(challenge, 8)
	if _, ok := keys.VerifyWork("acme", 8, right, now); !ok {
		f.Fatalf("%s is wrong", right)
	}
	for _, s := range []string{
		right, right + " ", right + "\n", strings.Replace(right, ".", ".00", 1), challenge, challenge + ".", "." + right, ".", "",
		solve(keys.NewChallenge("umbrella", now.Add(life)), 8), solve(others.NewChallenge("acme", now.Add(life)), 8),
		solve(keys.NewChallenge("acme", now), 8), strings.Repeat("A", 44) + ".1", "\r\n" + right, right + "\u0660",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, response string) {
		got, ok := keys.VerifyWork("acme", 8, response, now)
		if !ok {
			return
		}
		hash := sha256.Sum256([]byte(response))
		n, found := strings.CutPrefix(response, challenge+".")
		if !found || got != challenge || strings.Trim(n, "0123456789") != "" || leadingZeros(hash[:]) < 8 {
			t.Errorf("%q, whose hash is %s, is good", response, hex.EncodeToString(hash[:]))
		}
	})
}
