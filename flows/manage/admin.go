// Package manage implements the operations of operators and backends. It creates,
// changes, unlocks and deletes accounts, sets up their backup codes and authenticator
// apps, and revokes their sessions.
//
// Start with Admin, which acts for one operator on one company, and Change. The package
// builds on package session, so its changes revoke sessions, count attempts and emit
// events like those of users. A Seed is an account in the configuration.
package manage

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// An Admin acts for an operator. It creates, changes and deletes accounts of one company
// and revokes their sessions. The caller must authenticate the operator first.
//
// If the operator is at fault, its methods return a *FieldError, a *record.TakenError, a
// *tenant.RuleError, record.ErrNotFound or ErrNoSession. Other errors are
// session.ErrRevocationPending and errors that wrap wire.ErrUnavailable.
type Admin struct {
	*session.Manager
	Company *tenant.Company
	Address string // the operator's, for the events
	Actor   string // the name of the operator, for the events
	// UserAgent is that of the user of a Self, for notices.
	UserAgent string
	// Bulk is for imports. Plain secrets then wait for hashing without a time limit, and
	// users get no notice of a changed password.
	Bulk bool
}

// ErrNoSession means that the account has no session with this ID.
var ErrNoSession = errors.New("the account has no such session")

// UntilUnlocked is the end of a lock that stays until an operator unlocks the account
// or a new password is set.
var UntilUnlocked = time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)

// A Change is an operator's change of an account, or the content of a new one.
type Change struct {
	// Apply changes the account; nil changes nothing. It must be quick, and may be
	// called more than once. A new account has status active before Apply is called.
	Apply func(*record.Account) error
	// Password and Answer are plain text. They are hashed and set; empty sets none.
	// Operators may set any password, for example one for the first login, with
	// MustSetPassword. UserRules applies the rules for passwords that users choose.
	Password, Answer string
	UserRules        bool
	// Accepted is added to the disclaimers that were accepted before.
	Accepted []record.Acceptance
	// BackupCodes are hashes that replace the remaining backup codes; nil keeps them.
	BackupCodes []string
	// TOTP is the secret of an authenticator app. It takes effect at once; nil keeps the
	// present one.
	TOTP []byte
}

// maxAnswer is the maximum length of a control answer in characters, as in its route.
const maxAnswer = 256

// CheckSecrets refuses a plain password or control answer that no client could send. The
// error is a *FieldError. An empty string means none and is accepted.
func CheckSecrets(password, answer string) error {
	switch {
	case !sendable(password, tenant.MaxPassword):
		return &FieldError{"password", fmt.Sprintf("it must have 1 to %d characters, in UTF-8 and without NUL", tenant.MaxPassword)}
	case !sendable(answer, maxAnswer) || answer != "" && record.FoldAnswer(answer) == "":
		return &FieldError{"control_answer", fmt.Sprintf("it must have 1 to %d characters, in UTF-8 and without NUL, and not only spaces", maxAnswer)}
	default:
		return nil
	}
}

// sendable reports whether a request may contain s.
func sendable(s string, longest int) bool {
	return utf8.ValidString(s) && !strings.ContainsRune(s, 0) && utf8.RuneCountInString(s) <= longest
}

// Create stores a new account. If Apply sets a Created time, it is kept.
func (ad *Admin) Create(ctx context.Context, ch Change) (record.Account, error) {
	a := record.Account{Status: record.StatusActive}
	if err := ad.apply(ch, &a); err != nil {
		return record.Account{}, err
	}
	a.Company = ad.Company.Code
	if err := ad.check(ch, a, record.Account{}); err != nil {
		return record.Account{}, err // before time is spent on hashes
	}
	hashed, err := ad.hash(ctx, ch)
	if err != nil {
		return record.Account{}, err
	}
	hashed.set(&a)
	setTOTP, err := ad.importTOTP(ctx, ch.TOTP)
	if err != nil {
		return record.Account{}, err
	}
	setTOTP(&a)
	a.Accepted, a.NewBackupCodes = ch.Accepted, ch.BackupCodes
	a.Created = cmp.Or(a.Created, ad.Now()).UTC().Truncate(time.Microsecond)
	a.Updated = a.Created
	created := ad.event(record.AccountCreated, a)
	created.Reason = "admin"
	if ad.Bulk {
		created.Reason = "import"
	}
	a.Outbox = background.OutboxEvents(ad.Company, created)
	if a.ID, err = ad.Accounts.Create(ctx, a.Created, a); err != nil {
		return record.Account{}, adminError("creating the account", err)
	}
	a.BackupCodes, a.NewBackupCodes, a.Outbox = len(ch.BackupCodes), nil, nil
	created.Account = a.ID
	ad.emit(ctx, created)
	return a, nil
}

// Change changes an account. A change of status, password, role, phone, email, second
// factor or mnemocode revokes all its sessions, pending steps and recovery links before
// Change returns. If nothing changes, Change writes nothing and changed is false.
func (ad *Admin) Change(ctx context.Context, mnemocode string, ch Change) (_ record.Account, changed bool, err error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return record.Account{}, false, err
	}
	if ch.UserRules { // a password that breaks another rule is not looked up
		wanted := a
		if err := ad.apply(ch, &wanted); err != nil {
			return record.Account{}, false, err
		}
		if err := ad.check(ch, wanted, a); err != nil {
			return record.Account{}, false, err
		}
	}
	hashed, err := ad.hash(ctx, ch)
	if err != nil {
		return record.Account{}, false, err
	}
	setTOTP, err := ad.importTOTP(ctx, ch.TOTP)
	if err != nil {
		return record.Account{}, false, err
	}
	var before record.Account
	var changes record.Event
	stored, err := ad.Accounts.Update(ctx, a.Company, a.ID, func(a *record.Account) (ends bool, err error) {
		before = *a
		if err := ad.apply(ch, a); err != nil {
			return false, err
		}
		if err := ad.check(ch, *a, before); err != nil {
			return false, err
		}
		hashed.set(a)
		setTOTP(a)
		changes = ad.changes(before, *a)
		if len(changes.Fields) == 0 {
			return false, errUnchanged
		}
		a.Updated = ad.Now()
		a.Outbox = background.OutboxEvents(ad.Company, changes)
		return slices.ContainsFunc(changes.Fields, endsSessions), nil
	})
	var owed error
	if errors.Is(err, errUnchanged) {
		stored, err = before, nil
		owed = ad.revokePending(ctx, stored)
	}
	if err != nil {
		return record.Account{}, false, adminError("changing the account", err)
	}
	err = ad.finish(ctx, before, stored, &changes, ch, record.TokenHash{})
	if err = cmp.Or(err, owed); err != nil || len(changes.Fields) == 0 {
		return stored, false, err
	}
	a, err = ad.Accounts.ByID(ctx, stored.Company, stored.ID)
	return a, true, adminError("loading the account", err)
}

// errUnchanged means that a change stores nothing.
var errUnchanged = errors.New("nothing changes")

// revokePending does the pending revocation of an earlier change of the account. An
// operator who repeats a change therefore gets no success before its sessions are
// revoked.
func (ad *Admin) revokePending(ctx context.Context, a record.Account) error {
	owed, err := ad.Accounts.PendingRevocations(ctx, record.Revocation{Company: a.Company, Account: a.ID - 1}, 1)
	if err != nil {
		return adminError("asking whose sessions are to end", err)
	}
	if len(owed) == 0 || owed[0].Company != a.Company || owed[0].Account != a.ID {
		return nil
	}
	return ad.EndNow(ctx, owed[0], ad.by(record.EndedByChange))
}

// finish does the work after a change was stored, and adds further changed fields to
// changes. Revocations come first: they must not wait for anything. They spare the
// session keep. finish emits the event of the change even if a later part fails.
func (ad *Admin) finish(ctx context.Context, before, stored record.Account, changes *record.Event, ch Change, keep record.TokenHash) error {
	ctx = context.WithoutCancel(ctx) // the change is stored; finish it
	defer func() {
		if len(changes.Fields) > 0 {
			changes.Reason = strings.Join(changes.Fields, ", ")
			ad.emit(ctx, *changes)
		}
	}()
	var owed error
	if stored.Generation != before.Generation {
		e := record.Revocation{Company: stored.Company, Account: stored.ID, Generation: stored.Generation, Keep: keep}
		owed = ad.EndNow(ctx, e, ad.by(record.EndedByChange))
	}
	ad.notify(ctx, before, stored, changes.Fields)
	if slices.Contains(changes.Fields, "password") && stored.PasswordHash != "" {
		if err := ad.clear(ctx, stored, []record.Kind{record.WrongPasswords}); err != nil {
			return err
		}
	}
	if accepted := news(before.Accepted, ch.Accepted); len(accepted) > 0 {
		e := ad.event(record.TypeDisclaimersAccepted, stored)
		e.Accepted = accepted
		if err := ad.Accounts.Accept(ctx, stored.Company, stored.ID, accepted, background.OutboxEvents(ad.Company, e)...); err != nil {
			return adminError("recording the accepted disclaimers", err)
		}
		changes.Fields = append(changes.Fields, "disclaimers_accepted")
	}
	if ch.BackupCodes != nil {
		same, err := ad.sameCodes(ctx, stored, ch.BackupCodes)
		if err != nil {
			return err
		}
		if !same {
			if err := ad.storeCodes(ctx, stored, ch.BackupCodes, ad.event(record.AccountBackupCodes, stored)); err != nil {
				return err
			}
			changes.Fields = append(changes.Fields, "backup_codes")
			ad.notify(ctx, before, stored, []string{"backup_codes"})
		}
	}
	return owed
}

// notify tells the owner of changes to how one logs in.
func (ad *Admin) notify(ctx context.Context, before, after record.Account, fields []string) {
	if ad.Bulk {
		return
	}
	tell := func(a record.Account, kind string, also ...string) {
		ad.Notify(ctx, ad.Company, a, ad.notice(kind), also...)
	}
	for _, field := range fields {
		switch field {
		case "password":
			if after.PasswordHash != "" {
				tell(before, message.NoticePasswordChanged) // to the address from before the change
			}
		case "primary_email":
			tell(after, message.NoticeEmailChanged, before.Email)
		case "primary_phone":
			tell(after, message.NoticePhoneChanged, before.Phone)
		case "totp":
			tell(after, message.NoticeTOTPChanged)
		case "backup_codes":
			tell(after, message.NoticeBackupCodesMade)
		case "oauth_identities":
			if slices.ContainsFunc(after.Identities, func(i record.Identity) bool { return !slices.Contains(before.Identities, i) }) {
				tell(after, message.NoticeIdentityBound)
			}
		}
	}
}

// notice returns a notice of what the Admin does. Only what a user does has an address
// and a device.
func (ad *Admin) notice(kind string) message.Notice {
	if ad.isUser() {
		return message.Notice{Type: kind, Address: ad.Address, UserAgent: ad.UserAgent}
	}
	return message.Notice{Type: kind}
}

// Delete removes an account with all its data and revokes its sessions.
func (ad *Admin) Delete(ctx context.Context, mnemocode string) error {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return err
	}
	deleted := ad.event(record.AccountDeleted, a)
	if err := ad.Accounts.Delete(ctx, a.Company, a.ID, background.OutboxEvents(ad.Company, deleted)...); err != nil {
		return adminError("deleting the account", err)
	}
	e := record.Revocation{Company: a.Company, Account: a.ID, Generation: record.AllGenerations}
	err = ad.EndNow(ctx, e, ad.by(record.EndedByChange))
	ad.emit(ctx, deleted)
	return err
}

// Unlock resets the account's failure counts, which also ends all its locks. It revokes
// no sessions.
func (ad *Admin) Unlock(ctx context.Context, mnemocode string) (record.Account, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return record.Account{}, err
	}
	kinds := []record.Kind{record.WrongPasswords, record.WrongCodes, record.WrongAnswers}
	unlocked := ad.event(record.AccountUnlocked, a)
	if err := ad.clear(ctx, a, kinds, background.OutboxEvents(ad.Company, unlocked)...); err != nil {
		return record.Account{}, err
	}
	ad.emit(ctx, unlocked)
	a.FailureCounts = nil
	return a, nil
}

func (ad *Admin) clear(ctx context.Context, a record.Account, kinds []record.Kind, events ...record.OutboxEvent) error {
	return adminError("clearing the counts of wrong attempts", ad.ClearAttempts(ctx, ad.Company, a, kinds, events...))
}

// Backup codes are 50 random bits in base32 (contract, section 5). Base32 has no 0 and 1,
// which users could mistake for O and l.
const (
	backupCodes      = 10
	backupCodeLength = 10
)

// NewBackupCodes replaces the account's backup codes. It returns the new ones in the form
// ABCDE-FGHIJ. They can't be read again later, because only hashes are stored.
func (ad *Admin) NewBackupCodes(ctx context.Context, mnemocode string) ([]string, error) {
	a, err := ad.ByMnemocode(ctx, mnemocode)
	if err != nil {
		return nil, err
	}
	codes := make([]string, backupCodes)
	normalized := make([]string, backupCodes)
	for i := range codes {
		var b [8]byte
		rand.Read(b[:]) // never returns an error; it crashes the process instead
		code := base32.StdEncoding.EncodeToString(b[:])[:backupCodeLength]
		codes[i] = code[:backupCodeLength/2] + "-" + code[backupCodeLength/2:]
		normalized[i] = record.NormalizeBackupCode(codes[i])
	}
	at := limits.Attempt{Company: ad.Company, Address: ad.Address}
	hashes, err := ad.Hasher.HashSet(ctx, at.Turn(), ad.Company.Password.Argon2id, normalized)
	if err != nil {
		return nil, wire.Unavailable("hashing the backup codes", err)
	}
	replaced := ad.event(record.AccountBackupCodes, a)
	if err := ad.storeCodes(ctx, a, hashes, replaced); err != nil {
		return nil, err
	}
	ad.emit(ctx, replaced)
	ad.notify(ctx, a, a, []string{"backup_codes"})
	return codes, nil
}

func (ad *Admin) storeCodes(ctx context.Context, a record.Account, hashes []string, replaced record.Event) error {
	events := background.OutboxEvents(ad.Company, replaced)
	return adminError("storing the backup codes", ad.Accounts.SetBackupCodes(ctx, a.Company, a.ID, hashes, events...))
}

func (ad *Admin) sameCodes(ctx context.Context, a record.Account, hashes []string) (bool, error) {
	left, err := ad.Accounts.BackupCodes(ctx, a.Company, a.ID)
	if err != nil {
		return false, adminError("loading the backup codes", err)
	}
	return slices.Equal(slices.Sorted(slices.Values(left)), slices.Compact(slices.Sorted(slices.Values(hashes)))), nil
}

// ByMnemocode finds an account by its mnemocode.
func (ad *Admin) ByMnemocode(ctx context.Context, mnemocode string) (record.Account, error) {
	a, err := ad.Accounts.ByMnemocode(ctx, ad.Company.Code, mnemocode)
	return a, adminError("loading the account", err)
}

// ByLoginID finds an account by any of its login ids, in any spelling.
func (ad *Admin) ByLoginID(ctx context.Context, loginID string) (record.Account, error) {
	a, err := ad.Accounts.ByLoginID(ctx, ad.Company.Code, record.NormalizeLoginID(loginID), "")
	if errors.Is(err, record.ErrNotFound) {
		a, err = ad.Accounts.ByLoginID(ctx, ad.Company.Code, ad.Company.ReadLoginID(loginID), "")
	}
	return a, adminError("looking up the login id", err)
}

// List returns up to limit accounts that follow the mnemocode after, ordered by mnemocode.
func (ad *Admin) List(ctx context.Context, after string, limit int) ([]record.Account, error) {
	accounts, err := ad.Accounts.List(ctx, ad.Company.Code, after, limit)
	return accounts, adminError("listing the accounts", err)
}

// searchReach is the maximum number of accounts that one search looks at.
const searchReach = 10_000

// Search returns up to limit accounts that follow the mnemocode after, have this status
// and have a login id that contains part. An empty status or part matches all accounts.
// If there are more accounts to search, last is the mnemocode of the last one searched.
func (ad *Admin) Search(ctx context.Context, status record.Status, part, after string, limit int) (found []record.Account, last string, err error) {
	match := record.Match{Status: status, Part: record.NormalizeLoginIDPart(part), Reach: searchReach}
	found, last, err = ad.Accounts.Search(ctx, ad.Company.Code, match, after, limit)
	return found, last, adminError("searching the accounts", err)
}

// BackupCodeHashes returns the hashes of an account's remaining backup codes.
func (ad *Admin) BackupCodeHashes(ctx context.Context, a record.Account) ([]string, error) {
	if a.BackupCodes == 0 {
		return nil, nil
	}
	hashes, err := ad.Accounts.BackupCodes(ctx, a.Company, a.ID)
	return hashes, adminError("loading the backup codes", err)
}

// LockedUntil returns when the last of the account's locks ends. Locks result from wrong
// passwords, codes or control answers. The zero time means no lock. A disabled password
// is locked until UntilUnlocked.
func (ad *Admin) LockedUntil(a record.Account) time.Time {
	failures, limits, now := a.FailureCounts, &ad.Company.Limits, ad.Now()
	until := limits.PasswordsLocked(failures[record.WrongPasswords], now)
	if failures[record.WrongPasswords].Count >= limits.DisableAfter {
		return UntilUnlocked
	}
	for kind, rate := range map[record.Kind]tenant.Rate{record.WrongCodes: limits.WrongCodes, record.WrongAnswers: limits.WrongAnswers} {
		if t := failures[kind]; t.Count >= rate.N && now.Before(t.Until) && t.Until.After(until) {
			until = t.Until
		}
	}
	return until
}

// CaptchaDue reports whether the account's next password needs a captcha.
func (ad *Admin) CaptchaDue(a record.Account) bool {
	at := limits.Attempt{Company: ad.Company}
	return at.CaptchaDue(a.FailureCounts[record.WrongPasswords])
}

// event returns an event of an account that the operator caused.
func (ad *Admin) event(name string, a record.Account) record.Event {
	e := ad.by("")
	e.Name, e.Time, e.Company, e.Account, e.Mnemocode = name, ad.Now(), ad.Company.Code, a.ID, a.Mnemocode
	return e
}

// changes returns the event for a change of an account.
func (ad *Admin) changes(before, after record.Account) record.Event {
	e := ad.event(record.AccountChanged, after)
	e.Fields = changedFields(before, after)
	if before.Mnemocode != after.Mnemocode {
		e.Previous = before.Mnemocode
	}
	return e
}

// emit reports an event after its change was made. It waits until the account's history
// has the event, unless Bulk is set.
func (ad *Admin) emit(ctx context.Context, e record.Event) {
	ad.Emit(ctx, e)
	if !ad.Bulk {
		ad.Recorded()
	}
}

// adminError returns err if the operator may see it. It wraps any other error in
// wire.ErrUnavailable.
func adminError(doing string, err error) error {
	_, field := errors.AsType[*FieldError](err)
	_, taken := errors.AsType[*record.TakenError](err)
	_, rule := errors.AsType[*tenant.RuleError](err)
	if err == nil || field || taken || rule || errors.Is(err, record.ErrNotFound) || errors.Is(err, wire.ErrUnavailable) {
		return err
	}
	return wire.Unavailable(doing, err)
}

// Changes

func (ad *Admin) apply(ch Change, a *record.Account) error {
	if ch.Apply == nil {
		return nil
	}
	err := ch.Apply(a)
	a.Phone = cmp.Or(ad.Company.ReadPhone(a.Phone), a.Phone) // check refuses what is no phone
	return err
}

// check refuses a change whose result would be an invalid account.
func (ad *Admin) check(ch Change, a, before record.Account) error {
	if a.PasswordHash == record.AskedElsewhere && before.PasswordHash != record.AskedElsewhere && ad.Company.Migrate == nil {
		return &FieldError{"password_hash", "there is nobody to ask about it; configure password migrate, or leave the password out, and the user sets one by recovery"}
	}
	if ch.UserRules && ch.Password != "" {
		if err := ad.Company.CheckPassword("password", ch.Password, a); err != nil {
			return err
		}
	}
	return ch.check(a, before)
}

// check validates the account and the hashes that are part of the change. It does not
// check the hashes that the account had before or that are still to be computed.
func (ch Change) check(a, before record.Account) error {
	if err := CheckSecrets(ch.Password, ch.Answer); err != nil {
		return err
	}
	if ch.Password != "" || a.PasswordHash == before.PasswordHash {
		a.PasswordHash = ""
	}
	if ch.Answer != "" {
		a.AnswerHash = ch.Answer // a placeholder; the hash is computed later
	} else if a.AnswerHash != "" && a.AnswerHash != before.AnswerHash {
		if err := password.CheckHash(a.AnswerHash); err != nil {
			return &FieldError{"control_answer_hash", err.Error()}
		}
	}
	if err := password.CheckHashes(ch.BackupCodes); err != nil {
		return &FieldError{"backup_code_hashes", err.Error()}
	}
	return CheckAccount(a)
}

// A hashedChange holds the hashes of a Change's plain secrets.
type hashedChange struct{ password, answer string }

func (h hashedChange) set(a *record.Account) {
	a.PasswordHash = cmp.Or(h.password, a.PasswordHash)
	a.AnswerHash = cmp.Or(h.answer, a.AnswerHash)
}

// hash returns the hashes. If the rules for users apply, it first asks whether the
// password was breached.
func (ad *Admin) hash(ctx context.Context, ch Change) (h hashedChange, err error) {
	if ch.UserRules && ch.Password != "" {
		if err := ad.checkBreached(ctx, "password", ch.Password); err != nil {
			return h, err
		}
	}
	if h.password, err = ad.hashOne(ctx, password.Normalize(ch.Password)); err != nil {
		return h, err
	}
	h.answer, err = ad.hashOne(ctx, record.FoldAnswer(ch.Answer))
	return h, err
}

func (ad *Admin) hashOne(ctx context.Context, secret string) (string, error) {
	if secret == "" {
		return "", nil
	}
	for {
		hash, err := ad.Hasher.Hash(ctx, password.Turn{Company: ad.Company.Code}, ad.Company.Password.Argon2id, secret)
		if ad.Bulk && errors.Is(err, password.ErrBusy) {
			select {
			case <-time.After(100 * time.Millisecond):
				continue
			case <-ctx.Done():
				err = ctx.Err()
			}
		}
		if err != nil {
			return "", wire.Unavailable("hashing a secret", err)
		}
		return hash, nil
	}
}

// changedFields returns the names of the changed fields, as in the admin API.
func changedFields(before, after record.Account) []string {
	var fields []string
	note := func(field string, differs bool) {
		if differs {
			fields = append(fields, field)
		}
	}
	note("profile_mnemocode", before.Mnemocode != after.Mnemocode)
	note("role", before.Role != after.Role)
	note("primary_phone", before.Phone != after.Phone)
	note("primary_email", before.Email != after.Email)
	note("login_name", before.LoginName != after.LoginName)
	note("locale", before.Locale != after.Locale)
	note("status", before.Status != after.Status)
	note("second_factor", before.SecondFactor != after.SecondFactor)
	note("must_set_password", before.MustSetPassword != after.MustSetPassword)
	note("password", before.PasswordHash != after.PasswordHash)
	note("totp", before.TOTP != after.TOTP)
	note("control_question", before.Question != after.Question)
	note("control_answer", before.AnswerHash != after.AnswerHash)
	note("oauth_identities", !maps.Equal(identitySet(before), identitySet(after)))
	return fields
}

func identitySet(a record.Account) map[record.Identity]bool {
	set := map[record.Identity]bool{}
	for _, i := range a.Identities {
		set[i] = true
	}
	return set
}

// endsSessions reports whether a change of the field revokes all sessions (contract,
// section 3). The mnemocode and the role do so because sessions contain them.
func endsSessions(field string) bool {
	switch field {
	case "status", "password", "role", "primary_phone", "primary_email", "second_factor", "totp", "profile_mnemocode":
		return true
	}
	return false
}

// news returns the acceptances that are not in before.
func news(before, accepted []record.Acceptance) []record.Acceptance {
	return slices.DeleteFunc(slices.Clone(accepted), func(a record.Acceptance) bool {
		return slices.ContainsFunc(before, func(b record.Acceptance) bool { return b.Code == a.Code && b.Version == a.Version })
	})
}
