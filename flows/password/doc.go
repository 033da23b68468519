// Package password keeps passwords and other secrets that people type: in which
// form they are compared, which are too easily guessed, and how they are hashed.
//
// Read hasher.go first: a Hasher hashes a few secrets at a time, and everyone
// gets a turn. hash.go knows the kinds of hashes, hash_foreign.go those of other
// programs. The package keeps and asks nothing.
package password
