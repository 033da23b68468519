package flows

import (
	"context"
	"errors"
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

// Accounts keeps what outlives a session: accounts and their login ids,
// identities, acceptances and backup codes, and the tallies of wrong attempts,
// which must not be lost with the sessions.
//
// All methods may be called concurrently, from many processes. A method either
// does all it says or nothing. Account ids are never given twice, so a new
// account inherits nothing from a deleted one; an account of another company
// is as good as none. A function that is handed over must be quick and not call
// the store: it runs while others wait.
type Accounts interface {
	// Create stores a new account and returns its id; a.ID, Epoch, Created and
	// Updated are ignored. Its login ids are LoginIDs(a). A TakenError tells
	// what another account of the company holds already.
	Create(ctx context.Context, now time.Time, a Account) (int64, error)

	// The four that follow return the account with its Tallies.

	// ByLoginID finds the account of the company that has this normalised
	// login id. ErrNotFound if none has; then the account is empty but for
	// Tallies, which are those of the login id's alias. It takes as long and
	// goes to the database as often as for one that an account has.
	ByLoginID(ctx context.Context, company, loginID, alias string) (Account, error)
	// ByID finds an account by its id. ErrNotFound.
	ByID(ctx context.Context, company string, id int64) (Account, error)
	// ByMnemocode finds an account by its mnemocode. ErrNotFound.
	ByMnemocode(ctx context.Context, company, mnemocode string) (Account, error)
	// List returns up to limit of the company's accounts, ordered by mnemocode
	// (byte by byte), beginning behind after.
	List(ctx context.Context, company, after string, limit int) ([]Account, error)
	// ByIdentity finds the account bound to a provider's user. ErrNotFound.
	ByIdentity(ctx context.Context, company string, identity Identity) (Account, error)

	// Update loads the account, lets change alter it and stores it, in one
	// step that no other write to the account can come between. It ignores
	// changes of ID, Company, Epoch, Accepted, Tallies, Created and Updated. If change
	// fails, nothing is stored and its error returned. ErrNotFound; a
	// TakenError; ErrConflict never. If ending is true the account's Epoch
	// grows by one and its ending is owed (see Endings). The account is
	// returned as stored.
	Update(ctx context.Context, now time.Time, company string, id int64, ending bool, change func(*Account) error) (Account, error)
	// Delete removes the account with all that belongs to it; its ending is
	// owed, for every epoch. ErrNotFound.
	Delete(ctx context.Context, company string, id int64) error

	// SetPassword stores a password hash, clears MustSetPassword and the tally
	// of wrong passwords, raises the Epoch to epoch+1 and owes the ending, if
	// the account is there and its Epoch still epoch; else ErrConflict. Of many
	// callers with one epoch, one wins.
	SetPassword(ctx context.Context, now time.Time, company string, id, epoch int64, hash string) error
	// Rehash replaces old, another hash of the same password, by hash. Nothing
	// ends. ErrConflict unless the account's hash is still old.
	Rehash(ctx context.Context, company string, id int64, old, hash string) error
	// Accept records acceptances, each replacing an older version's. ErrNotFound.
	Accept(ctx context.Context, company string, id int64, accepted []Acceptance) error
	// Bind adds an identity to an account that has none of that provider.
	// ErrConflict if it has one or the identity is another account's. ErrNotFound.
	Bind(ctx context.Context, now time.Time, company string, id int64, identity Identity) error

	// SetBackupCodes replaces the account's backup codes by these hashes. ErrNotFound.
	SetBackupCodes(ctx context.Context, company string, id int64, hashes []string) error
	// BackupCodes returns the hashes of the codes that are left.
	BackupCodes(ctx context.Context, company string, id int64) ([]string, error)
	// UseBackupCode removes one. ErrConflict if it is gone already.
	UseBackupCode(ctx context.Context, company string, id int64, hash string) error

	// Tally loads a tally (a zero one where there is none), lets change alter
	// it and stores what it became, in one step that no other change of the
	// tally can come between. If change fails nothing is stored and its error
	// returned. change may be called more than once.
	Tally(ctx context.Context, now time.Time, subject Subject, kind Kind, change func(*Tally) error) error
	// Tallies returns all tallies of the subject.
	Tallies(ctx context.Context, subject Subject) (map[Kind]Tally, error)

	// Endings returns up to limit accounts whose sessions are still to be
	// ended: what Update, Delete and SetPassword owe until Ended is called, so
	// that a crash between the change and Sessions.End loses no ending.
	Endings(ctx context.Context, limit int) ([]Ending, error)
	// Ended takes an ending off the list, if its epoch has not grown since.
	Ended(ctx context.Context, ending Ending) error

	// Secret returns 32 random bytes, made at the first call and the same ever
	// after, on every node.
	Secret(ctx context.Context) ([]byte, error)

	// Sweep forgets tallies of unknown login ids that did not change for a
	// day. It holds no one up for long.
	Sweep(ctx context.Context, now time.Time) error
}

// Sessions keeps what lives for minutes to days: sessions with their codes,
// links, and counters.
//
// All methods may be called concurrently, from many processes. A method either
// does all it says or nothing. Time is what the caller hands over; a store's
// own expiry only clears away, and never before Keep has passed.
type Sessions interface {
	// Create stores a session. ErrConflict if its account's sessions of that
	// Epoch have been ended. A session in state MailedLink ends the account's
	// other links. A store may count on Hash.Bucket being the account's
	// AccountBucket (a decoy's, Account 0, can be any), and on Replace's next
	// being of the account of old.
	//
	// The counters are charged in the same step: if one is at its limit, the
	// error is Charge's and nothing is stored; if nothing is stored, nothing is
	// charged. Only a store that keeps counters and sessions on different
	// machines charges first, and may then have charged for an ErrConflict.
	Create(ctx context.Context, now time.Time, s Session, counters ...Counter) error
	// Get returns a session, also an expired one. ErrNotFound if it was ended
	// or never was.
	Get(ctx context.Context, hash TokenHash) (Session, error)
	// Replace ends the session under old and stores next, in one step.
	// ErrConflict unless old is there, in state from, not expired at now, and
	// next's Epoch has not been ended. Of many callers with one token, one wins.
	// The counters are charged as in Create.
	Replace(ctx context.Context, now time.Time, old TokenHash, from State, next Session, counters ...Counter) error
	// Delete ends a session. ErrNotFound if it is gone already.
	Delete(ctx context.Context, hash TokenHash) error
	// End ends all of an account's sessions and links with an Epoch below
	// epoch, and Create and Replace refuse such from now on.
	End(ctx context.Context, now time.Time, e Ending) error
	// Touch moves Expires forward, never back and never behind Ends.
	// ErrNotFound if the session is gone or was expired at now.
	Touch(ctx context.Context, now time.Time, hash TokenHash, expires time.Time) error
	// Expire makes a session that is expired at now one that is expired at any
	// time: Get returns it with the zero time as Expires. It is kept for as long
	// as it would have been. ErrNotFound if there is none such.
	Expire(ctx context.Context, now time.Time, hash TokenHash) error
	// List returns an account's sessions that are not expired, links among
	// them, oldest first.
	List(ctx context.Context, now time.Time, company string, account int64) ([]Session, error)

	// OpenCode removes the code of a session in state and returns the number
	// under which SetCode may give it a new one: each call's is higher.
	// ErrConflict unless the session is there, in that state, not expired.
	OpenCode(ctx context.Context, now time.Time, hash TokenHash, state State) (int64, error)
	// SetCode gives a session its code, unless OpenCode was called again since
	// it returned number: then, or if the session is gone, ErrConflict.
	SetCode(ctx context.Context, hash TokenHash, number int64, code Code) error
	// SpendCode returns a session as Get does, but takes its code away: Code is
	// the one that was taken. Nothing is taken, and Code is nil, unless the
	// session is the company's, in state and not expired at now. If it is, and
	// one of the counters, which are only looked at, is at its limit, nothing is
	// taken either, and the session comes with Peek's Full error. Of many
	// callers, one gets the code.
	SpendCode(ctx context.Context, now time.Time, company string, hash TokenHash, state State, counters ...Counter) (Session, error)

	// Charge adds one to each counter, or to none if one of them is at its
	// limit: then the Full error tells until when. Of several, it names the
	// first.
	Charge(ctx context.Context, now time.Time, counters ...Counter) error
	// Peek returns a Full error if one of the counters is at its limit.
	Peek(ctx context.Context, now time.Time, counters ...Counter) error

	// Sweep clears away what has expired more than Keep ago. It holds no one
	// up for long.
	Sweep(ctx context.Context, now time.Time) error
}

// Keep is how long an expired session is remembered at least, so that its
// token is answered auth.token.expired (contract: an hour).
const Keep = time.Hour + 5*time.Minute

// An Ending is an account all of whose sessions below Epoch must end.
type Ending struct {
	Company string
	Account int64
	Epoch   int64
}

// AllEpochs is the Epoch of a deleted account's ending.
const AllEpochs = int64(1) << 62

// A Counter counts what happened within a window that begins with the first
// event and ends after Window; then it starts again from nothing.
type Counter struct {
	Key    string // made by counterKey: one of no company equals one of another
	Limit  int    // 0: nothing is let through
	Window time.Duration
	// Look: it is only looked at. At its limit it refuses like any other.
	Look bool
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
