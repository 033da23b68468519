// Package password handles passwords and other secrets that people type: how they are
// normalised, which are too easy to guess, and how they are hashed.
//
// Start with hasher.go: a Hasher hashes a few secrets at a time and shares the CPU
// fairly. hash.go has the kinds of hashes, hash_foreign.go those of other programs. The
// package stores nothing and calls no other system.
package password
