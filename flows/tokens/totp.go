package tokens

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
)

// An authenticator app shows a code for each time step, computed from a secret that it
// shares with the server (RFC 6238). The code needs no phone and no session. A store only
// keeps that a code was used.

const (
	TOTPDigits      = 6
	totpStep        = 30 * time.Second
	totpDrift       = 1  // how many time steps the app's clock may be wrong
	totpSecretBytes = 20 // RFC 4226, section 4
	// Imported secrets may come from other programs. RFC 4226 requires at least 128 bits.
	minTOTPSecret = 16
	maxTOTPSecret = 64
)

var totpBase32 = base32.StdEncoding.WithPadding(base32.NoPadding)

// TOTPCode returns the code of a time step: the HOTP of its number (RFC 4226, section
// 5.3).
func TOTPCode(secret []byte, step int64) string {
	mac := hmac.New(sha1.New, secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(step)))
	sum := mac.Sum(nil)
	number := binary.BigEndian.Uint32(sum[sum[len(sum)-1]&0xf:]) & 0x7fffffff
	return fmt.Sprintf("%0*d", TOTPDigits, number%1_000_000)
}

// MatchTOTP returns the time step of the code. It compares with every possible code
// even after a match, so that timing reveals nothing.
func MatchTOTP(secret []byte, code string, now time.Time) (step int64, ok bool) {
	present := now.Unix() / int64(totpStep/time.Second)
	for s := present - totpDrift; s <= present+totpDrift; s++ {
		if subtle.ConstantTimeCompare([]byte(TOTPCode(secret, s)), []byte(code)) == 1 {
			step, ok = s, true
		}
	}
	return step, ok
}

// TOTPEnds returns when the code of a time step becomes invalid.
func TOTPEnds(step int64) time.Time {
	return time.Unix((step+1+totpDrift)*int64(totpStep/time.Second), 0)
}

// NewTOTPSecret returns a new secret for an app.
func NewTOTPSecret() []byte {
	secret := make([]byte, totpSecretBytes)
	rand.Read(secret)
	return secret
}

// FormatTOTPSecret encodes a secret in base32.
func FormatTOTPSecret(secret []byte) string { return totpBase32.EncodeToString(secret) }

// ParseTOTPSecret decodes a secret in base32, which may be split into groups.
func ParseTOTPSecret(text string) ([]byte, error) {
	text = strings.TrimRight(strings.ToUpper(strings.NewReplacer(" ", "", "-", "").Replace(text)), "=")
	secret, err := totpBase32.DecodeString(text)
	if err != nil || len(secret) < minTOTPSecret || len(secret) > maxTOTPSecret {
		return nil, fmt.Errorf("it must be base32 of %d to %d bytes", minTOTPSecret, maxTOTPSecret)
	}
	return secret, nil
}

// SealTOTP encrypts the secret of an app for its company.
func (k *Keys) SealTOTP(company string, secret []byte) string {
	return seal(k.apps[0], company, secret)
}

// ResealTOTP encrypts for a company, with the current secret, what SealTOTP has encrypted for
// another or with an older one. It returns sealed itself if there is nothing to do, or
// nothing that it can do.
func (k *Keys) ResealTOTP(from, to, sealed string) string {
	secret, with, err := open(k.apps, from, sealed)
	if err != nil || from == to && with >= k.Secret() {
		return sealed
	}
	return k.SealTOTP(to, secret)
}

// OpenTOTP decrypts the result of SealTOTP.
func (k *Keys) OpenTOTP(company, sealed string) ([]byte, error) {
	secret, _, err := open(k.apps, company, sealed)
	if err != nil {
		return nil, fmt.Errorf("opening the sealed secret of an app (were the store's own secrets changed?): %w", err)
	}
	return secret, nil
}
