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

// shown is the beginning of a gateway's answer for a log. Words that repeat four
// letters or digits in a row of what it was sent are left out, since that has codes,
// links, phones and the keys of the gateway; so are words that may be an encoding of
// it, and single digits.
func shown(answer []byte, sent ...string) string {
	answer = answer[:min(len(answer), maxShown)]
	told := lettersAndDigits(strings.Join(sent, " "))
	return strconv.Quote(answerWord.ReplaceAllStringFunc(strings.ToValidUTF8(string(answer), ""), func(word string) string {
		w := []rune(lettersAndDigits(word))
		hidden := len(w) > maxWord || len(w) < repeated && strings.ContainsAny(string(w), "0123456789")
		for i := 0; !hidden && i+repeated <= len(w); i++ {
			hidden = strings.Contains(told, string(w[i:i+repeated]))
		}
		if hidden {
			return "…"
		}
		return word
	}))
}

const (
	repeated = 4
	maxWord  = 24
)

func lettersAndDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
}
