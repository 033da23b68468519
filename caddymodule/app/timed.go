package app

import (
	"context"
	"errors"
	"time"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
	"github.com/mnemogate/mnemogate/flows/record"
)

// observeCall records the duration and result of a call to a store.
func observeCall(ctx context.Context, store, method string, began time.Time, err *error) {
	result, failed := "ok", unanswered(*err)
	if failed {
		result = "error"
	}
	_ = noteDamage(*err)
	storeSeconds.WithLabelValues(store, method, result).Observe(time.Since(began).Seconds())
	guest.TraceCall(ctx, store, method, began, failed)
}

// noteDamage counts an error that says that a store is damaged, and returns it.
func noteDamage(err error) error {
	if errors.Is(err, record.ErrDamaged) {
		storeDamage.Inc()
	}
	return err
}

// unanswered reports whether err means that the store did not answer. Other errors
// are answers of the store, or mean that the caller has gone away.
func unanswered(err error) bool {
	return err != nil && !errors.Is(err, context.Canceled) && !record.IsAnswer(err)
}

// traced names the trace of a request in the outbox events that it causes.
func traced(ctx context.Context, events []record.OutboxEvent) []record.OutboxEvent {
	for i := range events {
		events[i].Traceparent = guest.Traceparent(ctx)
	}
	return events
}

// timedAccounts measures the calls of requests to an accounts store.
// The labels of the methods are as in v0.1.0.
type timedAccounts struct{ record.Accounts }

func (t timedAccounts) Create(ctx context.Context, now time.Time, a record.Account) (found int64, err error) {
	defer observeCall(ctx, "accounts", "create", time.Now(), &err)
	traced(ctx, a.Outbox)
	return t.Accounts.Create(ctx, now, a)
}

func (t timedAccounts) ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (found record.Account, err error) {
	defer observeCall(ctx, "accounts", "by_login_id", time.Now(), &err)
	return t.Accounts.ByLoginID(ctx, company, loginID, loginIDHash)
}

func (t timedAccounts) ByID(ctx context.Context, company string, id int64) (found record.Account, err error) {
	defer observeCall(ctx, "accounts", "by_id", time.Now(), &err)
	return t.Accounts.ByID(ctx, company, id)
}

func (t timedAccounts) ByMnemocode(ctx context.Context, company, mnemocode string) (found record.Account, err error) {
	defer observeCall(ctx, "accounts", "by_mnemocode", time.Now(), &err)
	return t.Accounts.ByMnemocode(ctx, company, mnemocode)
}

func (t timedAccounts) List(ctx context.Context, company, after string, limit int) (found []record.Account, err error) {
	defer observeCall(ctx, "accounts", "list", time.Now(), &err)
	return t.Accounts.List(ctx, company, after, limit)
}

func (t timedAccounts) Search(ctx context.Context, company string, match record.Match, after string, limit int) (found []record.Account, last string, err error) {
	defer observeCall(ctx, "accounts", "search", time.Now(), &err)
	return t.Accounts.Search(ctx, company, match, after, limit)
}

func (t timedAccounts) ByIdentity(ctx context.Context, company string, identity record.Identity) (found record.Account, err error) {
	defer observeCall(ctx, "accounts", "by_identity", time.Now(), &err)
	return t.Accounts.ByIdentity(ctx, company, identity)
}

func (t timedAccounts) Update(ctx context.Context, company string, id int64, change func(*record.Account) (bool, error)) (found record.Account, err error) {
	var refused, failed error
	defer observeCall(ctx, "accounts", "update", time.Now(), &failed)
	found, err = t.Accounts.Update(ctx, company, id, func(a *record.Account) (ends bool, err error) {
		ends, refused = change(a)
		traced(ctx, a.Outbox)
		return ends, refused
	})
	if refused == nil { // otherwise the store has answered
		failed = err
	}
	return found, err
}

func (t timedAccounts) Delete(ctx context.Context, company string, id int64, events ...record.OutboxEvent) (err error) {
	defer observeCall(ctx, "accounts", "delete", time.Now(), &err)
	return t.Accounts.Delete(ctx, company, id, traced(ctx, events)...)
}

func (t timedAccounts) SetPassword(ctx context.Context, now time.Time, company string, id, generation int64, hash string, keep record.TokenHash, events ...record.OutboxEvent) (err error) {
	defer observeCall(ctx, "accounts", "set_password", time.Now(), &err)
	return t.Accounts.SetPassword(ctx, now, company, id, generation, hash, keep, traced(ctx, events)...)
}

func (t timedAccounts) Accept(ctx context.Context, company string, id int64, accepted []record.Acceptance, events ...record.OutboxEvent) (err error) {
	defer observeCall(ctx, "accounts", "accept", time.Now(), &err)
	return t.Accounts.Accept(ctx, company, id, accepted, traced(ctx, events)...)
}

func (t timedAccounts) MoveAccount(ctx context.Context, company string, id int64, to string, change func(*record.Account)) (err error) {
	defer observeCall(ctx, "accounts", "move_account", time.Now(), &err)
	return t.Accounts.MoveAccount(ctx, company, id, to, change)
}

func (t timedAccounts) ForgetCompany(ctx context.Context, company, heir string) (err error) {
	defer observeCall(ctx, "accounts", "forget_company", time.Now(), &err)
	return t.Accounts.ForgetCompany(ctx, company, heir)
}

func (t timedAccounts) SetBackupCodes(ctx context.Context, company string, id int64, hashes []string, events ...record.OutboxEvent) (err error) {
	defer observeCall(ctx, "accounts", "set_backup_codes", time.Now(), &err)
	return t.Accounts.SetBackupCodes(ctx, company, id, hashes, traced(ctx, events)...)
}

func (t timedAccounts) BackupCodes(ctx context.Context, company string, id int64) (found []string, err error) {
	defer observeCall(ctx, "accounts", "backup_codes", time.Now(), &err)
	return t.Accounts.BackupCodes(ctx, company, id)
}

func (t timedAccounts) AddDevice(ctx context.Context, company string, account int64, d record.Device, former string) (err error) {
	defer observeCall(ctx, "accounts", "add_device", time.Now(), &err)
	return t.Accounts.AddDevice(ctx, company, account, d, former)
}

func (t timedAccounts) Device(ctx context.Context, company string, account int64, hash record.TokenHash) (found record.Device, err error) {
	defer observeCall(ctx, "accounts", "device", time.Now(), &err)
	return t.Accounts.Device(ctx, company, account, hash)
}

func (t timedAccounts) Devices(ctx context.Context, company string, account int64) (found []record.Device, err error) {
	defer observeCall(ctx, "accounts", "devices", time.Now(), &err)
	return t.Accounts.Devices(ctx, company, account)
}

func (t timedAccounts) RemoveDevices(ctx context.Context, company string, account int64, id string) (err error) {
	defer observeCall(ctx, "accounts", "remove_devices", time.Now(), &err)
	return t.Accounts.RemoveDevices(ctx, company, account, id)
}

func (t timedAccounts) UseBackupCode(ctx context.Context, company string, id int64, hash string) (err error) {
	defer observeCall(ctx, "accounts", "use_backup_code", time.Now(), &err)
	return t.Accounts.UseBackupCode(ctx, company, id, hash)
}

func (t timedAccounts) AddPasskey(ctx context.Context, company string, p record.Passkey, events ...record.OutboxEvent) (err error) {
	defer observeCall(ctx, "accounts", "add_passkey", time.Now(), &err)
	return t.Accounts.AddPasskey(ctx, company, p, traced(ctx, events)...)
}

func (t timedAccounts) Passkeys(ctx context.Context, company string, account int64) (found []record.Passkey, err error) {
	defer observeCall(ctx, "accounts", "passkeys", time.Now(), &err)
	return t.Accounts.Passkeys(ctx, company, account)
}

func (t timedAccounts) Passkey(ctx context.Context, company string, credential []byte) (found record.Passkey, err error) {
	defer observeCall(ctx, "accounts", "passkey", time.Now(), &err)
	return t.Accounts.Passkey(ctx, company, credential)
}

func (t timedAccounts) UsePasskey(ctx context.Context, now time.Time, company string, credential []byte, signCount uint32, backedUp bool) (err error) {
	defer observeCall(ctx, "accounts", "use_passkey", time.Now(), &err)
	return t.Accounts.UsePasskey(ctx, now, company, credential, signCount, backedUp)
}

func (t timedAccounts) RenamePasskey(ctx context.Context, company string, account int64, credential []byte, name string) (err error) {
	defer observeCall(ctx, "accounts", "rename_passkey", time.Now(), &err)
	return t.Accounts.RenamePasskey(ctx, company, account, credential, name)
}

func (t timedAccounts) DeletePasskey(ctx context.Context, now time.Time, company string, account int64, credential []byte, keep record.TokenHash, events ...record.OutboxEvent) (generation int64, err error) {
	defer observeCall(ctx, "accounts", "delete_passkey", time.Now(), &err)
	return t.Accounts.DeletePasskey(ctx, now, company, account, credential, keep, traced(ctx, events)...)
}

func (t timedAccounts) UpdateFailures(ctx context.Context, now time.Time, key record.FailureKey, kind record.FailureKind, change func(*record.FailureCount) error) (err error) {
	var refused, failed error
	defer observeCall(ctx, "accounts", "tally", time.Now(), &failed)
	err = t.Accounts.UpdateFailures(ctx, now, key, kind, func(t *record.FailureCount) error {
		refused = change(t)
		traced(ctx, t.Outbox)
		return refused
	})
	if refused == nil { // as in Update
		failed = err
	}
	return err
}

func (t timedAccounts) FailureCounts(ctx context.Context, key record.FailureKey) (found record.Failures, err error) {
	defer observeCall(ctx, "accounts", "tallies", time.Now(), &err)
	return t.Accounts.FailureCounts(ctx, key)
}

func (t timedAccounts) NewCompanyGeneration(ctx context.Context, company string) (e record.Revocation, err error) {
	defer observeCall(ctx, "accounts", "new_era", time.Now(), &err)
	return t.Accounts.NewCompanyGeneration(ctx, company)
}

func (t timedAccounts) PendingRevocations(ctx context.Context, after record.Revocation, limit int) (found []record.Revocation, err error) {
	defer observeCall(ctx, "accounts", "endings", time.Now(), &err)
	return t.Accounts.PendingRevocations(ctx, after, limit)
}

func (t timedAccounts) RevocationDone(ctx context.Context, e record.Revocation) (err error) {
	defer observeCall(ctx, "accounts", "ended", time.Now(), &err)
	return t.Accounts.RevocationDone(ctx, e)
}

// timedSessions measures the calls of requests to a session store.
type timedSessions struct{ record.Sessions }

func (t timedSessions) Create(ctx context.Context, now time.Time, s record.Session, counters ...record.Counter) (err error) {
	defer observeCall(ctx, "sessions", "create", time.Now(), &err)
	return t.Sessions.Create(ctx, now, s, counters...)
}

func (t timedSessions) Get(ctx context.Context, hash record.TokenHash) (found record.Session, err error) {
	defer observeCall(ctx, "sessions", "get", time.Now(), &err)
	return t.Sessions.Get(ctx, hash)
}

func (t timedSessions) Revoked(ctx context.Context, hash record.TokenHash) (found record.Session, err error) {
	defer observeCall(ctx, "sessions", "revoked", time.Now(), &err)
	return t.Sessions.Revoked(ctx, hash)
}

func (t timedSessions) Replace(ctx context.Context, now time.Time, old record.TokenHash, from record.State, next record.Session, counters ...record.Counter) (err error) {
	defer observeCall(ctx, "sessions", "replace", time.Now(), &err)
	return t.Sessions.Replace(ctx, now, old, from, next, counters...)
}

func (t timedSessions) Delete(ctx context.Context, hash record.TokenHash) (err error) {
	defer observeCall(ctx, "sessions", "delete", time.Now(), &err)
	return t.Sessions.Delete(ctx, hash)
}

func (t timedSessions) DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (ended record.Session, err error) {
	defer observeCall(ctx, "sessions", "delete_id", time.Now(), &err)
	return t.Sessions.DeleteID(ctx, now, company, account, id)
}

func (t timedSessions) DeleteOthers(ctx context.Context, now time.Time, company string, account int64, keep record.TokenHash) (ended []record.Session, err error) {
	defer observeCall(ctx, "sessions", "delete_others", time.Now(), &err)
	return t.Sessions.DeleteOthers(ctx, now, company, account, keep)
}

func (t timedSessions) End(ctx context.Context, now time.Time, e record.Revocation) (err error) {
	defer observeCall(ctx, "sessions", "end", time.Now(), &err)
	return t.Sessions.End(ctx, now, e)
}

func (t timedSessions) Touch(ctx context.Context, now time.Time, hash record.TokenHash, expires time.Time) (err error) {
	defer observeCall(ctx, "sessions", "touch", time.Now(), &err)
	return t.Sessions.Touch(ctx, now, hash, expires)
}

func (t timedSessions) Expire(ctx context.Context, now time.Time, hash record.TokenHash) (err error) {
	defer observeCall(ctx, "sessions", "expire", time.Now(), &err)
	return t.Sessions.Expire(ctx, now, hash)
}

func (t timedSessions) List(ctx context.Context, now time.Time, company string, account int64) (found []record.Session, err error) {
	defer observeCall(ctx, "sessions", "list", time.Now(), &err)
	return t.Sessions.List(ctx, now, company, account)
}

func (t timedSessions) OpenCode(ctx context.Context, now time.Time, hash record.TokenHash, state record.State) (found int64, err error) {
	defer observeCall(ctx, "sessions", "open_code", time.Now(), &err)
	return t.Sessions.OpenCode(ctx, now, hash, state)
}

func (t timedSessions) SetCode(ctx context.Context, hash record.TokenHash, number int64, code record.Code) (err error) {
	defer observeCall(ctx, "sessions", "set_code", time.Now(), &err)
	return t.Sessions.SetCode(ctx, hash, number, code)
}

func (t timedSessions) SpendCode(ctx context.Context, now time.Time, company string, hash record.TokenHash, state record.State, counters ...record.Counter) (found record.Session, err error) {
	defer observeCall(ctx, "sessions", "spend_code", time.Now(), &err)
	return t.Sessions.SpendCode(ctx, now, company, hash, state, counters...)
}

func (t timedSessions) Charge(ctx context.Context, now time.Time, counters ...record.Counter) (err error) {
	defer observeCall(ctx, "sessions", "charge", time.Now(), &err)
	return t.Sessions.Charge(ctx, now, counters...)
}

func (t timedSessions) Refund(ctx context.Context, now time.Time, counters ...record.Counter) (err error) {
	defer observeCall(ctx, "sessions", "refund", time.Now(), &err)
	return t.Sessions.Refund(ctx, now, counters...)
}
