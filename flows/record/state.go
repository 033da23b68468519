package record

// A State is the session_state of the protocol. Stores keep it as it is on the wire.
type State string

// The states. flows.Routes says which route leads from one to the next.
const (
	None              State = ""                       // no session
	CheckPassword     State = "checkpassword"          // the login id is known; the password comes next
	CheckOTP          State = "checkotp"               // a code comes next: by SMS, of an app, or a backup code
	SetPassword       State = "setpassword"            // all is proven, but a new password is required
	AcceptDisclaimers State = "acceptdisclaimers"      // after OAuth or a passkey: disclaimers are pending
	Authorized        State = "authorized"             // the protected path is open
	RecoveryOTP       State = "recovery-checkotp"      // a recovery code was sent
	RecoveryQuestion  State = "recovery-checkquestion" // the control question was asked
	RecoveryPassword  State = "recovery-setpassword"   // recovery is proven; a new password comes next

	// MailedLink is the state of the token in a mailed link until
	// auth/recovery/checklink exchanges it. No response contains it.
	MailedLink State = "recovery-link"
)

// States lists every state of the protocol, None first.
var States = []State{None, CheckPassword, CheckOTP, SetPassword, Authorized, AcceptDisclaimers,
	RecoveryOTP, RecoveryQuestion, RecoveryPassword}
