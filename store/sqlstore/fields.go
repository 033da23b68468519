package sqlstore

import (
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// This file makes the parts of statements that list record.Fields. A field is stored as
// soon as it is there and a migration has added its column.

// eachField joins what part returns for each of record.Fields.
func eachField(part func(i int, f record.Field) string) string {
	parts := make([]string, len(record.Fields))
	for i, f := range record.Fields {
		parts[i] = part(i, f)
	}
	return strings.Join(parts, ", ")
}

// noAccount are the values of accountColumns in a row without an account.
var (
	accountColumns = eachField(func(_ int, f record.Field) string { return f.Column })
	noAccount      = eachField(func(_ int, f record.Field) string {
		switch {
		case f.Flag != nil:
			return "false"
		case f.Time != nil:
			return "0"
		default:
			return "''"
		}
	})
)

// accountValues returns the values of accountColumns.
func accountValues(a record.Account) []any {
	values := make([]any, len(record.Fields))
	for i, f := range record.Fields {
		switch {
		case f.Flag != nil:
			values[i] = *f.Flag(&a)
		case f.Time != nil:
			values[i] = record.Micros(*f.Time(&a))
		default:
			values[i] = *f.Text(&a)
		}
	}
	return values
}

// accountScan returns a function that scans the accounts of a result, row by row. A row
// overwrites everything of the row before.
func accountScan() func(Scanner) (record.Account, error) {
	var a record.Account
	var identities, accepted, failures []byte
	columns := append(make([]any, 0, len(record.Fields)+12), &a.ID, &a.Company)
	for _, f := range record.Fields {
		switch {
		case f.Flag != nil:
			columns = append(columns, f.Flag(&a))
		case f.Time != nil:
			columns = append(columns, Time(f.Time(&a)))
		default:
			columns = append(columns, f.Text(&a))
		}
	}
	columns = append(columns, &a.Generation, &a.InactiveGeneration, Time(&a.Created), Time(&a.Updated),
		&identities, &accepted, &a.BackupCodes, &a.Passkeys, &failures, &a.CompanyGeneration)
	return func(row Scanner) (_ record.Account, err error) {
		if err = row.Scan(columns...); err != nil {
			return record.Account{}, err
		}
		if a.FailureCounts, err = decodeFailureCounts(failures); err != nil {
			return record.Account{}, err
		}
		if a.Identities, err = decodeIdentities(identities); err != nil {
			return record.Account{}, err
		}
		if a.Accepted, err = record.DecodeAcceptances(accepted); err != nil {
			return record.Account{}, err
		}
		return a, nil
	}
}

// Time returns what scans a column with microseconds into a time.
func Time(t *time.Time) sql.Scanner { return (*storedTime)(t) }

type storedTime time.Time

// Scan implements sql.Scanner.
func (t *storedTime) Scan(value any) error {
	n, ok := value.(int64)
	if !ok {
		return fmt.Errorf("a time is stored as %T", value)
	}
	*t = storedTime(record.FromMicros(n))
	return nil
}

// Hash returns what scans a column with a hash, which may be empty or NULL.
func Hash(h *record.TokenHash) sql.Scanner { return (*storedHash)(h) }

type storedHash record.TokenHash

// Scan implements sql.Scanner.
func (h *storedHash) Scan(value any) error {
	bytes, ok := value.([]byte)
	if !ok && value != nil {
		return fmt.Errorf("a hash is stored as %T", value)
	}
	*h = storedHash{}
	copy(h[:], bytes)
	return nil
}

// Child rows of an account, as JSON. The decoders return nil for an empty list.

func decodeIdentities(data []byte) ([]record.Identity, error) {
	identities, err := record.DecodeList[record.Identity](data)
	slices.SortFunc(identities, record.Identity.Compare)
	return identities, err
}

func decodeFailureCounts(data []byte) (map[record.FailureKind]record.FailureCount, error) {
	stored, err := record.DecodeList[struct {
		Kind  string `json:"kind"`
		Count int    `json:"count"`
		Until int64  `json:"until"`
	}](data)
	if err != nil || len(stored) == 0 {
		return nil, err
	}
	failures := make(map[record.FailureKind]record.FailureCount, len(stored))
	for _, t := range stored {
		failures[record.FailureKind(t.Kind)] = record.FailureCount{Count: t.Count, Until: record.FromMicros(t.Until)}
	}
	return failures, nil
}
