// Package record defines accounts, sessions and events, and the interfaces of the
// stores that keep them.
//
// To write a store, start with Accounts and Sessions: a store must keep every promise
// in their comments. Account, Session and Event are what they store. Feed and Recaller are
// optional. A store whose server may be slow bounds each call with StoreContext. Calls whose
// context IsYielding use half of the connections to accounts at most.
package record

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// These errors, FullError, TakenError and SpentError are answers of a store. Any other error
// means that the store could not answer, and the client gets service.unavailable.
var (
	// ErrNotFound means that the row does not exist.
	ErrNotFound = errors.New("not found")
	// ErrConflict means that the row is not, or is no longer, in the state that
	// the caller assumed. Nothing was changed.
	ErrConflict = errors.New("conflict")
	// ErrLastPasskey is the ErrConflict of an account that needs its last passkey.
	ErrLastPasskey = fmt.Errorf("%w: the last passkey", ErrConflict)
)

// ErrUnreachable is wrapped by the error of a store's Start if the server did not answer
// or answered that it can't serve now, or if the disk takes no writes. The caller may
// call Start again.
var ErrUnreachable = errors.New("the store can't be reached")

// ErrDamaged is wrapped by errors of a store whose data are damaged, or no longer where it
// looks for them. Trying again does not help.
var ErrDamaged = errors.New("the store is damaged")

// A Fault is a setting with which a store's server can lose data or is open to others.
type Fault struct {
	What   string // what is wrong, with the server's address or its name for the sentinels
	Advice string // empty if the setting could not be read, and may be right
}

// IsAnswer reports whether err is an answer of a store: ErrNotFound, ErrConflict, a
// FullError, a TakenError or a SpentError.
func IsAnswer(err error) bool {
	_, taken := errors.AsType[*TakenError](err)
	_, full := errors.AsType[*FullError](err)
	_, spent := errors.AsType[*SpentError](err)
	return taken || full || spent || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict)
}

// To add a method to a store, add:
//   - the method here, and a case in store/conformance_test.go or a sibling
//   - the method in store/sqlstore, or in sqlite and postgres, or in redis
//   - if it revokes or changes sessions, one in store/memory/memory.go that forgets them
//   - if requests call it, its name at the beginning of the text that it passes, as in
//     "accounts.by_id: loading account", for mnemogate_store_seconds and traces
//   - its tables in 001_init.sql of store/sqlite/migrations and store/postgres/migrations.
//     After v0.1.0, add files there with only new tables and columns that have defaults.
//   - if every store must have it, a new minor version, and a line below "In Go code of your
//     own" in CHANGELOG.md

// Accounts keeps what outlives a session: accounts with their login ids, identities,
// acceptances, backup codes, passkeys and devices. It also keeps the failure counts, which
// must survive the loss of the sessions.
//
// All methods may be called concurrently, from many processes. A method either
// does everything it says or nothing. An account id is never reused, so a new
// account inherits nothing from a deleted one. A method treats an account of
// another company as missing. A function that is passed to a method must be quick
// and must not call the store: other calls wait for it, and it may be called more
// than once.
type Accounts interface {
	AccountReader
	AccountWriter
	BackupCodes
	Devices
	Passkeys
	IssuedTokens
	FailureCounts
	PendingRevocations
	Seeds
	Companies
	Outbox
	History
	SigningKeys
	Census

	// Secrets returns the secrets of the deployment, ordered by Number. The first call
	// creates number 0; later calls return the same on every node, and those that were
	// added since.
	Secrets(ctx context.Context) ([]Secret, error)
	// AddSecret stores a secret. It returns ErrConflict if there is one with this Number.
	AddSecret(ctx context.Context, s Secret) error
	// Sweep deletes failure counts of unknown login ids that have not changed for a day and
	// whose Until is past, what has expired of devices and Spends, and IssuedTokens that
	// expired more than KeepExpired ago. Queues of the Outbox that would be due later than
	// MaxDue after now are then due at now. It must not block other calls for long.
	Sweep(ctx context.Context, now time.Time) error
}

// A Secret is 32 random bytes. The nodes derive their keys from the newest that has begun:
// see tokens.NewKeys.
type Secret struct {
	Number int64
	Value  []byte
	Begins time.Time // zero for number 0
}

// CheckSecrets refuses secrets that a store can't have made. Without it, keys could be
// derived from nothing.
func CheckSecrets(secrets []Secret) error {
	if len(secrets) == 0 || slices.ContainsFunc(secrets, func(s Secret) bool { return len(s.Value) != 32 }) {
		return fmt.Errorf("%w: its secrets are missing, or not of 32 bytes", ErrDamaged)
	}
	return nil
}

// An AccountReader finds accounts. Each comes with its FailureCounts.
type AccountReader interface {
	// ByLoginID finds the account of the company that has this normalised login
	// id. If none has it, ByLoginID returns ErrNotFound and an account that is empty
	// except for CompanyGeneration and the FailureCounts of the login id hash, which is
	// keyed and counts attempts with unknown login ids. An unknown login id takes as long
	// and as many database calls as a known one, so that timing does not reveal which exist.
	ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (Account, error)
	// ByID finds an account by its id. It returns ErrNotFound if there is none.
	ByID(ctx context.Context, company string, id int64) (Account, error)
	// ByMnemocode finds an account by its mnemocode. It returns ErrNotFound if there is
	// none.
	ByMnemocode(ctx context.Context, company, mnemocode string) (Account, error)
	// ByIdentity finds the account bound to a provider's user. It returns
	// ErrNotFound if there is none.
	ByIdentity(ctx context.Context, company string, identity Identity) (Account, error)
	// List returns up to limit of the company's accounts, ordered by mnemocode
	// (byte by byte), starting after the mnemocode after.
	List(ctx context.Context, company, after string, limit int) ([]Account, error)
	// Search is List for the accounts that match. It examines up to match.Reach
	// accounts. If it stops there, last is the mnemocode of the last account it
	// examined; otherwise last is empty.
	Search(ctx context.Context, company string, match Match, after string, limit int) (found []Account, last string, err error)
}

// A Match is what Search looks for. An empty field matches every account.
type Match struct {
	Status Status
	Part   string // a part of one of the account's normalised login ids: see typed.LoginIDPart
	Role   string
	// NoSecondFactor finds accounts that could never give one: see Census.Stranded.
	NoSecondFactor bool
	Failed         bool // finds accounts that have failure counts of their own
	// PasswordSet finds accounts with a password (true) or without one (false); nil finds both.
	PasswordSet  *bool
	UpdatedSince time.Time // finds accounts that were changed then or later
	Reach        int       // how many accounts to examine, which bounds the cost of a search
}

// An AccountWriter creates, changes and deletes accounts. It stores the outbox events
// of a change in the same step as the change. The events come in Account.Outbox, in
// FailureCount.Outbox or as the last arguments. Callers pass events only to Accounts
// that implement Outbox.
type AccountWriter interface {
	// Create stores a new account and returns its id. It ignores ID, Generation,
	// InactiveGeneration, CompanyGeneration, Updated and BackupCodes of a. Updated is now,
	// and so is Created unless a has one. Generation begins with the seconds of now, because a
	// database that has lost accounts may give their ids again. The login ids are LoginIDs(a), the backup codes
	// NewBackupCodes, the passkeys NewPasskeys. A TakenError says which value another
	// account of the company already has, a SpentError which of a.Spends was spent before.
	// Of several calls that spend the same, one succeeds.
	Create(ctx context.Context, now time.Time, a Account) (int64, error)
	// Update loads the account, calls change, stores what change made of the account
	// and returns the account as stored. No other write to the account can happen in
	// between. Update ignores changes of ID, Company, Generation, InactiveGeneration,
	// CompanyGeneration, Accepted, BackupCodes, Passkeys, FailureCounts and Created. It
	// does not set Updated: change does. If change fails, Update stores nothing and
	// returns that error. Other errors are ErrNotFound, and those of Create.
	//
	// If change reports that the account's sessions end, Update increments Generation
	// and stores a pending revocation (see PendingRevocations), which spares the
	// session Keep. It also removes the account's IssuedTokens, unless change set
	// SpareTokens. If change also moved Status away from active, InactiveGeneration
	// becomes the new Generation. If the sessions end and change set another PasswordHash,
	// Update clears the failure count of passwords.
	Update(ctx context.Context, company string, id int64, change func(*Account) (ends bool, err error)) (Account, error)
	// SetPassword stores a password hash, clears MustSetPassword and the failure
	// count of passwords, increments Generation and stores a pending revocation
	// that spares the session keep (none if keep is zero). It returns ErrConflict
	// if the account does not exist any more in a.Generation and a.CompanyGeneration. Of
	// several callers with the same generation, one succeeds.
	SetPassword(ctx context.Context, now time.Time, a Account, hash string, keep TokenHash, events ...OutboxEvent) error
	// Accept stores acceptances. Each replaces that of another version, unless this was given
	// later. It returns ErrNotFound if there is no such account.
	Accept(ctx context.Context, company string, id int64, accepted []Acceptance, events ...OutboxEvent) error
	// Delete removes the account with everything that belongs to it, and stores a
	// pending revocation of all its session generations. It returns ErrNotFound if there
	// is no such account, and ErrConflict if match, which may be nil, is not true of it. No
	// other write to the account can happen after match.
	Delete(ctx context.Context, company string, id int64, match func(Account) bool, events ...OutboxEvent) error
}

// BackupCodes keeps the hashes of accounts' backup codes.
type BackupCodes interface {
	// SetBackupCodes replaces the backup codes of the account a with these hashes. It
	// returns ErrNotFound if the account does not exist any more in a.Generation and
	// a.CompanyGeneration: whoever makes the codes may have been logged out meanwhile. It also
	// does so if the account has codes that are not among a.OldBackupCodes.
	SetBackupCodes(ctx context.Context, a Account, hashes []string, events ...OutboxEvent) error
	// BackupCodes returns the hashes of the unused codes.
	BackupCodes(ctx context.Context, company string, id int64) ([]string, error)
	// UseBackupCode removes a code. It returns ErrConflict if it was already used.
	UseBackupCode(ctx context.Context, company string, id int64, hash string) error
}

// Passkeys keeps the passkeys of accounts.
type Passkeys interface {
	// AddPasskey stores a passkey of the account a, whatever p.Account is, and sets the
	// account's Updated to now. It returns ErrNotFound as SetBackupCodes does, and
	// ErrConflict if the account has MaxPasskeys already. It returns a TakenError with the
	// field credential if the company has a passkey with this Credential.
	AddPasskey(ctx context.Context, now time.Time, a Account, p Passkey, events ...OutboxEvent) error
	// Passkeys returns the account's passkeys, oldest first.
	Passkeys(ctx context.Context, company string, account int64) ([]Passkey, error)
	// Passkey finds a passkey by its Credential. It returns ErrNotFound if there is none.
	Passkey(ctx context.Context, company string, credential []byte) (Passkey, error)
	// CompaniesWithPasskey returns the companies that have a passkey with this Credential,
	// in any order.
	CompaniesWithPasskey(ctx context.Context, credential []byte) ([]string, error)
	// UsePasskey stores what a login with a passkey changes: its SignCount, BackedUp
	// and LastUsed. It returns ErrConflict, and stores nothing, unless signCount is
	// higher than the stored one or both are zero. So of several callers with the same
	// non-zero count, one succeeds. It returns ErrNotFound if there is no such passkey.
	UsePasskey(ctx context.Context, now time.Time, company string, credential []byte, signCount uint32, backedUp bool) error
	// RenamePasskey changes the Name of a passkey of the account. It returns ErrNotFound
	// if there is no such passkey.
	RenamePasskey(ctx context.Context, company string, account int64, credential []byte, name string) error
	// DeletePasskey removes a passkey of an account, increments the Generation of the
	// account and stores a pending revocation that spares the session keep (none if
	// keep is zero). It returns the new Generation. It returns ErrLastPasskey if this is
	// the last passkey of an account without a phone, an OAuth identity, and a password
	// with a login id, even if several callers remove passkeys at once. It returns
	// ErrNotFound if there is no such passkey, and ErrConflict if the account is not in
	// a.Generation and a.CompanyGeneration, unless a.Generation is 0.
	DeletePasskey(ctx context.Context, now time.Time, a Account, credential []byte, keep TokenHash, events ...OutboxEvent) (next int64, err error)
}

// FailureCounts counts wrong attempts.
type FailureCounts interface {
	// UpdateFailures loads a failure count (a zero one if none is stored), calls
	// change and stores the result. No other change of the same count can happen in
	// between. If change fails, UpdateFailures stores nothing and returns that error. It
	// counts nothing for an account that does not exist.
	UpdateFailures(ctx context.Context, now time.Time, key FailureKey, kind FailureKind, change func(*FailureCount) error) error
	// FailureCounts returns all failure counts of the key.
	FailureCounts(ctx context.Context, key FailureKey) (Failures, error)
}

// PendingRevocations keeps the revocations that changes store, until RevocationDone
// removes them. If a process crashes between a change and Sessions.End, the
// revocation is still pending and happens later.
type PendingRevocations interface {
	// NewCompanyGeneration increments the session generation of the company.
	// Accounts that are loaded from now on have the new one. In the same step it
	// stores a pending revocation of the sessions of older generations, and returns
	// it. It takes as long for a million accounts as for one.
	NewCompanyGeneration(ctx context.Context, company string) (Revocation, error)
	// PendingRevocations returns up to limit pending revocations, ordered by
	// company and account, starting after the company and account of after.
	PendingRevocations(ctx context.Context, after Revocation, limit int) ([]Revocation, error)
	// RevocationDone removes a pending revocation, unless a later one has replaced it.
	RevocationDone(ctx context.Context, done Revocation) error
}

// Seeds remembers which accounts of the configuration have ever existed.
type Seeds interface {
	// SetSeeded records that the account with this mnemocode was created from the
	// configuration. The record outlives the account, so that a deleted account is
	// not created again.
	SetSeeded(ctx context.Context, company, mnemocode string) error
	// Seeded reports whether SetSeeded was called.
	Seeded(ctx context.Context, company, mnemocode string) (bool, error)
}

// Companies renames companies and erases them, account by account, so that no call takes
// long. AccountWriter deletes accounts.
type Companies interface {
	// MoveAccount moves an account to another company, with all that belongs to it but
	// its devices and IssuedTokens. It calls change first, which may set TOTP and TOTPPending; those are
	// sealed for a company. The account's sessions stay in the old company. The errors
	// are ErrNotFound and a TakenError.
	MoveAccount(ctx context.Context, company string, id int64, to string, change func(*Account)) error
	// ForgetCompany deletes what belongs to a company without accounts: failure counts,
	// what SetSeeded recorded, signing keys and outbox events. Unless heir is empty, the
	// company heir gets what SetSeeded recorded, and the events, as they are. The session
	// generation stays, so that a later company with this code inherits no session.
	ForgetCompany(ctx context.Context, company, heir string) error
}

// A Census answers an operator's questions about all accounts.
type Census interface {
	// CompaniesWithAccounts returns the companies that have accounts, ordered byte
	// by byte.
	CompaniesWithAccounts(ctx context.Context) ([]string, error)
	// Count counts all accounts.
	Count(ctx context.Context) (int, error)
	// Stranded counts, by company, the active accounts that could never give a
	// second factor. They have no phone, no backup codes, no password with an
	// authenticator app, and no passkey or identity to log in with instead. If all
	// is false, it counts only accounts whose SecondFactor is on.
	Stranded(ctx context.Context, all bool) (map[string]int, error)
}

// Sessions keeps what lives for minutes to days: sessions with their codes, links,
// and counters.
//
// All methods may be called concurrently, from many processes. A method either
// does everything it says or nothing. Callers pass the time. A store may delete
// expired sessions by its own clock, but not before KeepExpired has passed.
type Sessions interface {
	SessionReader
	SessionWriter
	SessionCodes
	Counters
	Answers

	// Sweep deletes what expired more than KeepExpired ago, and the Answers that have
	// expired. It must not block other calls for long.
	Sweep(ctx context.Context, now time.Time) error
}

// A SessionReader finds sessions.
type SessionReader interface {
	// Get returns a session, even an expired one. It returns ErrNotFound if the session
	// was revoked or never existed.
	Get(ctx context.Context, hash TokenHash) (Session, error)
	// Revoked returns what is kept of a session or link that End revoked: Company,
	// Account, Generation, CompanyGeneration, State and Expires. It is kept for as
	// long as the session would have been. Revoked returns ErrNotFound if End did not
	// revoke the session, or it is no longer kept.
	Revoked(ctx context.Context, hash TokenHash) (Session, error)
	// List returns an account's unexpired sessions and links, oldest first. If
	// there are more than MaxSessions in a state, it returns the newest.
	List(ctx context.Context, now time.Time, company string, account int64) ([]Session, error)
}

// A SessionWriter creates, changes and revokes sessions.
type SessionWriter interface {
	// Create stores a session. It returns ErrConflict if the Generation of its
	// account, or the CompanyGeneration of its company, was revoked. A session in
	// state MailedLink revokes the other links of its account. If the account then
	// has more than s.AtMost sessions in the state of s, Create revokes the oldest
	// live ones. Before it returns, it notifies a Feed of each, and calls s.Displaced
	// with its ID. A store may rely on Hash.Bucket being the account's AccountBucket
	// (a decoy, whose Account is 0, may have any).
	//
	// Create charges the counters in the same step. If one is at its limit, Create
	// returns the error of Charge and stores nothing. If nothing is stored, nothing
	// is charged. The exception is a store that keeps counters and sessions on
	// different machines: it charges first, and may have charged when it returns
	// ErrConflict.
	Create(ctx context.Context, now time.Time, s Session, counters ...Counter) error
	// Replace deletes the session under old and stores next, in one step. It
	// returns ErrConflict unless the session under old exists, is in state from and
	// has not expired at now. An Authorized session must also have the Profile of next, so that
	// no Raise is lost. Replace also returns ErrConflict if the Generation or the
	// CompanyGeneration of next was revoked. Of several callers with the same token,
	// one succeeds. AtMost, Displaced and the counters are as in Create. A store may rely on
	// next being of the same account as old.
	Replace(ctx context.Context, now time.Time, old TokenHash, from State, next Session, counters ...Counter) error
	// Touch moves Expires forward, never back and never past Ends. It sets LastUsed
	// to now, unless LastUsed is later. It returns ErrNotFound if the session is gone
	// or had expired at now.
	Touch(ctx context.Context, now time.Time, hash TokenHash, expires time.Time) error
	// Raise replaces the Profile of an Authorized session, because its user has proved more
	// (contract, section 21), or a change of the account has spared it. Everything else
	// stays. It returns ErrConflict unless the session exists, is Authorized, has not expired
	// at now, and has the profile from. Before it returns, it notifies a Feed on each node, as
	// for a session that was revoked.
	Raise(ctx context.Context, now time.Time, hash TokenHash, from, to Profile) error
	// Expire marks a session that has expired at now as expired at any time: Get
	// returns it with a zero Expires. The session is kept as long as before. Expire
	// returns ErrNotFound if there is no such session.
	Expire(ctx context.Context, now time.Time, hash TokenHash) error
	// Delete revokes a session. It returns ErrNotFound if it is already gone.
	Delete(ctx context.Context, hash TokenHash) error
	// DeleteID revokes the account's session with this ID, in any state, and
	// returns it. It does not find links. It returns ErrNotFound if there is no such
	// session, or it has expired at now.
	DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (Session, error)
	// DeleteOthers revokes the account's Authorized sessions that have not expired at
	// now, except the one under keep, and returns them. Everything else of the account
	// stays: steps, links and codes.
	DeleteOthers(ctx context.Context, now time.Time, company string, account int64, keep TokenHash) ([]Session, error)
	// End revokes the sessions and links that e covers. From then on Create and
	// Replace refuse such sessions. End takes no longer for a million sessions than
	// for MaxSessions. It spares the session e.Keep if that belongs to the account, is
	// Authorized and is of the generation just before e.Generation: in the same step,
	// its Generation becomes e.Generation. Revoked returns what End revoked for an
	// account.
	End(ctx context.Context, now time.Time, e Revocation) error
}

// SessionCodes keeps the one-time codes of sessions.
type SessionCodes interface {
	// SetCode replaces the code of a session, and clears NoCode. Of several codes, the one
	// that was set last counts. SetCode returns ErrConflict unless the session exists, is in
	// state and has not expired at now; with onlyIfNone also if it has a code.
	SetCode(ctx context.Context, now time.Time, hash TokenHash, state State, code Code, onlyIfNone bool) error
	// SpendCode returns a session as Get does and removes its code. The Code of the
	// returned session is the removed one. SpendCode removes nothing, and Code is
	// nil, unless the session belongs to the company, is in state and has not
	// expired at now. It looks at the counters without charging them. If one is at
	// its limit, SpendCode removes nothing and returns the session with the FullError
	// of Charge. Of several callers, one gets the code.
	SpendCode(ctx context.Context, now time.Time, company string, hash TokenHash, state State, counters ...Counter) (Session, error)
}

// Counters enforces rate limits.
type Counters interface {
	// Charge adds one to each counter without CheckOnly. If any counter is at its limit,
	// Charge adds to none and returns a FullError, which names the first full
	// counter and says until when. The counters are all of one company or all of
	// none. If all have CheckOnly, Charge writes nothing.
	Charge(ctx context.Context, now time.Time, counters ...Counter) error
	// Refund takes one from each counter whose window is open at now: what a Charge has
	// added. A counter that returns to zero has no window. The counters are those of one
	// Charge.
	Refund(ctx context.Context, now time.Time, counters ...Counter) error
}

// Answers keeps the answers to requests that clients may repeat (contract, section 20). A
// name is that of a request: see tokens.Keys.RetryName. It has a holder from the Claim on,
// and an answer once Keep has stored one.
type Answers interface {
	// Claim makes holder the holder of a name until the time until, if the name has none
	// at now, and charges the counters in the same step. Otherwise Claim returns the
	// answer, or ErrConflict if there is none yet, and changes nothing. If a counter is at
	// its limit, Claim returns the FullError of Charge and changes nothing; it looks for
	// the name first. The counters are of no company.
	Claim(ctx context.Context, now time.Time, name, holder string, until time.Time, counters ...Counter) (answer []byte, err error)
	// Keep stores an answer until the time until. Without an answer it extends the claim,
	// or ends it if until is not after now. It returns ErrConflict, and changes nothing,
	// unless holder has the name at now and there is no answer.
	Keep(ctx context.Context, now time.Time, name, holder string, answer []byte, until time.Time) error
}

// KeepExpired is the minimum time that an expired session is kept, so that a client with
// its token gets auth.token.expired (contract: an hour).
const KeepExpired = time.Hour + 5*time.Minute

// LongestSession is the longest life of a session, whatever its company's policy says.
// The revocation of a company stays in force until all the sessions it covers are gone.
const LongestSession = 366 * 24 * time.Hour

// A Revocation revokes all sessions of an account whose Generation is below this one,
// except the session Keep, which must be of the generation just before. So if two
// revocations are pending, neither spares a session that the other one covers.
//
// If Account is 0, it revokes all sessions of the company whose CompanyGeneration is
// below Generation, including decoys, and Keep is not used.
type Revocation struct {
	Company    string
	Account    int64
	Generation int64
	Keep       TokenHash // zero for none
	// Token is for the store. It tells a revocation that DeleteToken has stored from the
	// others of its Generation; 0 for those of the other methods.
	Token int64
}

// AllGenerations is the Generation of a deleted account's revocation.
const AllGenerations = int64(1) << 62

// A Counter counts events within a window. The first event opens the window. After
// Window the counter starts again from zero.
type Counter struct {
	Key    string // from limits.Key: the part before the slash is the company, empty for a counter of all companies
	Limit  int    // 0 refuses everything
	Window time.Duration
	// CheckOnly makes Charge read the counter without adding to it. A full one still
	// refuses.
	CheckOnly bool
}

// CheckOnly returns copies of the counters with CheckOnly set.
func CheckOnly(counters ...Counter) []Counter {
	counters = slices.Clone(counters)
	for i := range counters {
		counters[i].CheckOnly = true
	}
	return counters
}

// Charges reports whether any of the counters is charged, and not only looked at.
func Charges(counters []Counter) bool {
	return slices.ContainsFunc(counters, func(c Counter) bool { return !c.CheckOnly })
}

// FullError says that a Counter is at its limit.
type FullError struct {
	Key   string
	Limit int // of the Counter
	Until time.Time
}

func (f *FullError) Error() string { return "limit reached" }

// TakenError says which value another account of the company already has.
type TakenError struct {
	Field string // profile_mnemocode, primary_phone, primary_email, login_name, oauth_identities or credential
}

func (e *TakenError) Error() string { return e.Field + " is taken by another account" }

// A SpentError says which of an account's Spends was spent before.
type SpentError struct{ Field string }

func (e *SpentError) Error() string { return e.Field + " was used before" }

// A Feed is notified by a store of what happens to sessions on any node. Its methods
// don't block and may be called concurrently.
type Feed interface {
	// Ended reports that the session under hash was revoked, replaced, raised or marked as
	// expired: what is known of it is no longer true.
	Ended(hash TokenHash)
	// EndedAll reports that the sessions that e covers were revoked.
	EndedAll(e Revocation)
	// Flush reports that earlier events may have been missed.
	Flush()
	// SetLease says until when the feed can be relied on: after that, events may
	// have been missed. That is at most FeedLease after the store was certainly heard, by
	// this node's clock. The zero time ends the lease. A Feed starts without one.
	SetLease(until time.Time)
}

// A Recaller is a Sessions with a memory. Where it can, it answers requests to the
// protected path without asking the store.
type Recaller interface {
	// Recall is load at the time now. It does not check the company: the caller does.
	// A session from memory lacks ID, CompanyGeneration, Accepted, Created, LastUsed,
	// Address, UserAgent and Device, which are seldom needed there. If whole is set,
	// it has ID and Created. The load is Get, or returns sessions with Issued whose hash
	// is in the AccountBucket.
	Recall(ctx context.Context, now time.Time, company string, hash TokenHash, whole bool, load func(context.Context, TokenHash) (Session, error)) (Session, error)
}
