package store

import (
	"fmt"
	"slices"
	"strings"

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
		if f.Flag != nil {
			return "false"
		}
		return "''"
	})
)

// accountValues returns the values of accountColumns.
func accountValues(a record.Account) []any {
	values := make([]any, len(record.Fields))
	for i, f := range record.Fields {
		if f.Flag != nil {
			values[i] = *f.Flag(&a)
		} else {
			values[i] = *f.Text(&a)
		}
	}
	return values
}

// postgresFields writes a list of accountColumns. In format, %[1]s is the column,
// %[2]d the number of its parameter, of which the first is given, and %[3]s its type.
func postgresFields(format string, first int) string {
	return eachField(func(i int, f record.Field) string {
		kind := "text"
		if f.Flag != nil {
			kind = "boolean"
		}
		return fmt.Sprintf(format, f.Column, first+i, kind)
	})
}

// accountScan returns a function that scans the accounts of a result, row by row. A row
// overwrites everything of the row before. The function text converts the texts that
// are part of JSON.
func accountScan(text func(string) string) func(scanner) (record.Account, error) {
	var a record.Account
	var created, updated int64
	var identities, accepted, failures []byte
	columns := append(make([]any, 0, len(record.Fields)+12), &a.ID, &a.Company)
	for _, f := range record.Fields {
		if f.Flag != nil {
			columns = append(columns, f.Flag(&a))
		} else {
			columns = append(columns, f.Text(&a))
		}
	}
	columns = append(columns, &a.Generation, &a.InactiveGeneration, &created, &updated,
		&identities, &accepted, &a.BackupCodes, &a.Passkeys, &failures, &a.CompanyGeneration)
	return func(row scanner) (_ record.Account, err error) {
		if err = row.Scan(columns...); err != nil {
			return record.Account{}, err
		}
		a.Created, a.Updated = fromMicros(created), fromMicros(updated)
		if a.FailureCounts, err = decodeFailureCounts(failures, text); err != nil {
			return record.Account{}, err
		}
		if a.Identities, err = decodeIdentities(identities); err != nil {
			return record.Account{}, err
		}
		for i := range a.Identities {
			a.Identities[i].Subject = text(a.Identities[i].Subject)
		}
		if a.Accepted, err = decodeAcceptances(accepted); err != nil {
			return record.Account{}, err
		}
		for i := range a.Accepted {
			a.Accepted[i].Code, a.Accepted[i].Version = text(a.Accepted[i].Code), text(a.Accepted[i].Version)
		}
		return a, nil
	}
}

// Child rows of an account, as JSON. The decoders return nil for an empty list.

func decodeIdentities(data []byte) ([]record.Identity, error) {
	identities, err := decodeList[record.Identity](data)
	slices.SortFunc(identities, record.Identity.Compare)
	return identities, err
}

func decodeFailureCounts(data []byte, text func(string) string) (map[record.FailureKind]record.FailureCount, error) {
	stored, err := decodeList[struct {
		Kind  string `json:"kind"`
		Count int    `json:"count"`
		Until int64  `json:"until"`
	}](data)
	if err != nil || len(stored) == 0 {
		return nil, err
	}
	failures := make(map[record.FailureKind]record.FailureCount, len(stored))
	for _, t := range stored {
		failures[record.FailureKind(text(t.Kind))] = record.FailureCount{Count: t.Count, Until: fromMicros(t.Until)}
	}
	return failures, nil
}
