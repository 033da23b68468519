// Package record has what is kept of accounts, sessions and events, and the
// interfaces of who keeps it.
//
// A store needs no more of the protocol than this. Start with Accounts and
// Sessions, each sentence of which a store must keep to; Account, Session and
// Event are what they hold. Outbox, History, Census, Feed and Recaller are what a
// store can do beside.
package record

import (
	"context"
	"errors"
	"slices"
	"time"
)

// What a store answers when it has understood the question. Every other error
// of a store means that it could not answer, and becomes service.unavailable.
var (
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("not found")
	// ErrConflict: the row is not (or no longer) as the caller assumed, so
	// nothing was changed.
	ErrConflict = errors.New("conflict")
)

// IsAnswer reports whether an error of a store is one that it answers with: one
// of those above, a Full or a TakenError.
func IsAnswer(err error) bool {
	_, taken := errors.AsType[*TakenError](err)
	_, full := errors.AsType[*Full](err)
	return taken || full || errors.Is(err, ErrNotFound) || errors.Is(err, ErrConflict)
}

// Accounts keeps what outlives a session: accounts and their login ids,
// identities, acceptances and backup codes, and the tallies of wrong attempts,
// which must not be lost with the sessions.
//
// All methods may be called concurrently, from many processes. A method either
// does all it says or nothing. Account ids are never given twice, so a new
// account inherits nothing from a deleted one; an account of another company
// is as good as none. A function that is handed over must be quick and not call
// the store: it runs while others wait, and may be called more than once.
type Accounts interface {
	AccountReader
	AccountWriter
	BackupCodes
	FailureCounts
	PendingRevocations
	Seeds

	// Secret returns 32 random bytes, made at the first call and the same ever
	// after, on every node.
	Secret(ctx context.Context) ([]byte, error)
	// Sweep forgets tallies of unknown login ids that did not change for a
	// day. It holds no one up for long.
	Sweep(ctx context.Context, now time.Time) error
}

// An AccountReader finds accounts. They come with their Tallies.
type AccountReader interface {
	// ByLoginID finds the account of the company that has this normalised
	// login id. ErrNotFound if none has; then the account is empty but for Era
	// and Tallies, which are those of the login id's alias. It takes as long and
	// goes to the database as often as for one that an account has.
	ByLoginID(ctx context.Context, company, loginID, loginIDHash string) (Account, error)
	// ByID finds an account by its id. ErrNotFound.
	ByID(ctx context.Context, company string, id int64) (Account, error)
	// ByMnemocode finds an account by its mnemocode. ErrNotFound.
	ByMnemocode(ctx context.Context, company, mnemocode string) (Account, error)
	// ByIdentity finds the account bound to a provider's user. ErrNotFound.
	ByIdentity(ctx context.Context, company string, identity Identity) (Account, error)
	// List returns up to limit of the company's accounts, ordered by mnemocode
	// (byte by byte), beginning behind after.
	List(ctx context.Context, company, after string, limit int) ([]Account, error)
	// Search is List of the accounts that match. It looks at up to match.Reach accounts
	// behind after. If it has looked at so many, last is the mnemocode of the last of
	// them, else empty.
	Search(ctx context.Context, company string, match Match, after string, limit int) (found []Account, last string, err error)
}

// A Match is what Search looks for. An empty field matches every account.
type Match struct {
	Status Status
	Part   string // that one of the account's normalised login ids contains: see NormalizeLoginIDPart
	Reach  int    // how many accounts to look at, so that a search has a bounded cost
}

// An AccountWriter makes, changes and deletes accounts. The
// outbox events of a change are stored in the same step: those of Account.Outbox,
// Tally.Outbox or the last arguments. Only an Accounts that is an Outbox is handed any.
type AccountWriter interface {
	// Create stores a new account and returns its id; a.ID, Epoch, Barred, Era, Created,
	// Updated and BackupCodes are ignored. Its login ids are LoginIDs(a), its backup
	// codes NewBackupCodes. A TakenError tells what another account of the company
	// holds already.
	Create(ctx context.Context, now time.Time, a Account) (int64, error)
	// Update loads the account, lets change alter it and stores it, in one
	// step that no other write to the account can come between. It ignores
	// changes of ID, Company, Epoch, Barred, Era, Accepted, BackupCodes, Tallies and Created;
	// Updated, too, is what change makes of it. If change fails, nothing is
	// stored and its error returned. ErrNotFound; a TakenError. If change says
	// that it ends the account's sessions, the Epoch grows by one and the ending
	// is owed (see Endings); if it then also changes Status from active, Barred
	// becomes that Epoch. The account is returned as stored.
	Update(ctx context.Context, company string, id int64, change func(*Account) (ends bool, err error)) (Account, error)
	// SetPassword stores a password hash, clears MustSetPassword and the tally
	// of wrong passwords, raises the Epoch to epoch+1 and owes the ending, which
	// is to keep the session keep (none, if it is zero), if the account is there
	// and its Epoch still epoch; else ErrConflict. Of many callers with one
	// epoch, one wins.
	SetPassword(ctx context.Context, now time.Time, company string, id, generation int64, hash string, keep TokenHash, events ...OutboxEvent) error
	// Accept records acceptances, each replacing an older version's. ErrNotFound.
	Accept(ctx context.Context, company string, id int64, accepted []Acceptance, events ...OutboxEvent) error
	// Delete removes the account with all that belongs to it; its ending is
	// owed, for every epoch. ErrNotFound.
	Delete(ctx context.Context, company string, id int64, events ...OutboxEvent) error
}

// BackupCodes keeps the hashes of accounts' backup codes.
type BackupCodes interface {
	// SetBackupCodes replaces the account's backup codes by these hashes. ErrNotFound.
	SetBackupCodes(ctx context.Context, company string, id int64, hashes []string, events ...OutboxEvent) error
	// BackupCodes returns the hashes of the codes that are left.
	BackupCodes(ctx context.Context, company string, id int64) ([]string, error)
	// UseBackupCode removes one. ErrConflict if it is gone already.
	UseBackupCode(ctx context.Context, company string, id int64, hash string) error
}

// Tallies counts wrong attempts.
type FailureCounts interface {
	// Tally loads a tally (a zero one where there is none), lets change alter
	// it and stores what it became, in one step that no other change of the
	// tally can come between. If change fails nothing is stored and its error
	// returned.
	UpdateFailures(ctx context.Context, now time.Time, subject FailureKey, kind Kind, change func(*FailureCount) error) error
	// Tallies returns all tallies of the subject.
	FailureCounts(ctx context.Context, subject FailureKey) (map[Kind]FailureCount, error)
}

// Endings remembers whose sessions are still to be ended: what Update, Delete,
// SetPassword and NewEra owe until Ended is called, so that a crash between the
// change and Sessions.End loses no ending.
type PendingRevocations interface {
	// NewEra begins a new era of the company, one higher than the last: that of
	// all accounts which are loaded from now on. It owes the ending of the
	// sessions of earlier ones, which it returns, in one step and as quickly for
	// a million accounts as for one.
	NewCompanyGeneration(ctx context.Context, company string) (Revocation, error)
	// Endings returns up to limit endings that are still to be done, ordered by
	// company and account, beginning behind after's.
	PendingRevocations(ctx context.Context, after Revocation, limit int) ([]Revocation, error)
	// Ended takes an ending off the list, if its epoch has not grown since.
	RevocationDone(ctx context.Context, ending Revocation) error
}

// Seeds remembers which of the configuration's accounts were there once.
type Seeds interface {
	// SetSeeded records that the configuration's account of this mnemocode was
	// there, which outlives the account: deleted, it is not created again.
	SetSeeded(ctx context.Context, company, mnemocode string) error
	// Seeded reports whether SetSeeded was called.
	Seeded(ctx context.Context, company, mnemocode string) (bool, error)
}

// A Census is an Accounts that answers what an operator wants to know of all
// accounts. Not every Accounts is one.
type Census interface {
	// CompaniesWithAccounts returns the companies that have accounts, in the order of
	// their bytes.
	CompaniesWithAccounts(ctx context.Context) ([]string, error)
	// Stranded counts, by company, the active accounts whose second factor could
	// never be asked for: they have neither phone nor backup codes, nor a password
	// with an authenticator app, nor an identity to log in with instead. It counts
	// all such accounts, or only those whose SecondFactor is on.
	Stranded(ctx context.Context, all bool) (map[string]int, error)
}

// Sessions keeps what lives for minutes to days: sessions with their codes,
// links, and counters.
//
// All methods may be called concurrently, from many processes. A method either
// does all it says or nothing. Time is what the caller hands over; a store's
// own expiry only clears away, and never before Keep has passed.
type Sessions interface {
	SessionReader
	SessionWriter
	SessionCodes
	Counters

	// Sweep clears away what has expired more than Keep ago. It holds no one
	// up for long.
	Sweep(ctx context.Context, now time.Time) error
}

// A SessionReader finds sessions.
type SessionReader interface {
	// Get returns a session, also an expired one. ErrNotFound if it was ended
	// or never was.
	Get(ctx context.Context, hash TokenHash) (Session, error)
	// Revoked returns what is kept of a session or link that End has ended, for as
	// long as it would have lived: Company, Account, Epoch, Era, State and Expires.
	// ErrNotFound if End did not end it or it has been forgotten.
	Revoked(ctx context.Context, hash TokenHash) (Session, error)
	// List returns an account's sessions that are not expired, links among
	// them, oldest first. Of more than MaxSessions in a state it returns the
	// newest.
	List(ctx context.Context, now time.Time, company string, account int64) ([]Session, error)
}

// A SessionWriter begins, carries on and ends sessions.
type SessionWriter interface {
	// Create stores a session. ErrConflict if its account's sessions of that
	// Epoch, or its company's of that Era, have been ended. A session in state MailedLink ends the account's
	// other links. If the account then has more than s.AtMost sessions in the
	// state of s, the oldest of them that live are ended, and a Feed is told of
	// each before Create returns. A store may count on Hash.Bucket being the
	// account's AccountBucket (a decoy's, Account 0, can be any), and on
	// Replace's next being of the account of old.
	//
	// The counters are charged in the same step: if one is at its limit, the
	// error is Charge's and nothing is stored; if nothing is stored, nothing is
	// charged. Only a store that keeps counters and sessions on different
	// machines charges first, and may then have charged for an ErrConflict.
	Create(ctx context.Context, now time.Time, s Session, counters ...Counter) error
	// Replace ends the session under old and stores next, in one step.
	// ErrConflict unless old is there, in state from, not expired at now, and
	// next's Epoch and Era have not been ended. Of many callers with one token, one wins.
	// AtMost and the counters are as in Create.
	Replace(ctx context.Context, now time.Time, old TokenHash, from State, next Session, counters ...Counter) error
	// Touch moves Expires forward, never back and never behind Ends, and LastUsed
	// to now, never back. ErrNotFound if the session is gone or was expired at now.
	Touch(ctx context.Context, now time.Time, hash TokenHash, expires time.Time) error
	// Expire makes a session that is expired at now one that is expired at any
	// time: Get returns it with the zero time as Expires. It is kept for as long
	// as it would have been. ErrNotFound if there is none such.
	Expire(ctx context.Context, now time.Time, hash TokenHash) error
	// Delete ends a session. ErrNotFound if it is gone already.
	Delete(ctx context.Context, hash TokenHash) error
	// DeleteID ends the account's session that has this ID, in whichever state
	// it is, and returns it. Links are none. ErrNotFound if there is none, or if
	// it is expired at now.
	DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (Session, error)
	// End ends what the Ending says, links among it, and Create and Replace
	// refuse such from now on. It takes no longer for a million of them than for
	// MaxSessions. In the same step the session e.Keep of the account is raised
	// to e.Epoch, and so goes on, if it is Authorized and of the epoch just before.
	// A session in RecoveryOTP that has a LoginID becomes a decoy of that instead of
	// being ended. Revoked tells of what an account's Ending has ended.
	End(ctx context.Context, now time.Time, e Revocation) error
}

// SessionCodes keeps the one-time codes of sessions.
type SessionCodes interface {
	// OpenCode removes the code of a session in state and returns the number
	// under which SetCode may give it a new one: each call's is higher.
	// ErrConflict unless the session is there, in that state, not expired.
	OpenCode(ctx context.Context, now time.Time, hash TokenHash, state State) (int64, error)
	// SetCode gives a session its code, and ends ByApp, unless OpenCode was called
	// again since it returned number: then, or if the session is gone, ErrConflict.
	SetCode(ctx context.Context, hash TokenHash, number int64, code Code) error
	// SpendCode returns a session as Get does, but takes its code away: Code is
	// the one that was taken. Nothing is taken, and Code is nil, unless the
	// session is the company's, in state and not expired at now. If it is, and
	// one of the counters, which are only looked at, is at its limit, nothing is
	// taken either, and the session comes with Charge's Full error. Of many
	// callers, one gets the code.
	SpendCode(ctx context.Context, now time.Time, company string, hash TokenHash, state State, counters ...Counter) (Session, error)
}

// Counters counts what is limited in a time.
type Counters interface {
	// Charge adds one to each counter that is not only looked at, or to none if
	// one of them is at its limit: then the Full error tells until when. Of
	// several, which are of one company or all of none, it names the first.
	// Counters that are all only looked at are read, and nothing is written.
	Charge(ctx context.Context, now time.Time, counters ...Counter) error
}

// Keep is how long an expired session is remembered at least, so that its
// token is answered auth.token.expired (contract: an hour).
const Keep = time.Hour + 5*time.Minute

// No session lives longer than LongestSession, whatever its company's policy says: a
// company's ending is in force until all are gone that it has ended.
const LongestSession = 366 * 24 * time.Hour

// An Ending is an account all of whose sessions of an Epoch below this one must
// end, but for Keep. That two endings are owed at once lets no session live that
// either of them ends: only one of the epoch just before can be kept.
//
// With Account 0 it is the company, all of whose sessions of an Era below Epoch
// must end, decoys among them, and none is kept.
type Revocation struct {
	Company    string
	Account    int64
	Generation int64
	Keep       TokenHash // zero for none
}

// AllEpochs is the Epoch of a deleted account's ending.
const AllGenerations = int64(1) << 62

// A Counter counts what happened within a window that begins with the first
// event and ends after Window; then it starts again from nothing.
type Counter struct {
	Key    string // made by limits.Key: what stands before the slash is the company, empty for a counter of all
	Limit  int    // 0: nothing is let through
	Window time.Duration
	// Look: it is only looked at. At its limit it refuses like any other.
	Look bool
}

// Look returns the counters, all of them to be only looked at.
func Look(counters ...Counter) []Counter {
	counters = slices.Clone(counters)
	for i := range counters {
		counters[i].Look = true
	}
	return counters
}

// Full says that a Counter is at its limit.
type Full struct {
	Key   string
	Until time.Time
}

func (f *Full) Error() string { return "limit reached" }

// TakenError says which value another account of the company holds.
type TakenError struct {
	Field string // profile_mnemocode, primary_phone, primary_email, login_name or oauth_identities
}

func (e *TakenError) Error() string { return e.Field + " is taken by another account" }

// A Feed is told by a store what happened to sessions on any node. Its methods
// don't wait and may be called concurrently.
type Feed interface {
	// Ended: the session under hash was ended or replaced.
	Ended(hash TokenHash)
	// EndedAll: what the Ending says was ended.
	EndedAll(e Revocation)
	// Flush: something may have been missed.
	Flush()
	// Trust: whatever is not heard of by until may have been missed. The zero
	// time ends the trust, which a Memory begins without.
	SetLease(until time.Time)
}

// A Recaller is Sessions that remember: it answers the protected path without
// asking, where it can.
type Recaller interface {
	// Recall is Get, at now, for the company whose token it must be; empty for
	// any. What comes from memory lacks ID, Era, Accepted, Created, LastUsed, Address
	// and UserAgent, which are seldom of use there.
	Recall(ctx context.Context, now time.Time, company string, hash TokenHash) (Session, error)
	// RecallWhole is Recall with ID and Created.
	RecallWhole(ctx context.Context, now time.Time, company string, hash TokenHash) (Session, error)
}
