package senders

import (
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// maxShown is how much of a gateway's answer a log line may have, in bytes.
const maxShown = 200

var answerWord = regexp.MustCompile(`[^\s"'<>{}()\[\],:;]+`)

// shown is the beginning of a gateway's answer for a log. What it repeats of what
// it was sent, however it writes it, is left out: that has codes, links, phones and
// the keys of the gateway.
func shown(answer []byte, sent ...string) string {
	answer = answer[:min(len(answer), maxShown)]
	told := lettersAndDigits(strings.Join(sent, ""))
	return strconv.Quote(answerWord.ReplaceAllStringFunc(strings.ToValidUTF8(string(answer), ""), func(word string) string {
		switch w := lettersAndDigits(word); {
		case len(w) < 3 && strings.ContainsAny(w, "0123456789"), len(w) >= 3 && strings.Contains(told, w):
			return "…"
		}
		return word
	}))
}

func lettersAndDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}
