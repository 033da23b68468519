// Package message words what users are sent and shown: SMS and mails from
// templates, each in the best language that it is there in, and the translations
// of texts that an operator writes.
//
// Start with Message, which is handed to a Sender. LoadTexts says which templates there
// are and what they may hold; ParseLocale how languages are written.
package message

import (
	"context"
	"strings"
	"time"
)

// A Sender delivers SMS or mails. Send returns nil once the gateway has
// accepted the message and keeps to its own timeout; it may be called
// concurrently. Its errors are for the log and name no code or link.
type Sender interface {
	Send(ctx context.Context, m Message) error
}

// What a Message is about.
const (
	OTPLogin              = "otp.login"
	OTPRecovery           = "otp.recovery"
	RecoveryLink          = "recovery.link"
	WelcomeLink           = "welcome.link"
	NoticePasswordChanged = "notice.password_changed"
	NoticeIdentityBound   = "notice.identity_bound"
)

// IsNotice reports whether a type is a notice: it tells an owner what happened to the
// account, and carries neither code nor link.
func IsNotice(kind string) bool { return strings.HasPrefix(kind, "notice.") }

// A Message is an SMS or a mail, ready to be sent.
type Message struct {
	ID        string // unique
	Type      string
	Company   string
	Mnemocode string
	To        string // E.164 phone or email address
	Locale    string // the language tag of the account, else of the company; empty for none
	Code      string // with the OTP types
	Link      string // with RecoveryLink and WelcomeLink
	Subject   string // of a mail
	Text      string
	Expires   time.Time // of the code or link; zero for a notice
}

// Trial is the type of a message, and of an event, by which an operator tries out a
// gateway or receiver. It is of no account.
const Trial = "test"
