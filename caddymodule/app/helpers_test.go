package app

import "testing"

// testSecret is what no output may hold.
const testSecret = "whsec_c2VjcmV0IHNlY3JldCBzZWNyZXQ="

// testEnvironment sets what the files in testdata refer to, and returns the
// directory in which a database could have been created.
func testEnvironment(t *testing.T) string {
	dir := t.TempDir()
	t.Setenv("XDG_DATA_HOME", dir)
	t.Setenv("HOME", dir)
	t.Setenv("MNEMOGATE_TEST_DIR", dir)
	t.Setenv("MNEMOGATE_TEST_KEY", "key-of-acme")
	t.Setenv("MNEMOGATE_TEST_SECRET", testSecret)
	t.Setenv("MNEMOGATE_TEST_DSN", "postgres://mg:secret@10.0.0.9/mg?sslmode=require")
	t.Setenv("MNEMOGATE_TEST_EMPTY", "")
	return dir
}

type accountsOnly struct{}
