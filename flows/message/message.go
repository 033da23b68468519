// Package message writes SMS and mails to users from templates, each in the best
// available language. It also holds the translations of texts that an operator writes.
//
// Start with Message, which a Sender sends. LoadTexts documents the templates, ParseLocale
// the language tags.
package message

import (
	"context"
	"strings"
	"time"
)

// A Sender delivers SMS or mails. Send returns nil once the gateway has accepted the
// message, a FinalError if the gateway refuses this message, and a LaterError if it certainly
// did not take it. After any other error the next gateway is asked, so that the message may be
// sent twice, and this one is asked last for 30 s.
//
// Send enforces its own timeout: ctx ends after a minute, or after 10 s if there are several
// gateways, but not when the client hangs up. Send may be called concurrently. Its errors are
// for the log and must not contain a code or link.
type Sender interface {
	Send(ctx context.Context, m Message) error
}

// A LaterError is the error of a Sender whose gateway certainly did not take the message,
// but may take it later. A notice is then sent again. For other messages, the client learns
// how long to wait.
type LaterError struct {
	Err  error
	Wait time.Duration // as the gateway asks; zero if it does not
}

// Error implements error.
func (e *LaterError) Error() string { return textOf(e.Err, "the gateway may take it later") }

// Unwrap returns the cause.
func (e *LaterError) Unwrap() error { return e.Err }

// textOf returns the text of a cause, or what is known without one.
func textOf(cause error, known string) string {
	if cause == nil {
		return known
	}
	return cause.Error()
}

// RetryAfter implements wire.Waiter.
func (e *LaterError) RetryAfter() time.Duration { return e.Wait }

// The types of a Message.
const (
	OTPLogin     = "otp.login"
	OTPRecovery  = "otp.recovery"
	OTPStepUp    = "otp.stepup"
	RecoveryLink = "recovery.link"
	WelcomeLink  = "welcome.link"
	ContactCode  = "contact.code"

	NoticePasswordChanged    = noticePrefix + "password_changed"
	NoticeEmailChanged       = noticePrefix + "email_changed"
	NoticePhoneChanged       = noticePrefix + "phone_changed"
	NoticeTOTPChanged        = noticePrefix + "totp_changed"
	NoticeBackupCodesMade    = noticePrefix + "backup_codes_made"
	NoticePasskeyAdded       = noticePrefix + "passkey_added"
	NoticePasskeyRemoved     = noticePrefix + "passkey_removed"
	NoticeSecondFactorOff    = noticePrefix + "second_factor_off"
	NoticeLoginNameChanged   = noticePrefix + "login_name_changed"
	NoticeQuestionChanged    = noticePrefix + "question_changed"
	NoticeIdentityBound      = noticePrefix + "identity_bound"
	NoticeIdentityRemoved    = noticePrefix + "identity_removed"
	NoticeNewDevice          = noticePrefix + "new_device"
	NoticeSecondFactorFailed = noticePrefix + "second_factor_failed"
	NoticeActed              = noticePrefix + "acted"
	NoticeTokenIssued        = noticePrefix + "token_issued"
)

const noticePrefix = "notice."

// Notices lists the types of notices.
var Notices = []string{
	NoticePasswordChanged, NoticeEmailChanged, NoticePhoneChanged, NoticeTOTPChanged, NoticeBackupCodesMade,
	NoticePasskeyAdded, NoticePasskeyRemoved, NoticeSecondFactorOff, NoticeLoginNameChanged, NoticeQuestionChanged,
	NoticeIdentityBound, NoticeIdentityRemoved, NoticeNewDevice, NoticeSecondFactorFailed, NoticeActed,
	NoticeTokenIssued,
}

// IsNotice reports whether a type is a notice: a message that tells the owner of an
// account what happened to it, without a code or link.
func IsNotice(kind string) bool { return strings.HasPrefix(kind, noticePrefix) }

// NoticeName returns the name of a notice in the configuration, such as email_changed.
func NoticeName(kind string) string { return strings.TrimPrefix(kind, noticePrefix) }

// A Notice is what happened to an account, and from where.
type Notice struct {
	Type string
	// The client of the account's owner, or of someone who knows the owner's secrets.
	// They are empty for a change by an operator or backend.
	Address, UserAgent string
}

// A Message is an SMS or a mail, ready to be sent.
type Message struct {
	ID        string // unique
	Type      string
	Company   string // its code
	Name      string // what people call the company; empty for its code
	Color     string // of the company in HTML, like #336699; empty for the built-in one
	Mnemocode string // empty where there is no account
	To        string // E.164 phone or email address
	Locale    string // the language tag of the account, or else of the company; empty for none
	Language  string // the language tag of Text; empty if unknown
	Code      string // with the OTP types and ContactCode
	Origin    string // of an SMS with a Code: the host on whose pages phones fill in the code; empty for any
	Link      string // with RecoveryLink and WelcomeLink
	Subject   string // of a mail
	Text      string
	HTML      string    // of a mail: the text in the company's looks
	Expires   time.Time // of the code or link; zero for a notice
	Time      time.Time // with notices: when it happened
	Notice    Notice    // with notices
	Last      bool      // with notices: the budget is used up, so the next ones may not come
	Support   string    // where users get help; empty if unknown
}

// ByMail reports whether messages to a recipient are mails. Others are SMS.
func ByMail(to string) bool { return strings.Contains(to, "@") }

// Trial is the type of a message or event with which an operator tests a gateway or
// receiver. It belongs to no account.
const Trial = "test"
