package message

import (
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf16"
)

// withOrigin returns the text of an SMS with a last line that binds its code to a host:
// phones then fill it in on pages of that host only. The line has the form of
// origin-bound one-time codes (wicg.github.io/sms-one-time-codes).
func withOrigin(text, host, code string) string {
	line := "@" + host + " #" + code
	if text == line || strings.HasSuffix(text, "\n"+line) {
		return text
	}
	return text + "\n" + line
}

// CodeParts returns how many SMS the longest text with a code takes. company is the
// company's name, digits the length of its codes.
func (t *Texts) CodeParts(company, origin string, digits int) (most int) {
	now := time.Now()
	locales := []string{""}
	for _, d := range t.directories {
		locales = slices.AppendSeq(locales, maps.Keys(d.locales))
	}
	for _, locale := range locales {
		for _, kind := range []string{OTPLogin, OTPRecovery, OTPStepUp, ContactCode} {
			m := Message{Type: kind, Company: company, Origin: origin, Code: strings.Repeat("0", digits), Expires: now.Add(10 * time.Minute)}
			if err := t.Render(&m, now, locale); err == nil {
				most = max(most, parts(m.Text))
			}
		}
	}
	return most
}

// Characters of the alphabet of SMS (3GPP TS 23.038, 6.2.1). The extended ones take
// the space of two.
const (
	smsBasic = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?" +
		"¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà"
	smsExtended = "\f^{}\\[~]|€"
)

// parts returns the number of SMS that a text takes. A text with any character that is
// not in the alphabet of SMS is sent as UTF-16, of which less fits.
func parts(text string) int {
	length := 0
	for _, r := range text {
		switch {
		case strings.ContainsRune(smsBasic, r):
			length++
		case strings.ContainsRune(smsExtended, r):
			length += 2
		default:
			return inParts(len(utf16.Encode([]rune(text))), 70, 67)
		}
	}
	return inParts(length, 160, 153)
}

// inParts returns the number of SMS for a text of this length. A text that does not fit
// one SMS is split, and each of its parts has less room.
func inParts(length, one, each int) int {
	if length <= one {
		return 1
	}
	return (length + each - 1) / each
}
