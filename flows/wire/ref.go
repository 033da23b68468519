package wire

import (
	"crypto/rand"
	"errors"
	"strings"
)

// A referred is an error with the ref of the answer that it becomes.
type referred struct {
	error
	ref string
}

// Unwrap makes errors.Is find the error.
func (r *referred) Unwrap() error { return r.error }

// crockford is the alphabet of refs: people read them out, so it lacks letters that look
// like others (Crockford's base32).
const crockford = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"

const refLength = 10

// WithRef returns err with a new random ref, or as it is if it has one (contract, section
// 25). The ref names this refusal in the answer, the audit log, the account's history and
// the trace. Use it only for errors: it reads random bytes.
func WithRef(err error) error {
	if RefOf(err) != "" {
		return err
	}
	ref := make([]byte, refLength)
	_, _ = rand.Read(ref) // never fails
	for i, b := range ref {
		ref[i] = crockford[b%byte(len(crockford))]
	}
	return &referred{err, string(ref)}
}

// SameRef returns err with the ref of another error, if that has one.
func SameRef(other, err error) error {
	if ref := RefOf(other); ref != "" && err != nil {
		return &referred{err, ref}
	}
	return err
}

// RefOf returns the ref of an error, or "" if it has none.
func RefOf(err error) string {
	if r, ok := errors.AsType[*referred](err); ok {
		return r.ref
	}
	return ""
}

// ReadRef returns a ref as a person typed it: in any case, with O for 0, I or L for 1, and
// hyphens or spaces. It is not ok if it can't be one.
func ReadRef(typed string) (ref string, ok bool) {
	ref = strings.NewReplacer("O", "0", "I", "1", "L", "1", "-", "", " ", "").Replace(strings.ToUpper(typed))
	return ref, len(ref) == refLength && strings.Trim(ref, crockford) == ""
}
