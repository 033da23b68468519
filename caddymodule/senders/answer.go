package senders

import (
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"unicode"
)

// maxShown is how much of a gateway's answer a log line may contain, in bytes.
const maxShown = 200

var answerWord = regexp.MustCompile(`[^\s"'<>{}()\[\],:;]+`)

// shown returns the beginning of a gateway's answer for a log. It removes words that
// repeat four letters or digits in a row of the request, since the request contains
// codes, links, phones and the gateway's keys. It also removes words that may be an
// encoding of the request, and single digits.
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

// statusAdvice says what to do about the status with which a gateway refused a
// message.
func statusAdvice(status int) string {
	switch {
	case status >= 300 && status <= 399:
		return "no redirect is followed: configure the URL that it leads to"
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return "check that it has the same secret, and check any key in the URL or in a header"
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed:
		return "check the path of the URL"
	case status == http.StatusTooManyRequests:
		return "it says that there were too many: try again later, or ask its operator for a higher limit"
	case status >= 500:
		return "it is at fault: look at its log, or ask its operator"
	default:
		return "it refused this message: look at its log, and check that it accepts the type test"
	}
}

// smtpAdvice is statusAdvice for a mail server's reply code. It returns "" if there
// is no code.
func smtpAdvice(code int) string {
	switch code {
	case 0:
		return ""
	case 530, 534, 535, 538:
		return "check the username and password; many providers want an app password"
	case 421, 450, 451, 452:
		return "it says that it can't now: try again later, or look at its log"
	default:
		return "it refused this message: check that this username may send from the address in from, and to this address"
	}
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
