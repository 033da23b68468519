package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// A FieldError tells an operator what is wrong with a field of an account.
type FieldError struct {
	Field   string // as in the accounts API
	Message string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

const (
	noPhone = "it is not a possible phone, or could be two; write it as an international number, as in +37060012345"
	noEmail = "no mail can be sent there; write one address like name@example.com"
)

// Read replaces what people typed into the login ids of an account with what is stored. It
// leaves alone those that the account had before, and what it can't read, which
// CheckAccount refuses.
func Read(company *tenant.Company, a *record.Account, before record.Account) {
	if a.Phone != before.Phone {
		a.Phone = cmp.Or(company.ReadPhone(a.Phone), a.Phone)
	}
	if a.Email != before.Email {
		a.Email = cmp.Or(typed.Email(a.Email), a.Email)
	}
	if a.LoginName != before.LoginName {
		a.LoginName = cmp.Or(strings.TrimSpace(a.LoginName), a.LoginName)
	}
	a.PhoneRegion = company.PhoneRegion
}

var mnemocodePattern = regexp.MustCompile(`^[!-z|~]{1,128}$`) // visible ASCII without braces

// CheckAccount refuses an account with invalid fields. The error is a *FieldError. The
// login ids must be as Read leaves them; those of before stay valid, since an older
// version may have accepted them. Of a password hash, own is as in password.CheckHash.
func CheckAccount(a, before record.Account, own password.Argon2id) error {
	wrong := func(field, message string) error { return &FieldError{field, message} }
	var hash error
	if a.PasswordHash != "" && a.PasswordHash != record.ExternalPassword {
		hash = password.CheckHash(a.PasswordHash, own)
	}
	switch {
	case (a.Mnemocode != before.Mnemocode || a.Mnemocode == "") && (!mnemocodePattern.MatchString(a.Mnemocode) || a.Mnemocode == "." || a.Mnemocode == ".."):
		return wrong("profile_mnemocode", "it must be 1 to 128 visible ASCII characters without braces, and not . or .., which no URL can name")
	case a.Phone != before.Phone && typed.Phone(a.Phone, "") != a.Phone:
		return wrong("primary_phone", noPhone)
	case a.Email != before.Email && typed.Email(a.Email) != a.Email:
		return wrong("primary_email", noEmail)
	case a.LoginName != before.LoginName && a.LoginName != "" && !canBeLoginID(a.LoginName):
		return wrong("login_name", "it must be 1 to 254 characters, some of them visible, without control characters")
	case a.Question != before.Question && !isLine(a.Question, maxQuestion):
		return wrong("control_question", fmt.Sprintf("it must have at most %d characters, without control characters", maxQuestion))
	case a.Locale != "" && !message.IsLocale(a.Locale):
		return wrong("locale", message.ErrLocale.Error())
	case !slices.Contains(record.Statuses, a.Status):
		return wrong("status", "it must be active, restricted, closed or denied")
	case (a.Question == "") != (a.AnswerHash == ""):
		return wrong("control_question", "a question and its answer go together")
	case hash != nil:
		return wrong("password_hash", hash.Error())
	}
	for _, i := range a.Identities {
		if i.Provider < 1 || i.Provider > record.MaxProvider || i.Subject == "" || len(i.Subject) > record.MaxSubject {
			return wrong("oauth_identities", "provider_id must be 1 to 5 and subject 1 to 255 bytes")
		}
		if !slices.Contains(before.Identities, i) && strings.ContainsFunc(i.Subject, unicode.IsControl) {
			return wrong("oauth_identities", "a subject contains a control character")
		}
	}
	return nil
}

// canBeLoginID reports whether s can be a login id. The limits are those of the field
// login_id. White space and invisible characters alone are not enough, because
// normalizing removes them.
func canBeLoginID(s string) bool {
	return isLine(s, 254) && typed.LoginID(s, "") != ""
}

// maxQuestion is the most characters of a control question.
const maxQuestion = 256

// isLine reports whether s is valid UTF-8 without control characters, and not longer.
func isLine(s string, longest int) bool {
	return utf8.ValidString(s) && utf8.RuneCountInString(s) <= longest && !strings.ContainsFunc(s, isASCIIControl)
}

func isASCIIControl(r rune) bool { return r < ' ' || r == 0x7f }

// A Seed is an account in the configuration, with its secrets as they are written there.
type Seed struct {
	record.Account
	Password string // plain, or a hash (password.LooksLikeHash); empty for none
	Answer   string // plain, to the Question
}

// Seed creates the account, unless the company has or had an account with its mnemocode.
// It does not change an existing account or restore a deleted one.
func (ad *Admin) Seed(ctx context.Context, seed Seed) error {
	done, err := ad.Accounts.Seeded(ctx, ad.Company.Code, seed.Mnemocode)
	if err != nil || done {
		return err
	}
	_, err = ad.Accounts.ByMnemocode(ctx, ad.Company.Code, seed.Mnemocode)
	if errors.Is(err, record.ErrNotFound) {
		err = ad.createSeed(ctx, seed)
	}
	if err != nil {
		return err
	}
	return ad.Accounts.SetSeeded(ctx, ad.Company.Code, seed.Mnemocode)
}

func (ad *Admin) createSeed(ctx context.Context, seed Seed) (err error) {
	a := seed.Account
	a.Company = ad.Company.Code
	Read(ad.Company, &a, record.Account{})
	plain := seed.Password != "" && !password.LooksLikeHash(seed.Password)
	if !plain {
		a.PasswordHash = seed.Password
	}
	a.AnswerHash = seed.Answer // a placeholder; the hash is computed below
	// Check before hashing, because CheckAccount limits the cost of imported hashes. The
	// company's own parameters may be more expensive.
	if err := CheckAccount(a, record.Account{}, password.Argon2id{}); err != nil {
		return err
	}
	if plain {
		if a.PasswordHash, err = ad.Hasher.Hash(ctx, password.Turn{Company: ad.Company.Code, Patient: true}, ad.Company.Password.Argon2id, password.Normalize(seed.Password)); err != nil {
			return fmt.Errorf("hashing the password: %w", err)
		}
	}
	if seed.Answer != "" {
		if a.AnswerHash, err = ad.Hasher.Hash(ctx, password.Turn{Company: ad.Company.Code, Patient: true}, ad.Company.Password.Argon2id, typed.Answer(seed.Answer)); err != nil {
			return fmt.Errorf("hashing the control answer: %w", err)
		}
	}
	created := ad.event(record.AccountCreated, a)
	created.Reason = "configuration"
	a.Outbox = background.OutboxEvents(ctx, ad.Company, created)
	if created.Account, err = ad.Accounts.Create(ctx, created.Time, a); err != nil {
		if _, there := ad.Accounts.ByMnemocode(ctx, ad.Company.Code, seed.Mnemocode); there == nil {
			return nil // another node that starts up was faster
		}
		return err
	}
	ad.Emit(ctx, created)
	return nil
}
