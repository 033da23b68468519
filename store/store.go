// Package store is where mnemogate keeps its data. It implements record.Accounts and
// record.Sessions, whose comments say what every method promises. SQLite keeps accounts
// and sessions, Postgres accounts, and Redis sessions. A Memory remembers sessions.
//
// Read record first, then store.go, which all stores share, and then one store,
// beginning with sqlite.go.
//
// All stores pass the same tests, in conformance*_test.go. To fix a store, first add a
// test there. What SQLite and PostgreSQL do with the same statements is in sql*.go.
// They share no migrations.
//
// Tables and columns keep older names: "endings" are pending revocations, "fences"
// revocation markers, "eras" and "epoch" session generations, "tallies" failure counts,
// and "barred" is InactiveGeneration.
package store

import (
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/mnemogate/mnemogate/flows/record"
)

// Deployment returns a name for the deployment that accounts belongs to, derived from its
// first Secret, so that the name stays. Deployments that share a Redis use it to keep their
// data apart: see Redis.SetDeployment. Its errors are those of Secrets.
func Deployment(ctx context.Context, accounts record.Accounts) (string, error) {
	secrets, err := accounts.Secrets(ctx)
	if err != nil {
		return "", err
	}
	mac := hmac.New(sha256.New, secrets[0].Value)
	mac.Write([]byte("mnemogate deployment"))
	return hex.EncodeToString(mac.Sum(nil)[:8]), nil
}

// Errors

// A refusal is the error of a function that the caller passed in.
type refusal struct{ error }

// translate turns the drivers' errors into those that the interfaces promise. It adds
// doing to any other error.
func translate(doing string, err error) error {
	if err == nil {
		return nil
	}
	if r, ok := errors.AsType[refusal](err); ok {
		return r.error
	}
	switch sqliteCode(err) {
	case sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY, sqlite3.SQLITE_CONSTRAINT_UNIQUE:
		return record.ErrConflict
	case sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY:
		return record.ErrNotFound
	}
	if errors.Is(err, sql.ErrNoRows) || postgresCode(err) == "23503" { // foreign key violation: the account was deleted
		return record.ErrNotFound
	}
	if record.IsAnswer(err) {
		return err
	}
	switch sqliteCode(err) & 0xff {
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		err = fmt.Errorf("%w: %w", record.ErrDamaged, err)
	}
	return fmt.Errorf("%s: %w", doing, explainSQLite(err))
}

// sqliteCode returns SQLite's extended result code, or 0 if err is not SQLite's.
func sqliteCode(err error) int {
	if e, ok := errors.AsType[*sqlite.Error](err); ok {
		return e.Code()
	}
	return 0
}

// postgresCode returns the SQLSTATE, or "" if err is not the server's.
func postgresCode(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// Sessions and counters

// feedLease is how long a feed is trusted after its last heartbeat.
const feedLease = time.Second

// markerLife is how long a revocation marker is kept. The sessions of an account are
// deleted, so its marker only has to stop calls that are still in flight. The
// sessions of a company stay in the store until they expire, so its marker must
// outlive them.
func markerLife(e record.Revocation) time.Duration {
	if e.Account == 0 {
		return record.LongestSession + record.KeepExpired
	}
	return 31 * 24 * time.Hour
}

// loginStates are the states of sessions that have a token. storedStates are all
// states that a store keeps.
var (
	loginStates  = record.States[1:]
	storedStates = append(slices.Clone(loginStates), record.MailedLink)
)

// sortByAge sorts sessions, oldest first.
func sortByAge(sessions []record.Session) {
	slices.SortFunc(sessions, func(a, b record.Session) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
}

// isCharged reports whether c is charged, and not only looked at.
func isCharged(c record.Counter) bool { return !c.CheckOnly }

// Times

// micros returns a time as it is stored. The zero time is stored as 0.
func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func fromMicros(n int64) time.Time {
	if n == 0 {
		return time.Time{}
	}
	return time.UnixMicro(n).UTC()
}

// A storedAcceptance is an acceptance whose time is in microseconds.
type storedAcceptance struct {
	Code    string `json:"code"`
	Version string `json:"version"`
	At      int64  `json:"at"`
}

func encodeAcceptances(accepted []record.Acceptance) string {
	stored := make([]storedAcceptance, len(accepted))
	for i, a := range accepted {
		stored[i] = storedAcceptance{a.Code, a.Version, micros(a.At)}
	}
	data, _ := json.Marshal(stored) // strings and numbers: never fails
	return string(data)
}

func decodeAcceptances(data []byte) (accepted []record.Acceptance, err error) {
	stored, err := decodeList[storedAcceptance](data)
	for _, a := range stored {
		accepted = append(accepted, record.Acceptance{Code: a.Code, Version: a.Version, At: fromMicros(a.At)})
	}
	slices.SortFunc(accepted, record.Acceptance.Compare)
	return accepted, err
}

// decodeList decodes a JSON array. It returns nil for an empty one without parsing it,
// which is the usual case.
func decodeList[T any](data []byte) (list []T, err error) {
	if string(data) != "[]" {
		err = json.Unmarshal(data, &list)
	}
	return list, err
}
