package accounts

import (
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/passkey"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// view returns the account as the API shows it. Its locks are those of its own failure
// counts and of the public ones.
func (c *Call) view(a record.Account, public ...record.Failures) api.Account {
	v := api.AccountOf(a)
	var locked time.Time
	for _, a.FailureCounts = range append(public, a.FailureCounts) {
		v.CaptchaDue = v.CaptchaDue || c.Admin.Company.CaptchaDue(a.FailureCounts[record.WrongPasswords])
		if until := c.Admin.LockedUntil(a); until.After(locked) {
			locked = until
		}
	}
	if !locked.IsZero() {
		v.LockedUntil = new(locked.UTC().Truncate(time.Second))
	}
	return v
}

// A changeKind tells how to read a JSON object.
type changeKind int

const (
	changeNew    changeKind = iota // creates an account
	changePatch                    // a merge patch of an account
	changeImport                   // a line of an import: creates or changes an account, and may contain hashes
)

// A changeParser turns the fields of an account into a change.
type changeParser struct {
	kind   changeKind
	change manage.Change
	sets   []func(*record.Account) error // in the order of api.Fields
	given  map[string]bool               // the fields of the JSON object; false is null
	handle []byte                        // user_handle
}

// parsers has the fields that are more than a text or a flag.
var parsers = map[string]func(p *changeParser, f record.Field, v jsontext.Value) error{
	"profile_mnemocode":    (*changeParser).mnemocode,
	"primary_phone":        (*changeParser).loginID,
	"primary_email":        (*changeParser).loginID,
	"login_name":           (*changeParser).loginID,
	"phone_verified_at":    verifiedAt(record.Phone),
	"email_verified_at":    verifiedAt(record.Email),
	"locale":               (*changeParser).locale,
	"status":               (*changeParser).status,
	"password":             (*changeParser).password,
	"password_hash":        (*changeParser).passwordHash,
	"control_question":     (*changeParser).question,
	"control_answer":       (*changeParser).answer,
	"control_answer_hash":  (*changeParser).answerHash,
	"oauth_identities":     (*changeParser).identities,
	"disclaimers_accepted": (*changeParser).accepted,
	"backup_code_hashes":   (*changeParser).backupCodes,
	"totp_secret":          (*changeParser).totpSecret,
	"user_handle":          (*changeParser).userHandle,
	"passkeys":             (*changeParser).passkeys,
	"created_at":           (*changeParser).created,
}

// parse reads one of api.Fields.
func (p *changeParser) parse(name string, v jsontext.Value) error {
	f := record.FieldNamed(name)
	parse := parsers[name]
	switch {
	case parse != nil:
	case f.Flag != nil:
		parse = (*changeParser).flag
	default:
		parse = (*changeParser).text
	}
	return parse(p, f, v)
}

// shownOnly lists the fields of api.Account that can't be written.
var shownOnly = []string{"password_set", "backup_codes_left", "totp", "passkeys", "locked_until", "captcha_due", "created_at", "updated_at"}

// parseChange reads a JSON object. It refuses unknown fields. It returns an Error or
// a *manage.FieldError that names the field at fault. Whether the account as a whole
// is valid is checked when it is stored.
func parseChange(data []byte, kind changeKind, userRules bool) (manage.Change, error) {
	values, err := parseObject(data)
	if err != nil {
		return manage.Change{}, err
	}
	p := &changeParser{kind: kind, given: map[string]bool{}}
	p.change.Verified, p.change.Proofs = map[string]time.Time{}, map[string]string{}
	for _, name := range api.Fields {
		value, ok := values[name]
		if !ok || kind != changeImport && slices.Contains(api.OnlyImported, name) {
			continue
		}
		delete(values, name)
		p.given[name] = value.Kind() != 'n'
		if err := p.parse(name, value); err != nil {
			return manage.Change{}, &manage.FieldError{Field: name, Message: err.Error()}
		}
	}
	if err := p.parseOnce(values); err != nil {
		return manage.Change{}, err
	}
	if rest := slices.Sorted(maps.Keys(values)); len(rest) > 0 {
		if slices.Contains(shownOnly, rest[0]) {
			return manage.Change{}, &manage.FieldError{Field: rest[0], Message: "it is only shown and can't be written; leave it out"}
		}
		return manage.Change{}, noField(rest[0])
	}
	for _, secret := range []string{"password", "control_answer"} {
		if hash := secret + "_hash"; p.given[secret] && p.given[hash] {
			return manage.Change{}, &manage.FieldError{Field: hash, Message: "give either " + secret + " or " + hash}
		}
	}
	if kind != changePatch && !p.given["profile_mnemocode"] {
		return manage.Change{}, &manage.FieldError{Field: "profile_mnemocode", Message: "it is missing"}
	}
	if userRules && p.given["password_hash"] {
		return manage.Change{}, &manage.FieldError{Field: "password_hash", Message: "with rules=user give the password itself: the rules can't be applied to a hash"}
	}
	p.change.UserRules = userRules
	p.change.Apply = func(a *record.Account) error {
		for _, set := range p.sets {
			if err := set(a); err != nil {
				return err
			}
		}
		return nil
	}
	return p.change, nil
}

// parseOnce reads what is no field of an account but said about a change: proofs of contacts
// and, in a patch, the session to keep.
func (p *changeParser) parseOnce(values map[string]jsontext.Value) error {
	if p.kind == changeImport {
		return nil
	}
	take := func(name string, set func(string)) error {
		value, given := values[name]
		delete(values, name)
		if !given || value.Kind() == 'n' {
			return nil
		}
		text, err := textValue(value, maxText)
		if err != nil {
			return &manage.FieldError{Field: name, Message: err.Error()}
		}
		set(text)
		return nil
	}
	for _, contact := range record.Contacts {
		_, said := p.change.Verified[contact.Name]
		if err := take(contact.ProofField(), func(proof string) { p.change.Proofs[contact.Name] = proof }); err != nil {
			return err
		}
		if _, proven := p.change.Proofs[contact.Name]; proven && said {
			return &manage.FieldError{Field: contact.ProofField(), Message: "give either it or " + contact.VerifiedField()}
		}
	}
	if p.kind != changePatch {
		return nil
	}
	return take(api.KeepSession, func(id string) { p.change.Keep = id })
}

var errNoObject = &Error{Status: 400, Message: "it must be one JSON object in UTF-8"}

func parseObject(data []byte) (map[string]jsontext.Value, error) {
	var values map[string]jsontext.Value
	err := json.Unmarshal(data, &values)
	if twice, ok := errors.AsType[*jsontext.SyntacticError](err); ok && twice.Err == jsontext.ErrDuplicateName {
		return nil, &manage.FieldError{Field: printable(twice.JSONPointer.LastToken()), Message: "it appears twice; send it once"}
	}
	if err != nil || values == nil { // null makes no map
		return nil, errNoObject
	}
	return values, nil
}

func noField(name string) error {
	return &manage.FieldError{Field: printable(name), Message: "there is no such field; leave it out"}
}

// printable makes the name of an unknown field safe to return in a response.
func printable(name string) string {
	if len(name) > 64 || strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return ""
	}
	return name
}

func (p *changeParser) set(set func(*record.Account)) {
	p.sets = append(p.sets, func(a *record.Account) error { set(a); return nil })
}

// Kinds of fields

func (p *changeParser) text(f record.Field, v jsontext.Value) error {
	s, err := textValue(v, f.Limit)
	p.set(func(a *record.Account) { *f.Text(a) = s })
	return err
}

func (p *changeParser) flag(f record.Field, v jsontext.Value) error {
	on := v.Kind() == 't'
	if !on && v.Kind() != 'f' && v.Kind() != 'n' {
		return errors.New("it must be true or false")
	}
	p.set(func(a *record.Account) { *f.Flag(a) = on })
	return nil
}

// loginID is text, but may have space in it that doesn't count in a login id, such as a tab.
// What is no login id is refused later.
func (p *changeParser) loginID(f record.Field, v jsontext.Value) error {
	s, err := stringValue(v)
	s = cmp.Or(strings.TrimSpace(s), s)
	p.set(func(a *record.Account) { *f.Text(a) = s })
	return cmp.Or(err, checkLength(s, f.Limit))
}

func (p *changeParser) mnemocode(f record.Field, v jsontext.Value) error {
	if v.Kind() == 'n' {
		return errors.New("it can't be null")
	}
	return p.text(f, v)
}

// textValue reads a string. It reads null as an empty one.
func textValue(v jsontext.Value, limit int) (string, error) {
	s, err := stringValue(v)
	if err == nil {
		err = checkText(s, limit)
	}
	return s, err
}

func stringValue(v jsontext.Value) (s string, err error) {
	if v.Kind() != 'n' && (v.Kind() != '"' || json.Unmarshal(v, &s) != nil) {
		return "", errors.New("it must be a string or null")
	}
	return s, nil
}

func checkText(s string, limit int) error {
	if strings.ContainsFunc(s, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return errors.New("it contains a control character; remove it")
	}
	return checkLength(s, limit)
}

func checkLength(s string, limit int) error {
	if utf8.RuneCountInString(s) > limit {
		return fmt.Errorf("it has more than %d characters", limit)
	}
	return nil
}

func (p *changeParser) locale(_ record.Field, v jsontext.Value) error {
	locale, err := stringValue(v)
	locale = message.Locale(locale)
	p.set(func(a *record.Account) { a.Locale = locale })
	return err
}

// status refuses null, which would let in users who were locked out.
func (p *changeParser) status(f record.Field, v jsontext.Value) error {
	status, err := textValue(v, f.Limit)
	if err == nil && status == "" {
		err = errors.New("it must be active, restricted, closed or denied")
	}
	p.set(func(a *record.Account) { a.Status = record.Status(status) })
	return err
}

// Secrets

func (p *changeParser) password(_ record.Field, v jsontext.Value) error {
	if v.Kind() == 'n' {
		p.set(func(a *record.Account) { a.PasswordHash = "" })
		return nil
	}
	s, err := stringValue(v)
	if err != nil {
		return err
	}
	if s == "" {
		return errors.New("it must have 1 to 128 characters; null removes the password")
	}
	p.change.Password = s
	p.set(p.passwordSet)
	return nil
}

// passwordSet clears the flag, unless the change sets that, too.
func (p *changeParser) passwordSet(a *record.Account) {
	if _, ok := p.given["must_set_password"]; !ok {
		a.MustSetPassword = false
	}
}

const maxPasswordHash = 4096 // characters

// passwordHash also accepts a credential object as Keycloak exports it, or the text
// of one.
func (p *changeParser) passwordHash(_ record.Field, v jsontext.Value) error {
	var hash string
	var err error
	switch v.Kind() {
	case 'n':
	case '{':
		hash, err = password.KeycloakHash(v)
	default:
		hash, err = textValue(v, maxPasswordHash)
		if err == nil && hash == "" {
			err = fmt.Errorf("it must have 1 to %d characters; null removes the password", maxPasswordHash)
		}
		// A brace is not enough: Spring's hashes begin with one, too.
		if object := jsontext.Value(hash); err == nil && object.Kind() == '{' && object.IsValid() {
			hash, err = password.KeycloakHash(object)
		}
	}
	p.set(func(a *record.Account) {
		if hash != "" && hash != a.PasswordHash {
			p.passwordSet(a)
		}
		if hash != "" || p.change.Password == "" {
			a.PasswordHash = hash
		}
	})
	return err
}

func (p *changeParser) question(f record.Field, v jsontext.Value) error {
	question, err := textValue(v, f.Limit)
	p.set(func(a *record.Account) {
		a.Question = question
		if question == "" {
			a.AnswerHash = "" // it can no longer be asked for
		}
	})
	return err
}

func (p *changeParser) answer(_ record.Field, v jsontext.Value) error {
	answer, err := textValue(v, 256)
	p.change.Answer = answer
	if answer == "" {
		p.set(func(a *record.Account) { a.AnswerHash = "" })
	}
	return err
}

func (p *changeParser) answerHash(_ record.Field, v jsontext.Value) error {
	hash, err := textValue(v, 1024)
	p.set(func(a *record.Account) { a.AnswerHash = hash })
	return err
}

func (p *changeParser) backupCodes(_ record.Field, v jsontext.Value) error {
	hashes := []string{}
	if v.Kind() != 'n' && json.Unmarshal(v, &hashes) != nil {
		return errors.New("it must be an array of hashes")
	}
	if len(hashes) > 100 {
		return errors.New("there are more than 100; send fewer")
	}
	p.change.BackupCodes = hashes
	return nil
}

func (p *changeParser) totpSecret(_ record.Field, v jsontext.Value) error {
	text, err := textValue(v, 128)
	if err != nil || text == "" {
		p.set(func(a *record.Account) { a.TOTP, a.TOTPPending = "", "" })
		return err
	}
	p.change.TOTP, err = tokens.ParseTOTPSecret(text)
	return err
}

// Passkeys

func (p *changeParser) userHandle(_ record.Field, v jsontext.Value) error {
	text, err := stringValue(v)
	if err == nil {
		p.handle, err = base64url(text, 64) // WebAuthn, section 4
	}
	return err
}

// passkeys reads passkeys as they are exported. user_handle, which all of them have, comes
// first in api.Fields.
func (p *changeParser) passkeys(_ record.Field, v jsontext.Value) error {
	var views []api.ExportedKey
	switch {
	case v.Kind() != 'n' && json.Unmarshal(v, &views, json.RejectUnknownMembers(true)) != nil:
		return errors.New("it must be an array of passkeys as they are exported")
	case len(views) > record.MaxPasskeys:
		return fmt.Errorf("an account has at most %d; send fewer", record.MaxPasskeys)
	case len(views) > 0 && p.handle == nil:
		return errors.New("user_handle is missing: their authenticators keep it")
	}
	for _, view := range views {
		credential, err := base64url(view.Credential, 1023)
		if err != nil {
			return fmt.Errorf("credential_id: %w", err)
		}
		key, err := base64url(view.PublicKey, 2048)
		if err == nil {
			err = passkey.CheckPublicKey(key)
		}
		if err != nil {
			return fmt.Errorf("public_key: %w", err)
		}
		if err := cmp.Or(checkText(view.Name, 64), checkText(strings.Join(view.Transports, " "), 64)); err != nil {
			return err
		}
		if !view.Created.IsZero() && !isPast(view.Created) || view.LastUsed != nil && !isPast(*view.LastUsed) {
			return errPast
		}
		k := record.Passkey{
			Credential: credential, UserHandle: p.handle, PublicKey: key, SignCount: view.SignCount, BackupEligible: view.BackupEligible, BackedUp: view.BackedUp,
			Transports: strings.Join(view.Transports, " "), Name: view.Name, Created: cmp.Or(view.Created, time.Now()).UTC().Truncate(time.Microsecond),
		}
		if view.LastUsed != nil {
			k.LastUsed = view.LastUsed.UTC().Truncate(time.Microsecond)
		}
		p.change.Passkeys = append(p.change.Passkeys, k)
	}
	return nil
}

// base64url decodes 1 to most bytes.
func base64url(text string, most int) ([]byte, error) {
	data, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(data) == 0 || len(data) > most {
		return nil, fmt.Errorf("it must be 1 to %d bytes in base64url without padding", most)
	}
	return data, nil
}

// Lists

func (p *changeParser) identities(_ record.Field, v jsontext.Value) error {
	var views []api.Identity
	if json.Unmarshal(v, &views, json.RejectUnknownMembers(true)) != nil {
		return errors.New(`it must be an array of {"provider_id": 1, "subject": "…"}`)
	}
	var identities []record.Identity
	for _, view := range views {
		if slices.ContainsFunc(identities, func(i record.Identity) bool { return i.Provider == view.Provider }) {
			return fmt.Errorf("provider_id %d appears twice; an account has one identity of each provider", view.Provider)
		}
		identities = append(identities, record.Identity(view))
	}
	p.set(func(a *record.Account) { a.Identities = identities })
	return nil
}

// maxAccepted bounds the disclaimers of a request, because each is a row to store, for which
// logins wait. A company has at most 64 at a time.
const maxAccepted = 256

// accepted reads the disclaimers that the account has accepted. A change can't
// remove one that the account has, because it did accept it.
func (p *changeParser) accepted(_ record.Field, v jsontext.Value) error {
	var views []api.Acceptance
	if json.Unmarshal(v, &views, json.RejectUnknownMembers(true)) != nil {
		return errors.New(`it must be an array of {"code": "…", "version": "…"}`)
	}
	if len(views) > maxAccepted {
		return fmt.Errorf("there are more than %d; send fewer", maxAccepted)
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	for _, view := range views {
		switch {
		case !record.Acceptance{Code: view.Code, Version: view.Version}.IsValid():
			return errors.New("a code must have 1 to 64 characters, a version at most 64, and neither control characters")
		case slices.ContainsFunc(p.change.Accepted, func(a record.Acceptance) bool { return a.Code == view.Code }):
			return errors.New("a code appears twice; send it once")
		case !view.At.IsZero() && !isPast(view.At):
			return errors.New("accepted_at must be a time of the past, as in 2026-11-21T12:00:00Z")
		}
		p.change.Accepted = append(p.change.Accepted, record.Acceptance{Code: view.Code, Version: view.Version, At: cmp.Or(view.At.UTC().Truncate(time.Microsecond), now)})
	}
	accepted := p.change.Accepted
	p.sets = append(p.sets, func(a *record.Account) error {
		for _, old := range a.Accepted {
			if !slices.ContainsFunc(accepted, func(b record.Acceptance) bool { return b.Code == old.Code }) {
				return &manage.FieldError{
					Field:   "disclaimers_accepted",
					Message: "an accepted disclaimer can't be withdrawn; give the disclaimer a new version so that users accept it again",
				}
			}
		}
		return nil
	})
	return nil
}

// verifiedAt reads when a contact was proven. Null means that it was not.
func verifiedAt(contact record.Contact) func(*changeParser, record.Field, jsontext.Value) error {
	return func(p *changeParser, _ record.Field, v jsontext.Value) error {
		var at time.Time
		if v.Kind() != 'n' && (json.Unmarshal(v, &at) != nil || !isPast(at)) {
			return errPast
		}
		p.change.Verified[contact.Name] = at.UTC().Truncate(time.Microsecond)
		return nil
	}
}

var errPast = errors.New("it must be a time of the past, as in 2026-11-21T12:00:00Z")

func (p *changeParser) created(_ record.Field, v jsontext.Value) error {
	var at time.Time
	if v.Kind() == 'n' {
		return nil
	}
	if json.Unmarshal(v, &at) != nil || !isPast(at) {
		return errPast
	}
	p.set(func(a *record.Account) {
		if a.ID == 0 {
			a.Created = at
		}
	})
	return nil
}

// isPast reports whether a time is in the past, but allows for clocks that are wrong
// by up to a day. It refuses years before 1, because JSON can't express them in UTC.
func isPast(at time.Time) bool {
	return !at.IsZero() && at.UTC().Year() >= 1 && at.Before(time.Now().Add(24*time.Hour))
}
