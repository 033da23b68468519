package manage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// A Change is an operator's change of an account, or the content of a new one.
type Change struct {
	// Match, if not nil, must accept the present account. Otherwise the error is ErrVersion.
	Match func(record.Account) bool
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
	// Passkeys are added to those that the account has. Of the fields of a Passkey, Account is
	// not used.
	Passkeys []record.Passkey
	// TOTP is the secret of an authenticator app. It takes effect at once; nil keeps the
	// present one.
	TOTP []byte
	// Verified says when contacts were proven, by their names; the zero time means that
	// they were not. Without it, a new value is not proven.
	Verified map[string]time.Time
	// Proofs, from ConfirmContact, prove the contacts that the account then has, by their
	// names. The change spends them.
	Proofs map[string]string
	// Keep is the ID of a session that the change spares; empty for none. It works with a
	// change of phone, email and second factor, but of nothing else that a session contains.
	Keep string

	proven []tokens.Contact // the opened Proofs, or a user's own code
}

// Change changes an account. A change of status, password, role, phone, email, second
// factor or mnemocode revokes all its sessions, pending steps and recovery links before
// Change returns. If nothing changes, Change writes nothing and changed is false.
func (ad *Admin) Change(ctx context.Context, mnemocode string, ch Change) (_ record.Account, changed bool, err error) {
	found, kept, err := ad.findKeeping(ctx, mnemocode, ch.Keep)
	if err != nil {
		return record.Account{}, false, err
	}
	if err := ad.openProofs(ctx, &ch); err != nil {
		return record.Account{}, false, err
	}
	if ch.UserRules { // a password that breaks another rule is not looked up
		wanted := found
		if err := ad.apply(ch, &wanted); err != nil {
			return record.Account{}, false, err
		}
	}
	setSecrets, err := ad.secrets(ctx, ch)
	if err != nil {
		return record.Account{}, false, err
	}
	var before record.Account
	var changes record.Event
	stored, err := ad.Accounts.Update(ctx, found.Company, found.ID, func(a *record.Account) (ends bool, err error) {
		before = *a
		if ch.Match != nil && !ch.Match(*a) {
			return false, ErrVersion
		}
		if err := ad.apply(ch, a); err != nil {
			return false, err
		}
		setSecrets(a)
		changes = ad.changes(before, *a)
		if len(changes.Fields) == 0 {
			if a.TOTPPending != before.TOTPPending { // which is no field
				return false, nil
			}
			return false, errUnchanged
		}
		if err := ch.checkKeep(changes.Fields, a.SameGenerations(found)); err != nil {
			return false, err
		}
		a.Updated, a.Keep = ad.Now(), kept
		a.Outbox = ad.outbox(ctx, ad.withProven(changes, ch, *a))
		ending := slices.DeleteFunc(slices.Clone(changes.Fields), func(f string) bool { return !endsSessions(f) })
		a.SpareTokens = slices.Equal(ending, []string{"password"})
		return len(ending) > 0, nil
	})
	var revokeErr error
	if errors.Is(err, errUnchanged) {
		stored, err = before, nil
		revokeErr = ad.revokePending(ctx, stored)
	}
	if err != nil {
		return record.Account{}, false, adminError("changing the account", err)
	}
	err = ad.finish(ctx, before, stored, &changes, ch, kept)
	if err = cmp.Or(err, revokeErr); err != nil || len(changes.Fields) == 0 {
		return stored, false, err
	}
	stored, err = ad.Accounts.ByID(ctx, stored.Company, stored.ID)
	return stored, true, adminError("loading the account", err)
}

// checkKeep refuses to spare a session from a change of something else that sessions
// contain, or if another change came first.
func (ch Change) checkKeep(fields []string, present bool) error {
	if ch.Keep == "" {
		return nil
	}
	for _, field := range fields {
		if endsSessions(field) && !slices.Contains(keepable, field) {
			return &FieldError{"keep_session", "it can't be kept with a change of " + field + "; leave it out, or change that alone"}
		}
	}
	if !present {
		return ErrChanged
	}
	return nil
}

// keepable lists the fields that can change while a session goes on.
var keepable = []string{record.Phone.Field(), record.Email.Field(), "second_factor", "totp"}

// errUnchanged means that a change stores nothing.
var errUnchanged = errors.New("nothing changes")

// revokePending does the pending revocation of an earlier change of the account. An
// operator who repeats a change therefore gets no success before its sessions are
// revoked.
func (ad *Admin) revokePending(ctx context.Context, a record.Account) error {
	pending, err := ad.Accounts.PendingRevocations(ctx, record.Revocation{Company: a.Company, Account: a.ID - 1}, 1)
	if err != nil {
		return adminError("asking whose sessions are to end", err)
	}
	if len(pending) == 0 || pending[0].Company != a.Company || pending[0].Account != a.ID {
		return nil
	}
	return ad.revoke(ctx, pending[0], record.EndedByChange)
}

// finish does the work after a change was stored, and adds further changed fields to
// changes. Revocations come first: they must not wait for anything. They spare the
// session keep. finish emits the event of the change even if a later part fails.
func (ad *Admin) finish(ctx context.Context, before, stored record.Account, changes *record.Event, ch Change, keep record.TokenHash) error {
	ctx = context.WithoutCancel(ctx) // the change is stored; finish it
	defer func() {
		if len(changes.Fields) > 0 {
			changes.Reason = toldChanges(changes.Fields, before, stored)
			for _, e := range ad.withProven(*changes, ch, stored) {
				ad.emit(ctx, e)
			}
		}
	}()
	var revokeErr error
	if stored.Generation != before.Generation {
		e := record.Revocation{Company: stored.Company, Account: stored.ID, Generation: stored.Generation, Keep: keep}
		revokeErr = ad.revoke(ctx, e, record.EndedByChange)
	}
	ad.notify(ctx, before, stored, changes.Fields)
	var lockErr error
	if slices.Contains(changes.Fields, "password") && stored.PasswordHash != "" { // Update has cleared the account's own count
		err := ad.ClearPublic(ctx, ad.Company, stored, []record.FailureKind{record.WrongPasswords})
		lockErr = adminError("clearing the counts of wrong passwords of the login ids", err)
	}
	note := func(changed bool, field string) {
		if changed {
			changes.Fields = append(changes.Fields, field)
		}
	}
	changed, err := ad.accept(ctx, stored, newAcceptances(before.Accepted, ch.Accepted))
	note(changed, "disclaimers_accepted")
	if err == nil {
		changed, err = ad.importPasskeys(ctx, stored, ch.Passkeys)
		note(changed, "passkeys")
	}
	if err == nil {
		changed, err = ad.importCodes(ctx, stored, ch.BackupCodes)
		note(changed, "backup_codes")
	}
	return cmp.Or(err, revokeErr, lockErr)
}

// accept records acceptances, if there are any.
func (ad *Admin) accept(ctx context.Context, a record.Account, accepted []record.Acceptance) (changed bool, err error) {
	if len(accepted) == 0 {
		return false, nil
	}
	e := ad.event(record.TypeDisclaimersAccepted, a)
	e.Accepted = accepted
	err = ad.Accounts.Accept(ctx, a.Company, a.ID, accepted, background.OutboxEvents(ctx, ad.Company, e)...)
	return err == nil, adminError("recording the accepted disclaimers", err)
}

// importCodes replaces the backup codes, unless hashes is nil or the account has the same.
func (ad *Admin) importCodes(ctx context.Context, a record.Account, hashes []string) (changed bool, err error) {
	if hashes == nil {
		return false, nil
	}
	left, err := ad.BackupCodeHashes(ctx, a)
	if err != nil {
		return false, err
	}
	if slices.Equal(slices.Sorted(slices.Values(left)), slices.Compact(slices.Sorted(slices.Values(hashes)))) {
		return false, nil
	}
	if err := ad.storeCodes(ctx, a, hashes, ad.event(record.AccountBackupCodes, a)); err != nil {
		return false, err
	}
	ad.tell(ctx, a, message.NoticeBackupCodesMade)
	return true, nil
}

// notify tells the owner of changes to how one logs in.
func (ad *Admin) notify(ctx context.Context, before, after record.Account, fields []string) {
	question := false // the question and its answer are one change
	for _, field := range fields {
		switch field {
		case "password":
			ad.tell(ctx, before, message.NoticePasswordChanged) // to the address from before the change
		case "primary_email":
			ad.tell(ctx, after, message.NoticeEmailChanged, before.Email)
		case "primary_phone":
			ad.tell(ctx, after, message.NoticePhoneChanged, before.Phone)
		case "totp":
			ad.tell(ctx, after, message.NoticeTOTPChanged)
		case "second_factor":
			if ad.Company.NeedsSecondFactor(before) && !ad.Company.NeedsSecondFactor(after) {
				ad.tell(ctx, after, message.NoticeSecondFactorOff)
			}
		case "login_name":
			ad.tell(ctx, after, message.NoticeLoginNameChanged)
		case "control_question", "control_answer":
			question = true
		case "oauth_identities":
			if hasOthers(after, before) {
				ad.tell(ctx, after, message.NoticeIdentityBound)
			}
			if hasOthers(before, after) {
				ad.tell(ctx, after, message.NoticeIdentityRemoved)
			}
		}
	}
	if question {
		ad.tell(ctx, after, message.NoticeQuestionChanged)
	}
}

// tell sends a notice to the owner of an account, except during an import.
func (ad *Admin) tell(ctx context.Context, a record.Account, kind string, also ...string) {
	if !ad.Bulk {
		ad.Notify(ctx, ad.Company, a, ad.notice(kind), also...)
	}
}

// hasOthers reports whether a has identities that b does not have.
func hasOthers(a, b record.Account) bool {
	return slices.ContainsFunc(a.Identities, func(i record.Identity) bool { return !slices.Contains(b.Identities, i) })
}

// notice returns a notice of what the Admin does. Only what a user does has an address
// and a device.
func (ad *Admin) notice(kind string) message.Notice {
	if ad.isUser() {
		return message.Notice{Type: kind, Address: ad.Address, UserAgent: ad.user.agent}
	}
	return message.Notice{Type: kind}
}

// changes returns the event for a change of an account. A new password clears
// must_set_password, so the event does not name that field then.
func (ad *Admin) changes(before, after record.Account) record.Event {
	e := ad.event(record.AccountChanged, after)
	e.Fields = changedFields(before, after)
	if slices.Contains(e.Fields, "password") && after.PasswordHash != "" && !after.MustSetPassword {
		e.Fields = slices.DeleteFunc(e.Fields, func(f string) bool { return f == "must_set_password" })
	}
	if before.Mnemocode != after.Mnemocode {
		e.Previous = before.Mnemocode
	}
	return e
}

// toldChanges returns the changed fields with the new values of those that name nobody, so
// that a change can be told from one that takes it back.
func toldChanges(fields []string, before, after record.Account) string {
	told := slices.Clone(fields)
	for i, field := range told {
		value := ""
		switch field {
		case "status", "role":
			value = cmp.Or(*record.FieldNamed(field).Text(&after), "none")
		case "second_factor", "must_set_password":
			value = map[bool]string{true: "on", false: "off"}[*record.FieldNamed(field).Flag(&after)]
		case "totp":
			value = map[bool]string{true: "set", false: "removed"}[after.TOTP != ""]
		case "oauth_identities":
			value = fmt.Sprint(len(before.Identities), " to ", len(after.Identities))
		}
		if value != "" {
			told[i] += " (" + value + ")"
		}
	}
	return strings.Join(told, ", ")
}

// apply makes a change, except for its plain secrets. It refuses one whose result would be
// an invalid account.
func (ad *Admin) apply(ch Change, a *record.Account) error {
	before := *a
	if ch.Apply != nil {
		if err := ch.Apply(a); err != nil {
			return err
		}
		Read(ad.Company, a, before)
	}
	if err := ad.prove(ch, a, before); err != nil {
		return err
	}
	return ad.check(ch, *a, before)
}

// check refuses a change whose result would be an invalid account.
func (ad *Admin) check(ch Change, a, before record.Account) error {
	if a.PasswordHash == record.ExternalPassword && before.PasswordHash != record.ExternalPassword && ad.Company.Migrate == nil {
		return &FieldError{"password_hash", "there is nobody to ask about it; configure password migrate, or leave the password out, and the user sets one by recovery"}
	}
	if ch.UserRules && ch.Password != "" {
		if err := ad.Company.CheckPassword("password", ch.Password, a); err != nil {
			return err
		}
	}
	return cmp.Or(ch.check(a, before, ad.Company.Password.Argon2id), ch.checkProofs(a))
}

// secrets hashes or encrypts the secrets of a change, which takes time. The function that it
// returns gives them to the account. If the rules for users apply, it first asks whether the
// password was breached.
func (ad *Admin) secrets(ctx context.Context, ch Change) (set func(*record.Account), err error) {
	if ch.UserRules && ch.Password != "" {
		if err := ad.RefuseBreached(ctx, ad.Company, "password", ch.Password); err != nil {
			return nil, err
		}
	}
	passwordHash, err := ad.hashOne(ctx, password.Normalize(ch.Password))
	if err != nil {
		return nil, err
	}
	answerHash, err := ad.hashOne(ctx, typed.Answer(ch.Answer))
	if err != nil {
		return nil, err
	}
	setTOTP, err := ad.importTOTP(ctx, ch.TOTP)
	return func(a *record.Account) {
		a.PasswordHash = cmp.Or(passwordHash, a.PasswordHash)
		a.AnswerHash = cmp.Or(answerHash, a.AnswerHash)
		setTOTP(a)
	}, err
}

func (ad *Admin) hashOne(ctx context.Context, secret string) (string, error) {
	if secret == "" {
		return "", nil
	}
	for {
		hash, err := ad.Hasher.Hash(ctx, password.Turn{Company: ad.Company.Code, Patient: true}, ad.Company.Password.Argon2id, secret)
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

// changedFields returns the names of the changed fields, as in the accounts API.
func changedFields(before, after record.Account) []string {
	var fields []string
	for _, f := range record.Fields {
		if f.Name != "" && !f.Same(&before, &after) {
			fields = append(fields, f.Name)
		}
	}
	if hasOthers(before, after) || hasOthers(after, before) {
		fields = append(fields, "oauth_identities")
	}
	return fields
}

// endsSessions reports whether a change of the field revokes all sessions (contract,
// section 3).
func endsSessions(field string) bool { return record.FieldNamed(field).EndsSessions }

// newAcceptances returns the acceptances that are not in before. It leaves out those that
// are older than the one of the same disclaimer in before, which they would replace.
func newAcceptances(before, accepted []record.Acceptance) []record.Acceptance {
	return slices.DeleteFunc(slices.Clone(accepted), func(a record.Acceptance) bool {
		return slices.ContainsFunc(before, func(b record.Acceptance) bool {
			return b.Code == a.Code && (b.Version == a.Version || a.At.Before(b.At))
		})
	})
}
