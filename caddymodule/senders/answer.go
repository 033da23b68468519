package senders

import (
	"errors"
	"net/http"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/wneessen/go-mail"

	"github.com/mnemogate/mnemogate/caddymodule/guest"
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

// smtpAdvice is statusAdvice for an error of a mail server, with what smtpAnswer returns
// for it.
func smtpAdvice(err error, code int, said string) string {
	_, notSMTP := errors.AsType[textproto.ProtocolError](err)
	switch {
	case errors.Is(err, mail.ErrNoSupportedAuthDiscovered) || strings.Contains(said, "5.7.139") || strings.Contains(said, "5.7.30"):
		return "passwords are switched off there, or for this mailbox: allow authenticated SMTP for it, or send through a server that takes a password, or through mail webhook"
	case code == 0 && (notSMTP || strings.Contains(err.Error(), "STARTTLS") || strings.Contains(err.Error(), "AUTH")):
		return "check the port: 587 is usual for starttls, 465 for implicit, and 25 takes no login"
	case code == 0:
		return guest.ReachAdvice(err)
	}
	switch code {
	case 530, 534, 535, 538:
		return "check the username and password; many providers want an app password"
	case 421, 432, 450, 451, 452:
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
