package manage

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// This file reads and checks the fields of accounts.

const (
	noMnemocode = "it must be 1 to 128 visible ASCII characters without braces, and not . or .., which no URL can name"
	noPhone     = "it is not a possible phone, or could be two; write it as an international number, as in +37060012345"
	noEmail     = "no mail can be sent there; write one address like name@example.com"
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

func isMnemocode(s string) bool { return mnemocodePattern.MatchString(s) && s != "." && s != ".." }

// changedTexts are checked when they change. An account may have others, which an older version
// has accepted.
var changedTexts = []struct {
	field   string
	isValid func(string) bool
	wrong   string
}{
	{"profile_mnemocode", isMnemocode, noMnemocode},
	{"primary_phone", func(s string) bool { return typed.Phone(s, "") == s }, noPhone},
	{"primary_email", func(s string) bool { return typed.Email(s) == s }, noEmail},
	{"login_name", func(s string) bool { return s == "" || canBeLoginID(s) }, "it must be 1 to 254 characters, some of them visible, without control characters"},
	{"control_question", func(s string) bool { return isLine(s, maxQuestion) }, fmt.Sprintf("it must have at most %d characters, without control characters", maxQuestion)},
}

// CheckAccount refuses an account with invalid fields. The error is a *FieldError. The
// login ids must be as Read leaves them. Of a password hash, own is as in password.CheckHash.
func CheckAccount(a, before record.Account, own password.Argon2id) error {
	wrong := func(field, message string) error { return &FieldError{field, message} }
	if a.Mnemocode == "" {
		return wrong("profile_mnemocode", noMnemocode)
	}
	for _, c := range changedTexts {
		text := record.FieldNamed(c.field).Text
		if *text(&a) != *text(&before) && !c.isValid(*text(&a)) {
			return wrong(c.field, c.wrong)
		}
	}
	var hash error
	if a.PasswordHash != "" && a.PasswordHash != record.ExternalPassword {
		hash = password.CheckHash(a.PasswordHash, own)
	}
	switch {
	case a.Locale != "" && !message.IsLocale(a.Locale):
		return wrong("locale", message.ErrLocale.Error())
	case !slices.Contains(record.Statuses, a.Status):
		return wrong("status", "it must be active, restricted, closed or denied")
	case (a.Question == "") != (a.AnswerHash == ""):
		return wrong("control_question", "a question and its answer go together")
	case hash != nil:
		return wrong("password_hash", hash.Error())
	}
	return checkIdentities(a.Identities)
}

func checkIdentities(identities []record.Identity) error {
	for _, i := range identities {
		if i.Provider < 1 || i.Provider > record.MaxProvider || i.Subject == "" || len(i.Subject) > record.MaxSubject {
			return &FieldError{"oauth_identities", "provider_id must be 1 to 5 and subject 1 to 255 bytes"}
		}
		if strings.ContainsFunc(i.Subject, unicode.IsControl) {
			return &FieldError{"oauth_identities", "a subject contains a control character"}
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

// maxAnswer is the maximum length of a control answer in characters, as in its route.
const maxAnswer = 256

// CheckSecrets refuses a plain password or control answer that no client could send. The
// error is a *FieldError. An empty string means none and is accepted.
func CheckSecrets(password, answer string) error {
	switch {
	case !sendable(password, tenant.MaxPassword):
		return &FieldError{"password", fmt.Sprintf("it must have 1 to %d characters, in UTF-8 and without NUL", tenant.MaxPassword)}
	case !sendable(answer, maxAnswer) || answer != "" && typed.Answer(answer) == "":
		return &FieldError{"control_answer", fmt.Sprintf("it must have 1 to %d characters, in UTF-8 and without NUL, and not only spaces", maxAnswer)}
	default:
		return nil
	}
}

// sendable reports whether a request may contain s.
func sendable(s string, longest int) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0) && utf8.RuneCountInString(s) <= longest
}

// check validates the account and the hashes that are part of the change. It does not
// check the hashes that the account had before or that are still to be computed. Of the
// others, own is as in password.CheckHash.
func (ch Change) check(a, before record.Account, own password.Argon2id) error {
	if err := CheckSecrets(ch.Password, ch.Answer); err != nil {
		return err
	}
	if ch.Password != "" || a.PasswordHash == before.PasswordHash {
		a.PasswordHash = ""
	}
	if ch.Answer != "" {
		a.AnswerHash = ch.Answer // a placeholder; the hash is computed later
	} else if a.AnswerHash != "" && a.AnswerHash != before.AnswerHash {
		if err := password.CheckHash(a.AnswerHash, own); err != nil {
			return &FieldError{"control_answer_hash", err.Error()}
		}
	}
	if err := password.CheckHashes(ch.BackupCodes, own); err != nil {
		return &FieldError{"backup_code_hashes", err.Error()}
	}
	return CheckAccount(a, before, own)
}
