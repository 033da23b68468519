package sqlstore

import (
	"context"
	"errors"
	"testing"
)

// A rowQueries answers every query with the same rows.
type rowQueries struct {
	Queries
	rows []Scanner
}

func (q rowQueries) Each(_ context.Context, scan func(Scanner) error, _ string, _ ...any) error {
	for _, row := range q.rows {
		if err := scan(row); err != nil {
			return err
		}
	}
	return nil
}

// A rowOf is a row of one number, or one that can't be read.
type rowOf int

var errUnreadable = errors.New("unreadable")

func (r rowOf) Scan(dest ...any) error {
	*dest[0].(*int) = int(r)
	if r < 0 {
		return errUnreadable
	}
	return nil
}

// The caller of Claim gives back what was claimed even after an error, so it must not see
// half an event.
func TestCollectLeavesOutARowThatCanNotBeRead(t *testing.T) {
	all, err := Collect(bg, rowQueries{rows: []Scanner{rowOf(1), rowOf(2), rowOf(-3), rowOf(4)}}, ScanValue[int], "")
	wantErr(t, "collect", err, errUnreadable)
	wantEqual(t, "rows", all, []int{1, 2})
}
