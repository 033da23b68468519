package accounts

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/mnemogate/mnemogate/caddymodule/accounts/api"
	"github.com/mnemogate/mnemogate/caddymodule/app"
	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
)

// view returns the account as the API shows it.
func (c *Call) view(a record.Account) api.Account {
	text := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	v := api.Account{
		Mnemocode:       a.Mnemocode,
		Role:            text(a.Role),
		Phone:           text(a.Phone),
		Email:           text(a.Email),
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
		CaptchaDue:      c.admin.CaptchaDue(a),
		Identities:      identityViews(a.Identities),
		Accepted:        acceptanceViews(a.Accepted),
		Created:         a.Created.UTC(),
		Updated:         a.Updated.UTC(),
	}
	if lockedUntil := c.admin.LockedUntil(a); !lockedUntil.IsZero() {
		until := lockedUntil.UTC().Truncate(time.Second)
		v.LockedUntil = &until
	}
	return v
}

func identityViews(identities []record.Identity) []api.Identity {
	views := make([]api.Identity, len(identities))
	for i, identity := range identities {
		views[i] = api.Identity(identity)
	}
	return views
}

func acceptanceViews(accepted []record.Acceptance) []api.Acceptance {
	views := make([]api.Acceptance, len(accepted))
	for i, a := range accepted {
		views[i] = api.Acceptance{Code: a.Code, Version: a.Version, At: a.At.UTC()}
	}
	return views
}

// An exportedAccount is a line of an export, in the format that import reads.
type exportedAccount struct {
	Mnemocode       string           `json:"profile_mnemocode"`
	Role            string           `json:"role,omitempty"`
	Phone           string           `json:"primary_phone,omitempty"`
	Email           string           `json:"primary_email,omitempty"`
	LoginName       string           `json:"login_name,omitempty"`
	Locale          string           `json:"locale,omitempty"`
	Status          record.Status    `json:"status"`
	SecondFactor    bool             `json:"second_factor,omitempty"`
	MustSetPassword bool             `json:"must_set_password,omitempty"`
	PasswordHash    string           `json:"password_hash,omitempty"`
	Question        string           `json:"control_question,omitempty"`
	AnswerHash      string           `json:"control_answer_hash,omitempty"`
	BackupCodes     []string         `json:"backup_code_hashes,omitempty"`
	TOTPSecret      string           `json:"totp_secret,omitempty"`
	Identities      []api.Identity   `json:"oauth_identities,omitempty"`
	Accepted        []api.Acceptance `json:"disclaimers_accepted,omitempty"`
	Created         time.Time        `json:"created_at"`
}

func newExportedAccount(a record.Account, backupCodes []string) exportedAccount {
	return exportedAccount{
		Mnemocode:       a.Mnemocode,
		Role:            a.Role,
		Phone:           a.Phone,
		Email:           a.Email,
		LoginName:       a.LoginName,
		Locale:          a.Locale,
		Status:          a.Status,
		SecondFactor:    a.SecondFactor,
		MustSetPassword: a.MustSetPassword,
		PasswordHash:    a.PasswordHash,
		Question:        a.Question,
		AnswerHash:      a.AnswerHash,
		BackupCodes:     backupCodes,
		Identities:      identityViews(a.Identities),
		Accepted:        acceptanceViews(a.Accepted),
		Created:         a.Created.UTC(),
	}
}

// A changeKind tells how to read a JSON object.
type changeKind int

const (
	changeNew    changeKind = iota // creates an account
	changeOld                      // a merge patch of an account
	changeImport                   // a line of an import: creates or changes an account, and may contain hashes
)

// A changeParser turns the fields of an account into a change.
type changeParser struct {
	kind   changeKind
	change manage.Change
	sets   []func(*record.Account) error // in the order of accountFields
	given  map[string]bool               // the fields that are not null
}

// An accountField is a field that can be written.
type accountField struct {
	name  string
	parse func(p *changeParser, v jsontext.Value) error
	// imported is true if only import accepts the field.
	imported bool
}

// accountFields lists the writable fields in the order in which they are applied. A
// password comes before must_set_password, because a new password clears that flag
// unless the change sets it, too. A question comes before its answer, because
// removing the question also removes the answer.
var accountFields = []accountField{
	{name: "profile_mnemocode", parse: requiredField(func(a *record.Account) *string { return &a.Mnemocode })},
	{name: "role", parse: textField(128, func(a *record.Account) *string { return &a.Role })},
	{name: "primary_phone", parse: (*changeParser).phone},
	{name: "primary_email", parse: loginIDField(func(a *record.Account) *string { return &a.Email })},
	{name: "login_name", parse: loginIDField(func(a *record.Account) *string { return &a.LoginName })},
	{name: "locale", parse: (*changeParser).locale},
	{name: "status", parse: (*changeParser).status},
	{name: "second_factor", parse: flagField(func(a *record.Account) *bool { return &a.SecondFactor })},
	{name: "password", parse: (*changeParser).password},
	{name: "password_hash", parse: (*changeParser).passwordHash},
	{name: "must_set_password", parse: flagField(func(a *record.Account) *bool { return &a.MustSetPassword })},
	{name: "control_question", parse: (*changeParser).question},
	{name: "control_answer", parse: (*changeParser).answer},
	{name: "control_answer_hash", parse: textField(1024, func(a *record.Account) *string { return &a.AnswerHash }), imported: true},
	{name: "oauth_identities", parse: (*changeParser).identities},
	{name: "disclaimers_accepted", parse: (*changeParser).accepted},
	{name: "backup_code_hashes", parse: (*changeParser).backupCodes, imported: true},
	{name: "totp_secret", parse: (*changeParser).totpSecret, imported: true},
	{name: "created_at", parse: (*changeParser).created, imported: true},
}

// shownOnly lists the fields of api.Account that can't be written.
var shownOnly = []string{"password_set", "backup_codes_left", "totp", "passkeys", "locked_until", "captcha_due", "created_at", "updated_at"}

// parseChange reads a JSON object. It refuses unknown fields. It returns an Error or
// a *manage.FieldError that names the field at fault. Whether the account as a whole
// is valid is checked when it is stored.
func parseChange(data []byte, kind changeKind) (manage.Change, error) {
	values, err := parseObject(data)
	if err != nil {
		return manage.Change{}, err
	}
	p := &changeParser{kind: kind, given: map[string]bool{}}
	for _, field := range accountFields {
		value, ok := values[field.name]
		if !ok || field.imported && kind != changeImport {
			continue
		}
		delete(values, field.name)
		p.given[field.name] = value.Kind() != 'n'
		if err := field.parse(p, value); err != nil {
			return manage.Change{}, &manage.FieldError{Field: field.name, Message: err.Error()}
		}
	}
	for name := range values {
		if slices.Contains(shownOnly, name) {
			return manage.Change{}, &manage.FieldError{Field: name, Message: "it is shown and can't be written"}
		}
		return manage.Change{}, &manage.FieldError{Field: printable(name), Message: "there is no such field"}
	}
	if p.given["password"] && p.given["password_hash"] {
		return manage.Change{}, &manage.FieldError{Field: "password_hash", Message: "give either password or password_hash"}
	}
	if p.given["control_answer"] && p.given["control_answer_hash"] {
		return manage.Change{}, &manage.FieldError{Field: "control_answer_hash", Message: "give either control_answer or control_answer_hash"}
	}
	if kind != changeOld && !p.given["profile_mnemocode"] {
		return manage.Change{}, &manage.FieldError{Field: "profile_mnemocode", Message: "it is missing"}
	}
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

var errNoObject = &Error{Status: 400, Message: "it must be one JSON object in UTF-8, without a key twice"}

func parseObject(data []byte) (map[string]jsontext.Value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(data))
	if d.PeekKind() != '{' {
		return nil, errNoObject
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, errNoObject
	}
	values := map[string]jsontext.Value{}
	for d.PeekKind() != '}' {
		name, err := d.ReadToken()
		if err != nil {
			return nil, errNoObject
		}
		key := name.String()
		value, err := d.ReadValue()
		if err != nil {
			return nil, errNoObject
		}
		values[key] = value.Clone()
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, errNoObject
	}
	if len(bytes.TrimLeft(data[d.InputOffset():], " \t\r\n")) > 0 {
		return nil, errNoObject
	}
	return values, nil
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

func textField(limit int, of func(*record.Account) *string) func(*changeParser, jsontext.Value) error {
	return func(p *changeParser, v jsontext.Value) error {
		s, err := textValue(v, limit)
		p.set(func(a *record.Account) { *of(a) = s })
		return err
	}
}

// loginIDField is a textField that drops surrounding spaces, which don't count in a
// login id.
func loginIDField(of func(*record.Account) *string) func(*changeParser, jsontext.Value) error {
	return func(p *changeParser, v jsontext.Value) error {
		s, err := stringValue(v)
		s = app.Trimmed(s)
		p.set(func(a *record.Account) { *of(a) = s })
		return cmp.Or(err, checkText(s, 254))
	}
}

func requiredField(of func(*record.Account) *string) func(*changeParser, jsontext.Value) error {
	return func(p *changeParser, v jsontext.Value) error {
		if v.Kind() == 'n' {
			return errors.New("it can't be null")
		}
		return textField(1024, of)(p, v)
	}
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
		return errors.New("it contains a control character")
	}
	if utf8.RuneCountInString(s) > limit {
		return fmt.Errorf("it has more than %d characters", limit)
	}
	return nil
}

func flagField(of func(*record.Account) *bool) func(*changeParser, jsontext.Value) error {
	return func(p *changeParser, v jsontext.Value) error {
		on := v.Kind() == 't'
		if !on && v.Kind() != 'f' && v.Kind() != 'n' {
			return errors.New("it must be true or false")
		}
		p.set(func(a *record.Account) { *of(a) = on })
		return nil
	}
}

func (p *changeParser) phone(v jsontext.Value) error {
	phone, err := textValue(v, 254)
	phone = cmp.Or(record.NormalizePhone(phone), phone) // an invalid phone is refused later
	p.set(func(a *record.Account) { a.Phone = phone })
	return err
}

func (p *changeParser) locale(v jsontext.Value) error {
	locale, err := stringValue(v)
	locale = message.Locale(locale)
	p.set(func(a *record.Account) { a.Locale = locale })
	return err
}

// status refuses null, which would let in users who were locked out.
func (p *changeParser) status(v jsontext.Value) error {
	status, err := textValue(v, 64)
	if err == nil && status == "" {
		err = errors.New("it must be active, restricted, closed or denied")
	}
	p.set(func(a *record.Account) { a.Status = record.Status(status) })
	return err
}

// Secrets

func (p *changeParser) password(v jsontext.Value) error {
	if v.Kind() == 'n' {
		p.set(func(a *record.Account) { a.PasswordHash = "" })
		return nil
	}
	var s string
	if v.Kind() != '"' || json.Unmarshal(v, &s) != nil {
		return errors.New("it must be a string or null")
	}
	if s == "" {
		return errors.New("it must have 1 to 128 characters; null takes the password away")
	}
	p.change.Password = s
	p.set(func(a *record.Account) { a.MustSetPassword = false })
	return nil
}

// passwordHash also accepts a credential object as Keycloak exports it, or the text
// of one.
func (p *changeParser) passwordHash(v jsontext.Value) error {
	var hash string
	var err error
	switch v.Kind() {
	case 'n':
	case '{':
		hash, err = password.KeycloakHash(v)
	default:
		hash, err = textValue(v, 4096)
		// A brace is not enough: Spring's hashes begin with one, too.
		if object := jsontext.Value(hash); err == nil && object.Kind() == '{' && object.IsValid() {
			hash, err = password.KeycloakHash(object)
		}
	}
	p.set(func(a *record.Account) {
		if hash != "" && hash != a.PasswordHash {
			a.MustSetPassword = false
		}
		if hash != "" || p.change.Password == "" {
			a.PasswordHash = hash
		}
	})
	return err
}

func (p *changeParser) question(v jsontext.Value) error {
	question, err := textValue(v, 256)
	p.set(func(a *record.Account) {
		a.Question = question
		if question == "" {
			a.AnswerHash = "" // it can no longer be asked for
		}
	})
	return err
}

func (p *changeParser) answer(v jsontext.Value) error {
	answer, err := textValue(v, 256)
	p.change.Answer = answer
	if answer == "" {
		p.set(func(a *record.Account) { a.AnswerHash = "" })
	}
	return err
}

func (p *changeParser) backupCodes(v jsontext.Value) error {
	hashes := []string{}
	if v.Kind() != 'n' && json.Unmarshal(v, &hashes) != nil {
		return errors.New("it must be an array of hashes")
	}
	if len(hashes) > 100 {
		return errors.New("there are more than 100")
	}
	p.change.BackupCodes = hashes
	return nil
}

func (p *changeParser) totpSecret(v jsontext.Value) error {
	text, err := textValue(v, 128)
	if err == nil && text != "" {
		p.change.TOTP, err = tokens.ParseTOTPSecret(text)
	}
	return err
}

// Lists

func (p *changeParser) identities(v jsontext.Value) error {
	var views []api.Identity
	if json.Unmarshal(v, &views, json.RejectUnknownMembers(true)) != nil {
		return errors.New(`it must be an array of {"provider_id": 1, "subject": "…"}`)
	}
	var identities []record.Identity
	for _, view := range views {
		if slices.ContainsFunc(identities, func(i record.Identity) bool { return i.Provider == view.Provider }) {
			return fmt.Errorf("provider_id %d is there twice; an account has one identity of each provider", view.Provider)
		}
		if strings.ContainsFunc(view.Subject, unicode.IsControl) {
			return errors.New("a subject contains a control character")
		}
		identities = append(identities, record.Identity(view))
	}
	p.set(func(a *record.Account) { a.Identities = identities })
	return nil
}

// accepted reads the disclaimers that the account has accepted. A change can't
// remove one that the account has, because it did accept it.
func (p *changeParser) accepted(v jsontext.Value) error {
	var views []api.Acceptance
	if json.Unmarshal(v, &views, json.RejectUnknownMembers(true)) != nil {
		return errors.New(`it must be an array of {"code": "…", "version": "…"}`)
	}
	now := time.Now().UTC().Truncate(time.Microsecond)
	for _, view := range views {
		switch n := utf8.RuneCountInString(view.Code); {
		case n < 1 || n > 64 || utf8.RuneCountInString(view.Version) > 64 || strings.ContainsFunc(view.Code+view.Version, unicode.IsControl):
			return errors.New("a code must have 1 to 64 characters, a version at most 64")
		case slices.ContainsFunc(p.change.Accepted, func(a record.Acceptance) bool { return a.Code == view.Code }):
			return errors.New("a code is there twice")
		case !view.At.IsZero() && !isPast(view.At):
			return errors.New("accepted_at must be a time of the past, as in 2026-11-21T12:00:00Z")
		}
		p.change.Accepted = append(p.change.Accepted, record.Acceptance{Code: view.Code, Version: view.Version, At: cmp.Or(view.At.UTC(), now)})
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

func (p *changeParser) created(v jsontext.Value) error {
	var at time.Time
	if v.Kind() == 'n' {
		return nil
	}
	if json.Unmarshal(v, &at) != nil || !isPast(at) {
		return errors.New("it must be a time of the past, as in 2026-11-21T12:00:00Z")
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
