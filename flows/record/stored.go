package record

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"time"
)

// This file holds what every store does alike with what it keeps.

// FeedLease is how long a feed is trusted after its last heartbeat.
const FeedLease = time.Second

// MarkerLife is how long the revocation's marker is kept. The sessions of an account are
// deleted, so its marker only has to stop calls that are still in flight. The
// sessions of a company stay in the store until they expire, so its marker must
// outlive them.
func (e Revocation) MarkerLife() time.Duration {
	if e.Account == 0 {
		return LongestSession + KeepExpired
	}
	return 31 * 24 * time.Hour
}

// SetGeneration sets Generation and InactiveGeneration of an account that Update changes.
func (a *Account) SetGeneration(before Account, ends bool) {
	a.Generation, a.InactiveGeneration = before.Generation, before.InactiveGeneration
	if !ends {
		return
	}
	a.Generation++
	if before.Status == StatusActive && a.Status != StatusActive {
		a.InactiveGeneration = a.Generation
	}
}

// StoredStates are all states that a store keeps.
var StoredStates = append(slices.Clone(States[1:]), MailedLink)

// SortByAge sorts sessions, oldest first.
func SortByAge(sessions []Session) {
	slices.SortFunc(sessions, func(a, b Session) int {
		return cmp.Or(a.Created.Compare(b.Created), strings.Compare(a.ID, b.ID))
	})
}

// Micros returns a time as it is stored. The zero time is stored as 0, so the beginning of 1970,
// which many systems write for an unknown date, becomes a microsecond later.
func Micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return cmp.Or(t.UnixMicro(), 1)
}

// FromMicros returns the time that is stored as n.
func FromMicros(n int64) time.Time {
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

// EncodeAcceptances returns acceptances as they are stored.
func EncodeAcceptances(accepted []Acceptance) string {
	stored := make([]storedAcceptance, len(accepted))
	for i, a := range accepted {
		stored[i] = storedAcceptance{a.Code, a.Version, Micros(a.At)}
	}
	data, _ := json.Marshal(stored) // strings and numbers: never fails
	return string(data)
}

// DecodeAcceptances returns the acceptances that are stored as data.
func DecodeAcceptances(data []byte) (accepted []Acceptance, err error) {
	stored, err := DecodeList[storedAcceptance](data)
	for _, a := range stored {
		accepted = append(accepted, Acceptance{Code: a.Code, Version: a.Version, At: FromMicros(a.At)})
	}
	slices.SortFunc(accepted, Acceptance.Compare)
	return accepted, err
}

// DecodeList decodes a JSON array. It returns nil for an empty one without parsing it,
// which is the usual case.
func DecodeList[T any](data []byte) (list []T, err error) {
	if string(data) != "[]" {
		err = json.Unmarshal(data, &list)
	}
	return list, err
}
