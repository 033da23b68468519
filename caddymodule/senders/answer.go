package senders

import (
	"errors"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/wneessen/go-mail"

	"github.com/mnemogate/mnemogate/store/causes"
)

// maxShown is how much of a gateway's answer a log line may contain, in bytes.
const maxShown = 200

var answerWord = regexp.MustCompile(`[^\s"'<>{}()\[\],:;]+`)

// shown returns the beginning of a gateway's answer for a log. It removes words that
// repeat four letters or digits in a row of the request, since the request contains
// codes, links, phones and the gateway's keys. It also removes words that may be an
// encoding of the request, and words of up to three letters and digits that have a digit.
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

var smtpSteps = causes.Steps{
	causes.Authority: "this machine does not trust the authority of its certificate: name that authority's certificate in ca",
	causes.NoTLS:     "it has no implicit TLS on this port: write tls starttls (587 is usual for it), or correct the port (465 is usual for implicit)",
	causes.Closed:    "it closed the connection: if it expects implicit TLS on this port, write tls implicit; otherwise its log says why",
}

// smtpAnswers says what to do, by the code of a reply.
var smtpAnswers = map[int]string{
	534: wrongLogin, 535: wrongLogin, 538: wrongLogin,
	421: smtpLater, 432: smtpLater, 450: smtpLater, 451: smtpLater, 452: smtpLater, 454: smtpLater,
}

const (
	wrongLogin = "check the username and password; many providers want an app password"
	smtpLater  = "it says that it can't now: try again later, or look at its log"
)

// step says what to do about an error of a mail server, with what smtpAnswer returns for
// it.
func (s *SMTP) step(err error, code int, said string) string {
	first := ""
	if s.TLS == tlsOff {
		first = "it may want TLS first: write tls starttls; otherwise, "
	}
	refused, _ := errors.AsType[*mail.SendError](err)
	_, notSMTP := errors.AsType[textproto.ProtocolError](err)
	switch {
	case errors.Is(err, mail.ErrNoSupportedAuthDiscovered) || strings.Contains(said, "5.7.139") || strings.Contains(said, "5.7.30"):
		return "passwords are switched off there, or for this mailbox: allow authenticated SMTP for it, or send through a server that takes a password, or through mail webhook"
	case errors.Is(err, errNoGreeting):
		return "it waits for something: if this is a port for implicit TLS, such as 465, write tls implicit; otherwise check the address, and that it runs"
	case notSMTP:
		return "this is not the port of a mail server: 587 is usual for starttls, 465 for implicit"
	case code == 0 && strings.Contains(err.Error(), "STARTTLS"):
		return "it offers no STARTTLS on this port: correct the port (587 is usual), or write tls implicit for 465"
	case code == 0 && strings.Contains(err.Error(), "SMTP AUTH"):
		return first + "it takes no login on this port: correct the port (587 or 465), since 25 takes none, or leave username and password out"
	case code == 0 && refused != nil:
		return "it closed the connection before it took the mail: its log says why"
	case code == 0:
		return smtpSteps.Step(err)
	case code == 530:
		return first + "it wants a login: set username and password"
	case smtpAnswers[code] != "":
		return smtpAnswers[code]
	case refused != nil && refused.Reason == mail.ErrSMTPMailFrom:
		return "it refused the sender: let this username send from the address in from, or change from"
	case refused != nil && refused.Reason == mail.ErrSMTPRcptTo:
		return "it refused the recipient: check the address, and that it relays to other domains for this machine or username"
	case refused == nil:
		return "it refuses mails from this machine: its log says why; another port (587), or a login, may be what it wants"
	default:
		return "it refused this message: its log says why; it may take it for spam, for example without SPF and DKIM for the domain in from"
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
