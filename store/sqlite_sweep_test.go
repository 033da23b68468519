package store

import "testing"

// A sweep holds up all writes while it looks for what it deletes. However much
// has just expired, it looks at nothing that it leaves.
func TestSQLiteSweepsLookAtNothingTheyLeave(t *testing.T) {
	s := startSQLite(t, tempFile(t))
	for query, want := range map[string]string{
		sqliteSweepSessions: "SEARCH sessions USING COVERING INDEX sessions_expires (expires>? AND expires<?)",
		sqliteSweepExpired:  "SEARCH sessions USING COVERING INDEX sessions_expired (ends<?)",
	} {
		steps := plan(t, s, query)
		wantEqual(t, query, steps[len(steps)-1], want)
	}
}
