package wire

import "strings"

// ParseBearer returns the token of an Authorization header (RFC 6750, 2.1). lines are the
// values of the header.
func ParseBearer(lines []string) (string, error) {
	if len(lines) == 0 {
		return "", ErrHeaderMissing
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if len(lines) > 1 || !strings.EqualFold(scheme, "Bearer") || !isB64Token(token) {
		return "", ErrHeaderInvalid
	}
	return token, nil
}

// isB64Token reports whether s is a b64token: 1*( ALPHA / DIGIT / "-" / "." /
// "_" / "~" / "+" / "/" ) *"=".
func isB64Token(s string) bool {
	s = strings.TrimRight(s, "=")
	for i := range len(s) {
		c := s[i] | 0x20 // the lower case, if it is a letter
		if !('a' <= c && c <= 'z' || '0' <= s[i] && s[i] <= '9' || strings.IndexByte("-._~+/", s[i]) >= 0) {
			return false
		}
	}
	return s != ""
}
