package flows

import (
	"context"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
	"golang.org/x/crypto/chacha20poly1305"
)

// An authenticator app shows a code for each step of time, made of a secret that
// it shares with the server (RFC 6238). For an account that has one the code
// needs no phone, and no session: what is kept of it is only that it was used.

const (
	totpStep        = 30 * time.Second
	totpDrift       = 1  // how many steps the app's clock may be off
	totpSecretBytes = 20 // RFC 4226, section 4
	// What is imported may be of another program. 128 bits are the least of RFC 4226.
	minTOTPSecret = 16
	maxTOTPSecret = 64
)

var totpBase32 = base32.StdEncoding.WithPadding(base32.NoPadding)

// totpCode is the code of a step: HOTP of its number (RFC 4226, section 5.3).
func totpCode(secret []byte, step int64) string {
	mac := hmac.New(sha1.New, secret)
	mac.Write(binary.BigEndian.AppendUint64(nil, uint64(step)))
	sum := mac.Sum(nil)
	number := binary.BigEndian.Uint32(sum[sum[len(sum)-1]&0xf:]) & 0x7fffffff
	return fmt.Sprintf("%06d", number%1_000_000)
}

// matchTOTP returns the step whose code was sent. All that could be right are
// compared, whichever is.
func matchTOTP(secret []byte, code string, now time.Time) (step int64, ok bool) {
	present := now.Unix() / int64(totpStep/time.Second)
	for s := present - totpDrift; s <= present+totpDrift; s++ {
		if subtle.ConstantTimeCompare([]byte(totpCode(secret, s)), []byte(code)) == 1 {
			step, ok = s, true
		}
	}
	return step, ok
}

// tryApp compares a code with the app's. A wrong one counts and spends nothing; a
// right one is spent by this, also if the disclaimers are then what fails.
func (s *Service) tryApp(ctx context.Context, c *call, a record.Account, code string) (step, error) {
	secret, err := s.openTOTP(ctx, a.Company, a.TOTP)
	if err != nil {
		return step{}, err
	}
	at, right := matchTOTP(secret, code, c.now)
	err = s.settleWindow(ctx, c, c.subject(a, ""), record.WrongCodes, c.company.Limits.WrongCodes, right)
	if err == nil && !right {
		err = errAppCode
	}
	if err == nil {
		err = s.spendTOTP(ctx, c.now, a.Company, a.TOTP, at)
	}
	return step{account: a}, err
}

var errAppCode = &wire.Refusal{Err: wire.ErrOTPInvalid, Message: "The code is wrong or was used; send the next one that the authenticator app shows."}

// spendTOTP lets the code of a step count once, in all sessions and on all nodes,
// for as long as it could be right. It is errAppCode for a code that was used:
// that is no guess, so it does not count as one.
func (s *Service) spendTOTP(ctx context.Context, now time.Time, company, sealed string, step int64) error {
	of := sha256.Sum256([]byte(sealed))
	until := time.Unix((step+1+totpDrift)*int64(totpStep/time.Second), 0)
	err := s.Sessions.Charge(ctx, now, record.Counter{
		Key:    counterKey(company, "totp", hex.EncodeToString(of[:16])+"/"+strconv.FormatInt(step, 10)),
		Limit:  1,
		Window: until.Sub(now),
	})
	if _, used := errors.AsType[*record.Full](err); used {
		return errAppCode
	}
	if err != nil {
		return wire.Unavailable("spending the code of an app", err)
	}
	return nil
}

// A store holds an app's secret sealed, for its company.

func newTOTPSealer(storeSecret []byte) (cipher.AEAD, error) {
	return newSealer(storeSecret, "mnemogate authenticator apps")
}

func sealTOTP(sealer cipher.AEAD, company string, secret []byte) string {
	nonce := make([]byte, chacha20poly1305.NonceSizeX)
	rand.Read(nonce) // never fails: it ends the process instead
	return base64.RawStdEncoding.EncodeToString(sealer.Seal(nonce, nonce, secret, []byte(company)))
}

func unsealTOTP(sealer cipher.AEAD, company, sealed string) ([]byte, error) {
	raw, err := base64.RawStdEncoding.DecodeString(sealed)
	if err == nil && len(raw) < chacha20poly1305.NonceSizeX {
		err = errors.New("it is cut")
	}
	if err != nil {
		return nil, err
	}
	return sealer.Open(nil, raw[:chacha20poly1305.NonceSizeX], raw[chacha20poly1305.NonceSizeX:], []byte(company))
}

func (s *Service) openTOTP(ctx context.Context, company, sealed string) ([]byte, error) {
	secrets, err := s.storeSecrets(ctx)
	if err != nil {
		return nil, err
	}
	secret, err := unsealTOTP(secrets.totp, company, sealed)
	if err != nil {
		return nil, fmt.Errorf("opening the sealed secret of an app (was the store's own secret changed?): %w", err)
	}
	return secret, nil
}

// What an operator or a backend does with apps.

// ErrAppCode: a code at ConfirmTOTP is wrong, or was used.
var ErrAppCode = errors.New("the code is wrong or was used: send the next one that the app shows")

// ErrNoTOTP: there is no secret that waits to be confirmed.
var ErrNoTOTP = errors.New("there is no secret to confirm: make one first")

// A TOTPSecret is shown once, to be taken over by an authenticator app.
type TOTPSecret struct {
	Secret string `json:"secret"` // base32
	URI    string `json:"uri"`    // otpauth://…, for a QR code
}

// NewTOTP makes a secret for an authenticator app. It is of no use before
// ConfirmTOTP; one that was confirmed before stays in force until then.
func (ad *Admin) NewTOTP(ctx context.Context, mnemocode string) (TOTPSecret, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return TOTPSecret{}, err
	}
	secrets, err := ad.storeSecrets(ctx)
	if err != nil {
		return TOTPSecret{}, err
	}
	secret := make([]byte, totpSecretBytes)
	rand.Read(secret) // never fails: it ends the process instead
	sealed := sealTOTP(secrets.totp, a.Company, secret)
	_, err = ad.Accounts.Update(ctx, a.Company, a.ID, func(a *record.Account) (ends bool, err error) {
		a.TOTPPending = sealed
		return false, nil
	})
	if err != nil {
		return TOTPSecret{}, adminError("storing the secret of an app", err)
	}
	ad.audit(ctx, record.AccountTOTP, a, "")
	return TOTPSecret{Secret: totpBase32.EncodeToString(secret), URI: totpURI(a, secret)}, nil
}

// totpURI is what apps read from a QR code. What they show of it names the
// company, and the account by what its user knows it by.
func totpURI(a record.Account, secret []byte) string {
	name := a.Mnemocode
	for _, id := range []string{a.Phone, a.LoginName, a.Email} {
		if id != "" {
			name = id
		}
	}
	label := url.PathEscape(a.Company + ":" + name)
	return "otpauth://totp/" + label + "?secret=" + totpBase32.EncodeToString(secret) +
		"&issuer=" + url.QueryEscape(a.Company) + "&algorithm=SHA1&digits=6&period=30"
}

// ConfirmTOTP puts the newest secret in force, if code is one of its codes, and
// ends the account's sessions, as any change of the second factor does. The code
// is then spent. ErrAppCode, ErrNoTOTP.
func (ad *Admin) ConfirmTOTP(ctx context.Context, mnemocode, code string) (record.Account, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return record.Account{}, err
	}
	pending := a.TOTPPending
	if pending == "" {
		return record.Account{}, ErrNoTOTP
	}
	secret, err := ad.openTOTP(ctx, a.Company, pending)
	if err != nil {
		return record.Account{}, err
	}
	step, ok := matchTOTP(secret, code, ad.Now())
	if !ok {
		return record.Account{}, ErrAppCode
	}
	if err := ad.spendTOTP(ctx, ad.Now(), a.Company, pending, step); err != nil {
		if errors.Is(err, wire.ErrOTPInvalid) {
			return record.Account{}, ErrAppCode
		}
		return record.Account{}, err
	}
	return ad.changeTOTP(ctx, a, func(a *record.Account) error {
		if a.TOTPPending != pending {
			return ErrAppCode // another secret was made meanwhile
		}
		a.TOTP, a.TOTPPending = pending, ""
		return nil
	})
}

// RemoveTOTP takes the app away, and a secret that waits to be confirmed. Where
// one was in force the account's sessions end.
func (ad *Admin) RemoveTOTP(ctx context.Context, mnemocode string) (record.Account, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return record.Account{}, err
	}
	return ad.changeTOTP(ctx, a, func(a *record.Account) error {
		if a.TOTP == "" && a.TOTPPending == "" {
			return errUnchanged
		}
		a.TOTP, a.TOTPPending = "", ""
		return nil
	})
}

func (ad *Admin) changeTOTP(ctx context.Context, a record.Account, change func(*record.Account) error) (record.Account, error) {
	var before record.Account
	var fields []string
	told := ad.tell(ad.Company, func() []fact { return changeFacts(before, before, fields) })
	stored, err := ad.Accounts.Update(ctx, a.Company, a.ID, func(a *record.Account) (ends bool, err error) {
		before, fields = *a, nil
		if err := change(a); err != nil {
			return false, err
		}
		if a.TOTP == before.TOTP {
			return false, nil
		}
		fields = []string{"totp"}
		a.Updated = ad.Now()
		return true, nil
	}, told...)
	if errors.Is(err, errUnchanged) {
		return before, nil
	}
	if errors.Is(err, ErrAppCode) {
		return record.Account{}, err
	}
	if err != nil {
		return record.Account{}, adminError("changing the app", err)
	}
	_, err = ad.finish(ctx, before, stored, fields, Change{})
	return stored, err
}

// ParseTOTPSecret reads a secret in base32, as TOTPSecret has it or in groups.
func ParseTOTPSecret(text string) ([]byte, error) {
	text = strings.TrimRight(strings.ToUpper(strings.NewReplacer(" ", "", "-", "").Replace(text)), "=")
	secret, err := totpBase32.DecodeString(text)
	if err != nil || len(secret) < minTOTPSecret || len(secret) > maxTOTPSecret {
		return nil, fmt.Errorf("it must be base32 of %d to %d bytes", minTOTPSecret, maxTOTPSecret)
	}
	return secret, nil
}

// ExportTOTP returns the secret that is in force, in base32; empty for none.
func (ad *Admin) ExportTOTP(ctx context.Context, a record.Account) (string, error) {
	if a.TOTP == "" {
		return "", nil
	}
	secret, err := ad.openTOTP(ctx, a.Company, a.TOTP)
	return totpBase32.EncodeToString(secret), err
}

// importTOTP returns a function that puts a secret in force. It leaves the same
// one as it is: sealed once more it would look like another.
func (ad *Admin) importTOTP(ctx context.Context, secret []byte) (func(*record.Account), error) {
	if secret == nil {
		return func(*record.Account) {}, nil
	}
	secrets, err := ad.storeSecrets(ctx)
	if err != nil {
		return nil, err
	}
	sealed := sealTOTP(secrets.totp, ad.Company.Code, secret)
	return func(a *record.Account) {
		present, err := unsealTOTP(secrets.totp, ad.Company.Code, a.TOTP)
		if err != nil || !slices.Equal(present, secret) {
			a.TOTP, a.TOTPPending = sealed, ""
		}
	}, nil
}
