package api

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Fields lists the writable fields of an account in the order in which they are applied.
// A question comes before its answer, because removing the question also removes the
// answer.
var Fields = append(plain(), "password", "password_hash", "control_answer", "control_answer_hash",
	"oauth_identities", "disclaimers_accepted", "backup_code_hashes", "totp_secret", "user_handle", "passkeys", "created_at")

func plain() (names []string) {
	for _, f := range record.Fields {
		if !f.Secret {
			names = append(names, f.Name)
		}
	}
	return names
}

// OnlyImported lists the Fields that only an import accepts.
var OnlyImported = []string{"control_answer_hash", "backup_code_hashes", "totp_secret", "user_handle", "passkeys", "created_at"}

// Proofs lists what a request to create or change an account can have beside its Fields.
// KeepSession is only for a change.
var Proofs = []string{record.Phone.ProofField(), record.Email.ProofField()}

// KeepSession names the field of a change that spares a session.
const KeepSession = "keep_session"

// An Account is an account as the accounts API shows it. Every field is always present.
type Account struct {
	// Identifies the account, and its user to the application: visible ASCII, no braces.
	Mnemocode string `json:"profile_mnemocode"`
	// The application decides what it means.
	Role *string `json:"role"`
	// An international number. It is a login id.
	Phone *string `json:"primary_phone"`
	// A login id.
	Email *string `json:"primary_email"`
	// When the owner has proven the phone, or used a code that was sent there, or when a
	// backend says so. A new phone without phone_proof was not proven.
	PhoneVerified *time.Time `json:"phone_verified_at"`
	// When the owner has proven the email, or used a link that was sent there, or when a
	// backend says so. A new email without email_proof was not proven.
	EmailVerified *time.Time `json:"email_verified_at"`
	// A login id.
	LoginName *string `json:"login_name"`
	// The owner's language, as a BCP 47 tag such as lt or pt-BR: for SMS, mails and, after
	// Accept-Language, disclaimers.
	Locale *string `json:"locale"`
	// Only active accounts can log in.
	Status record.Status `json:"status"`
	// A one-time code follows the password.
	SecondFactor bool `json:"second_factor"`
	// The next login must set a new password. A new password clears this field, unless the
	// request sets it.
	MustSetPassword bool `json:"must_set_password"`
	// The account has a password.
	PasswordSet bool `json:"password_set"`
	// For a recovery by QUESTION. Set it together with control_answer.
	Question *string `json:"control_question"`
	// The number of codes that are left.
	BackupCodes int `json:"backup_codes_left"`
	// An authenticator app was confirmed.
	TOTP bool `json:"totp"`
	// The number of passkeys.
	Passkeys int `json:"passkeys"`
	// Users of OAuth providers who log in to the account, at most one for each provider.
	Identities []Identity `json:"oauth_identities"`
	// Accepted disclaimers can't be withdrawn.
	Accepted []Acceptance `json:"disclaimers_accepted"`
	// The end of the longest lock after wrong attempts; 9999-12-31T23:59:59Z if waiting does not
	// end it. With `hardened`, a list leaves out the locks of login ids: ask for the account by
	// its mnemocode.
	LockedUntil *time.Time `json:"locked_until"`
	// The next password needs a captcha, after `captcha_after` wrong ones. False if the company
	// has no captcha. With `hardened`, a list leaves out the wrong passwords that count for a
	// login id.
	CaptchaDue bool `json:"captcha_due"`
	// When it was created.
	Created time.Time `json:"created_at"`
	// The last change; accepted disclaimers and backup codes do not count.
	Updated time.Time `json:"updated_at"`
}

// AccountOf returns an account as the API shows it, but without its locks.
func AccountOf(a record.Account) Account {
	return Account{
		Mnemocode:       a.Mnemocode,
		Role:            text(a.Role),
		Phone:           text(a.Phone),
		Email:           text(a.Email),
		PhoneVerified:   instant(a.PhoneVerified),
		EmailVerified:   instant(a.EmailVerified),
		LoginName:       text(a.LoginName),
		Locale:          text(a.Locale),
		Status:          a.Status,
		SecondFactor:    a.SecondFactor,
		MustSetPassword: a.MustSetPassword,
		PasswordSet:     a.PasswordHash != "",
		Question:        text(a.Question),
		BackupCodes:     a.BackupCodes,
		TOTP:            a.TOTP != "",
		Passkeys:        a.Passkeys,
		Identities:      Each(a.Identities, identityOf),
		Accepted:        Each(a.Accepted, acceptanceOf),
		Created:         a.Created.UTC(),
		Updated:         a.Updated.UTC(),
	}
}

// ETag returns the version of an account: a strong entity tag (RFC 9110, section 8.8.3) of what
// AccountOf returns. Locks are no part of it.
func ETag(a record.Account) string {
	shown, _ := json.Marshal(AccountOf(a)) // texts, numbers and times: never fails
	sum := sha256.Sum256(shown)
	return `"` + base64.RawURLEncoding.EncodeToString(sum[:12]) + `"`
}

// text returns nil for an empty text.
func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// instant returns nil for the zero time.
func instant(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return new(t.UTC())
}

// An ExportedAccount is a line of an export, in the format that import reads.
type ExportedAccount struct {
	Mnemocode       string        `json:"profile_mnemocode"`
	Role            string        `json:"role,omitempty"`
	Phone           string        `json:"primary_phone,omitempty"`
	Email           string        `json:"primary_email,omitempty"`
	PhoneVerified   time.Time     `json:"phone_verified_at,omitzero"`
	EmailVerified   time.Time     `json:"email_verified_at,omitzero"`
	LoginName       string        `json:"login_name,omitempty"`
	Locale          string        `json:"locale,omitempty"`
	Status          record.Status `json:"status"`
	SecondFactor    bool          `json:"second_factor,omitempty"`
	MustSetPassword bool          `json:"must_set_password,omitempty"`
	PasswordHash    string        `json:"password_hash,omitempty"`
	Question        string        `json:"control_question,omitempty"`
	AnswerHash      string        `json:"control_answer_hash,omitempty"`
	BackupCodes     []string      `json:"backup_code_hashes,omitempty"`
	TOTPSecret      string        `json:"totp_secret,omitempty"`
	Identities      []Identity    `json:"oauth_identities,omitempty"`
	Accepted        []Acceptance  `json:"disclaimers_accepted,omitempty"`
	UserHandle      string        `json:"user_handle,omitempty"`
	Passkeys        []ExportedKey `json:"passkeys,omitempty"`
	Created         time.Time     `json:"created_at"`
}

// An ExportedKey is a passkey in an export. Bytes are in base64url without padding.
type ExportedKey struct {
	Credential     string     `json:"credential_id"`
	PublicKey      string     `json:"public_key"` // in COSE
	SignCount      uint32     `json:"sign_count"`
	BackupEligible bool       `json:"backup_eligible"`
	BackedUp       bool       `json:"backed_up"`
	Transports     []string   `json:"transports,omitempty"`
	Name           string     `json:"name"`
	Created        time.Time  `json:"created_at"`
	LastUsed       *time.Time `json:"last_used,omitempty"`
}

// SetPasskeys adds passkeys to what is exported. They have one user handle.
func (e *ExportedAccount) SetPasskeys(passkeys []record.Passkey) {
	for _, p := range passkeys {
		e.UserHandle = base64.RawURLEncoding.EncodeToString(p.UserHandle)
		e.Passkeys = append(e.Passkeys, ExportedKey{
			Credential: p.ID(), PublicKey: base64.RawURLEncoding.EncodeToString(p.PublicKey), SignCount: p.SignCount,
			BackupEligible: p.BackupEligible, BackedUp: p.BackedUp, Transports: strings.Fields(p.Transports), Name: p.Name, Created: p.Created.UTC(),
			LastUsed: instant(p.LastUsed),
		})
	}
}

// ExportedAccountOf returns an account as it is exported, but without its passkeys and the
// secret of its authenticator app.
func ExportedAccountOf(a record.Account, backupCodes []string) ExportedAccount {
	return ExportedAccount{
		Mnemocode:       a.Mnemocode,
		Role:            a.Role,
		Phone:           a.Phone,
		Email:           a.Email,
		PhoneVerified:   a.PhoneVerified.UTC(),
		EmailVerified:   a.EmailVerified.UTC(),
		LoginName:       a.LoginName,
		Locale:          a.Locale,
		Status:          a.Status,
		SecondFactor:    a.SecondFactor,
		MustSetPassword: a.MustSetPassword,
		PasswordHash:    a.PasswordHash,
		Question:        a.Question,
		AnswerHash:      a.AnswerHash,
		BackupCodes:     backupCodes,
		Identities:      Each(a.Identities, identityOf),
		Accepted:        Each(a.Accepted, acceptanceOf),
		Created:         a.Created.UTC(),
	}
}

// An Identity is a user of an OAuth provider who logs in as the account.
type Identity struct {
	// Which of the company's OAuth providers, 1 to 5.
	Provider int `json:"provider_id"`
	// The user's id at the provider, at most 255 bytes in UTF-8.
	Subject string `json:"subject"`
}

// An Acceptance records that a disclaimer was accepted.
type Acceptance struct {
	// The disclaimer's code.
	Code string `json:"code"`
	// The disclaimer's version; it may be empty.
	Version string `json:"version"`
	// Default: now.
	At time.Time `json:"accepted_at,omitzero"`
}

func identityOf(i record.Identity) Identity { return Identity(i) }

func acceptanceOf(a record.Acceptance) Acceptance {
	return Acceptance{Code: a.Code, Version: a.Version, At: a.At.UTC()}
}

// Each returns what view makes of each item. It is never nil, which JSON would show as null.
func Each[T, View any](items []T, view func(T) View) []View {
	views := make([]View, len(items))
	for i, item := range items {
		views[i] = view(item)
	}
	return views
}
