package flows_test

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"
	"golang.org/x/text/unicode/norm"

	"github.com/mnemogate/mnemogate/flows/manage"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// importedKinds hashes a password as other programs do, without normalizing it.
var importedKinds = map[string]func(t *testing.T, password string) string{
	"bcrypt": bcryptHash,
	"bcrypt_sha256": func(t *testing.T, password string) string {
		sum := sha256.Sum256([]byte(password))
		return "bcrypt_sha256$" + bcryptHash(t, hex.EncodeToString(sum[:]))
	},
	"argon2id with the parameters of our own": func(_ *testing.T, password string) string {
		salt := []byte("0123456789abcdef")
		key := argon2.IDKey([]byte(password), salt, cheap.Iterations, cheap.MemoryKiB, cheap.Parallelism, 32)
		return fmt.Sprintf("$argon2id$v=19$m=%d,t=%d,p=%d$%s$%s", cheap.MemoryKiB, cheap.Iterations, cheap.Parallelism,
			base64.RawStdEncoding.EncodeToString(salt), base64.RawStdEncoding.EncodeToString(key))
	},
}

func bcryptHash(t *testing.T, password string) string {
	hash, err := bcrypt.GenerateFromPassword([]byte(password)[:min(len(password), 72)], bcrypt.MinCost)
	must(t, err)
	return string(hash)
}

// withHash gives the account an imported hash.
func (b *harness) withHash(hash string) {
	b.t.Helper()
	b.update(true, func(a *record.Account) { a.PasswordHash = hash })
}

func (b *harness) login(password string) error {
	_, err := b.serve("auth/checkcredentials", "", object{"login_id": email, "password": password})
	return err
}

// NFKC changes these passwords. Users can enter them as they were typed when the
// hash was made, or in another spelling.
func TestAnImportedHashIsOfThePasswordAsItWasTyped(t *testing.T) {
	for typed, other := range map[string]string{
		"flat of 50m²":           "flat of 50m2",
		"narrow\u00a0space":      "narrow space",
		"½ cup of flour":         "1⁄2 cup of flour",
		"A\u030angstro\u0308m 1": "Ångström 1",
	} {
		for kind, hash := range importedKinds {
			t.Run(fmt.Sprintf("%s/%+q", kind, typed), func(t *testing.T) {
				b := newHarness(t)
				b.withHash(hash(t, typed))
				imported := b.load().PasswordHash
				wantError(t, b.login(other), wire.ErrCredentialsInvalid)
				if err := b.login(typed); err != nil {
					t.Fatalf("the password as it was typed: %v", err)
				}
				if stored := b.load().PasswordHash; !strings.HasPrefix(stored, "$argon2id$") || stored == imported {
					t.Error("the hash was not replaced")
				}
				for _, spelling := range []string{typed, other} { // from now on both spellings are the same password
					if err := b.login(spelling); err != nil {
						t.Errorf("%+q after that: %v", spelling, err)
					}
				}
			})
		}
	}
}

func TestAnImportedHashMayBeOfTheNormalisedPassword(t *testing.T) {
	b := newHarness(t)
	b.withHash(bcryptHash(t, norm.NFKC.String("flat of 50m²")))
	if err := b.login("flat of 50m²"); err != nil {
		t.Error(err)
	}
}

// A password costs one hash, or two if NFKC changes it. This holds for hashes of our own,
// imported hashes and accounts without one. Both hashes count as one attempt.
func TestBothFormsOfAPasswordAreOneAttempt(t *testing.T) {
	for name, prepare := range map[string]func(b *harness){
		"our own":    func(*harness) {},
		"imported":   func(b *harness) { b.withHash(bcryptHash(b.t, "flat of 50m²")) },
		"no hash":    func(b *harness) { b.withoutPassword() },
		"no account": func(b *harness) { b.update(true, func(a *record.Account) { a.Email = "other@example.com" }) },
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.company.Limits.LockAfter = 2
			prepare(b)
			hashes := b.countHashes()
			for wrong, want := range map[string]int64{"wrong": 1, "wrong²": 2} {
				before := hashes.Load()
				wantError(t, b.login(wrong), wire.ErrCredentialsInvalid)
				if got := hashes.Load() - before; got != want {
					t.Errorf("%q costs %d hashes, want %d", wrong, got, want)
				}
			}
			wantError(t, b.login("wrong"), wire.ErrRestricted) // after exactly two attempts
		})
	}
}

func TestARightPasswordCostsAsMuchAsAWrongOne(t *testing.T) {
	for right, want := range map[string]int64{password: 1, "flat of 50m²": 2} {
		b := newHarness(t)
		b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "another fine secret"})
		b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": right})
		hashes := b.countHashes()
		if err := b.login(right); err != nil || hashes.Load() != want {
			t.Errorf("%q: %v, %d hashes", right, err, hashes.Load())
		}
	}
}

// bcrypt compares only 72 bytes. A user with a mistake after them still gets in, as
// before the import. The login must not store the mistyped password.
func TestAHashThatMayHaveCutThePasswordIsKept(t *testing.T) {
	long := strings.Repeat("long password ", 6) // 84 bytes
	for _, c := range []struct {
		name, hashed, typed string
		kept                bool
	}{
		{"right", long, long, true},
		{"wrong behind the 72nd byte", long, long[:80], true},
		{"nothing behind the 72nd byte", long, long[:72], true},
		{"of 71 bytes", long[:71], long[:71], false},
		{"cut as it was typed, not as it is normalised", "flat of 50m²" + long, "flat of 50m²" + long, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newHarness(t)
			b.withHash(bcryptHash(t, c.hashed))
			imported := b.load().PasswordHash
			must(t, b.login(c.typed))
			if kept := b.load().PasswordHash == imported; kept != c.kept {
				t.Errorf("the hash is kept: %v, want %v", kept, c.kept)
			}
			if err := b.login(c.hashed); err != nil {
				t.Errorf("the right password after that: %v", err)
			}
		})
	}
	t.Run("WordPress removes the space around it", func(t *testing.T) {
		b := newHarness(t)
		b.withHash("$P$BAjRKiNGO0k5oMn46AhfMv4WChdjMq1")
		for _, typed := range []string{"correct horse battery ", "correct horse battery", "correct horse battery"} {
			if err := b.login(typed); err != nil {
				t.Errorf("%q: %v", typed, err)
			}
		}
		if !strings.HasPrefix(b.load().PasswordHash, "$argon2id$") {
			t.Error("the hash was not replaced")
		}
	})
	t.Run("bcrypt_sha256 sees all", func(t *testing.T) {
		b := newHarness(t)
		b.withHash(importedKinds["bcrypt_sha256"](t, long))
		wantError(t, b.login(long[:80]), wire.ErrCredentialsInvalid)
		if err := b.login(long); err != nil || !strings.HasPrefix(b.load().PasswordHash, "$argon2id$") {
			t.Errorf("%v, and the hash is a %.4s", err, b.load().PasswordHash)
		}
	})
}

func TestThePresentPasswordIsKnownAsItWasTyped(t *testing.T) {
	b := newHarness(t)
	b.withHash(bcryptHash(t, "flat of 50m²"))
	b.wrong(wire.ErrPasswordSame, "auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "flat of 50m²"})
}

// The company's own parameters may be more expensive than those that imports for others
// accept.
func TestPlainPasswordsAreHashedWithParametersThatNoOtherMayImport(t *testing.T) {
	b := newHarness(t)
	b.company.Password.Argon2id = pw.Argon2id{MemoryKiB: 262144, Iterations: 5, Parallelism: 1}
	b.Hasher.Derive = func(string, string) ([]byte, error) { return make([]byte, 32), nil } // at once
	b.seed(manage.Seed{
		Account:  record.Account{Mnemocode: "bob", LoginName: "bob", Question: "Name of your first cat?"},
		Password: password, Answer: answer,
	})
	bob, err := b.Accounts.ByMnemocode(t.Context(), code, "bob")
	must(t, err)
	if pw.CheckHash(bob.PasswordHash, pw.Argon2id{}) == nil || pw.CheckHash(bob.AnswerHash, pw.Argon2id{}) == nil {
		t.Error("any company could import these hashes, so this shows nothing")
	}
}
