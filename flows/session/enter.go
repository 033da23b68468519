package session

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mnemogate/mnemogate/flows/background"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// This file begins sessions. A step creates a session or replaces the one before it.

// A Step describes the next session: the first one of a login or recovery, or the one
// that replaces the call's session.
type Step struct {
	Account     record.Account // empty for a decoy
	LoginIDHash string         // of the first step; what a decoy stands for
	State       record.State
	Phone       string             // masked, as the answers of this state show it; empty for none
	By          record.AuthMethods // how the user has proved who they are for this step; empty if they did not
	AuthTime    time.Time          // when they did so at the OAuth provider; zero if it is unknown
	Accepted    []record.Acceptance
	Lists       []wire.Disclaimer // the answer lists them as pending
	// Counters are charged or checked in the same step that stores the session.
	Counters []record.Counter

	expects    record.AuthMethods // in CheckOTP: what the user is to enter first; only for BySMS a code is sent
	backupCode string             // the hash of the one that the step uses up; empty for none
}

// maxPending is how many sessions of an account may wait in one state. Budgets limit
// most ways to begin one, but not those with control questions, fixed codes and backup
// codes.
const maxPending = 100

// profile returns what a session knows of its user. Until it is authorized, that is only how
// and when the user has proved who they are, and the phone of a recovery.
func (c *Call) profile(st Step) record.Profile {
	before := c.Session().Profile
	methods, authTime := before.Methods().With(st.By), st.AuthTime
	switch {
	case authTime.IsZero():
		authTime = before.AuthTime()
	case authTime.After(c.Now): // the provider's clock is ahead
		authTime = c.Now
	}
	if st.State != record.Authorized {
		return record.NewProfile(record.Account{Phone: st.Phone}, []record.ProfileField{record.ProfilePhone}, authTime, methods)
	}
	return record.NewProfile(st.Account, c.m.Forwarded, authTime, methods)
}

func (c *Call) newSession(st Step) record.Session {
	next := record.Session{
		ID:                tokens.NewID(),
		Company:           c.Company.Code,
		Account:           st.Account.ID,
		Mnemocode:         st.Account.Mnemocode,
		LoginID:           c.Tells.loginID(st.State, st.LoginIDHash),
		Generation:        st.Account.Generation,
		CompanyGeneration: st.Account.CompanyGeneration,
		State:             st.State,
		Accepted:          st.Accepted,
		Created:           c.Now,
		LastUsed:          c.Now,
		Address:           c.Address,
		UserAgent:         c.userAgent,
		Profile:           c.profile(st),
		Expires:           c.Now.Add(time.Duration(c.Company.Session.Temporary)),
		Ends:              c.Now.Add(time.Duration(c.Company.Session.Temporary)),
		AtMost:            maxPending,
		Device:            c.Device,
	}
	if st.State == record.Authorized {
		if c.remember {
			next.Device = tokens.NewID() // of the device that rememberDevice adds
		}
		next.AtMost = c.Company.Limits.SessionsPerAccount
		next.Ends = c.Now.Add(time.Duration(c.Company.Session.Lifetime))
		next.Expires = c.Now.Add(time.Duration(min(c.Company.Session.Idle, c.Company.Session.Lifetime)))
	}
	if c.session != nil {
		next.ID = c.session.ID
	}
	return next
}

// replaces reports whether the call's next session replaces the one that it has.
func (c *Call) replaces() bool { return c.session != nil && !c.revoked }

// store creates the call's first session or replaces the one it has. It fails if one
// of the counters is full.
func (c *Call) store(ctx context.Context, next record.Session, counters ...record.Counter) error {
	if next.State == record.Authorized { // strangers can begin others, and fill the account's history with them
		next.Displaced = func(id string) {
			ended := next.Ended(c.ClientEvent(record.EndedByLimit))
			ended.Session = id
			c.m.Emit(ctx, ended)
		}
	}
	var err error
	switch {
	case !c.replaces():
		err = c.m.Sessions.Create(ctx, c.Now, next, counters...)
	case c.stateless != nil:
		err = c.m.Sessions.Create(ctx, c.Now, next, append([]record.Counter{c.stateless.claim}, counters...)...)
		if isFull(err, c.stateless.claim) {
			return wire.ErrTokenInvalid // another request with this token was faster
		}
		if errors.Is(err, record.ErrConflict) { // the account was changed during the login
			if _, revoked := c.accountOf(ctx, c.session); revoked != nil {
				return revoked
			}
		}
	case c.hidden: // a store can't replace a decoy's session by an account's; only one request had the code
		if err = c.m.Sessions.Create(ctx, c.Now, next, counters...); err != nil {
			break
		}
		if err = c.m.Sessions.Delete(ctx, c.session.Hash); err != nil {
			c.abandon(ctx, next.Hash)
		}
		if errors.Is(err, record.ErrNotFound) {
			return wire.ErrTokenInvalid // it was revoked meanwhile
		}
	default:
		err = c.m.Sessions.Replace(ctx, c.Now, c.session.Hash, c.session.State, next, counters...)
		if errors.Is(err, record.ErrConflict) {
			return wire.ErrTokenInvalid // it was used or revoked meanwhile
		}
	}
	if full, ok := errors.AsType[*record.FullError](err); ok {
		return c.LimitError(full)
	}
	if errors.Is(err, record.ErrConflict) { // usually because the account was changed during the login
		return wire.Unavailable("storing the session: the account's sessions have ended meanwhile. If this happens again for the same account, the accounts store has lost a change, as after a failover; then end the sessions once more", err)
	}
	if err != nil {
		return wire.Unavailable("storing the session", err)
	}
	return nil
}

// A Reply is the answer of a route that succeeded, ready to be marshalled.
type Reply struct {
	// The token for the next step. It is opaque to clients.
	SessionToken string `json:"session_token,omitempty"`
	// The next step.
	SessionState record.State `json:"session_state,omitempty"`
	// Seconds until the token expires if it is not used.
	ExpiresIn *int `json:"expires_in,omitempty"`
	// The phone in login_id as the server read it, if it was written differently. Show it to the
	// user.
	LoginID string `json:"login_id,omitempty"`
	// Identifies the user to the application.
	ProfileMnemocode string `json:"profile_mnemocode,omitempty"`
	// The disclaimers that the user must accept.
	DisclaimersRequired []wire.Disclaimer `json:"disclaimers_required,omitzero"`
	// The next attempt needs a captcha_response.
	CaptchaRequired bool `json:"captcha_required,omitempty"`
	// What to call the user of an authorized session on a screen: the email, else the login
	// name, else the masked phone. Only in the answer to GET, and absent while the accounts
	// can't be read.
	User string `json:"user,omitempty"`
	// The phone that the code was sent to, masked.
	UserPhone string `json:"user_phone,omitempty"`
	// The address that the link was mailed to. With hardened, it is what the user sent, or
	// ***@***, and nothing is mailed unless an account can be recovered.
	UserEmail string `json:"user_email,omitempty"`
	// What the user can enter after a correct password: `sms` (a code by SMS), `otp` (a code of
	// an authenticator app), `backup` (a backup code), or one of a later version.
	SecondFactors []record.AuthMethods `json:"second_factors,omitempty"`
	// The question that the user chose.
	ControlQuestion string `json:"control_question,omitempty"`
	// The recovery method in use.
	Verification tenant.Method `json:"verification,omitempty"`
	// The token of this device, if remember_device asked for it. Keep it separate from the
	// session's token, and send it in later logins.
	DeviceToken string `json:"device_token,omitempty"`
	// Send it back with the authenticator's answer. It is opaque to clients.
	ChallengeToken string `json:"challenge_token,omitempty"`
	// WebAuthn's PublicKeyCredentialRequestOptionsJSON.
	PublicKey jsontext.Value `json:"public_key,omitempty"`
	// The token of the step-up, for stepup/check. It belongs to this session and works once.
	StepUpToken string `json:"stepup_token,omitempty"`
	// The factors with which the account can raise the session, best first: `passkey`, `otp`,
	// `sms`, `backup`, `pwd`, or one of a later version.
	Factors []record.AuthMethods `json:"factors,omitempty"`
	// The factor that was chosen: `passkey`, `otp`, `sms`, `backup`, `pwd`, or one of a later
	// version.
	Factor record.AuthMethods `json:"factor,omitempty"`
	// How the user has proved who they are: words as in the header X-Profile-Auth-Methods.
	AuthMethods []string `json:"auth_methods,omitempty"`
	*tenant.PasswordQuality
}

// Enter takes a step. It creates the session or replaces the call's session, and
// returns the new token.
func (c *Call) Enter(ctx context.Context, st Step) (reply Reply, err error) {
	switch st.State {
	case record.CheckPassword:
		reply, err = c.enterStateless(ctx, st)
	case record.CheckOTP:
		reply, err = c.enterCheckOTP(ctx, st)
	default:
		reply, err = c.enter(ctx, st)
	}
	reply.DisclaimersRequired = st.Lists
	return reply, err
}

// enter takes a step that stores a session, and sends its code, if it has one.
func (c *Call) enter(ctx context.Context, st Step) (Reply, error) {
	next := c.newSession(st)
	var token string
	token, next.Hash = tokens.New(tokens.Prefix, c.Tells.place(&next))
	if len(st.Lists) > 0 {
		st.Counters = append(st.Counters, c.listed(next.ID))
	}
	var code newCode
	if st.State == record.RecoveryOTP || st.expects == record.BySMS {
		var err error
		if code, err = c.newCode(st, token, next.Expires); err != nil {
			return Reply{}, c.AddressFirst(ctx, err)
		}
		next.Code = code.stored
	}
	next.NoCode = st.State == record.CheckOTP && next.Code == nil
	if err := c.storeAndSend(ctx, next, st, code); err != nil {
		return Reply{}, err
	}
	c.nextID, c.By = next.ID, st.By
	c.recordCode(ctx, st)
	reply := c.Describe(st.Account, next, token)
	if st.State == record.Authorized {
		reply.DeviceToken = c.rememberDevice(ctx, st.Account, next)
	}
	return reply, nil
}

// Describe returns what the answer says about a session of an account.
func (c *Call) Describe(a record.Account, next record.Session, token string) Reply {
	reply := Reply{SessionToken: token, SessionState: next.State, ExpiresIn: new(c.SecondsUntil(next.Expires))}
	switch next.State {
	case record.CheckOTP:
		reply.SecondFactors = SecondFactors(c.Company, a)
		if !next.NoCode {
			reply.UserPhone = record.MaskPhone(a.Phone)
			reply.SecondFactors = slices.DeleteFunc(reply.SecondFactors, func(f record.AuthMethods) bool { return f == record.ByApp }) // the code that was sent takes its place
		}
	case record.SetPassword, record.RecoveryPassword:
		reply.PasswordQuality = c.Company.Quality(a)
	case record.Authorized:
		reply.ProfileMnemocode = next.Mnemocode
	}
	return reply
}

// storeAndSend stores the session of a step, does what else must succeed, and sends the
// code. If the code can't be sent, the session before it stays valid. If what else must
// succeed fails, the user has to log in again.
func (c *Call) storeAndSend(ctx context.Context, next record.Session, st Step, code newCode) error {
	counters := append(st.Counters, code.counters...)
	if code.send != nil && c.replaces() {
		return c.sendAndStore(ctx, next, st, code, counters)
	}
	if err := c.store(ctx, next, counters...); err != nil {
		return err
	}
	err := c.complete(ctx, st)
	if err == nil && code.stored != nil {
		err = c.Tells.deliver(ctx, st, next.Hash, code) // last, because a code can't be taken back
	}
	if err != nil {
		c.abandon(ctx, next.Hash)
	}
	return err
}

// sendAndStore is storeAndSend if there is a session before, which stays until the code is
// sent. Of requests at once with its token, one sends a code. Otherwise the user could get two,
// and the newer one would be of no use.
func (c *Call) sendAndStore(ctx context.Context, next record.Session, st Step, code newCode, counters []record.Counter) error {
	sending := c.Counter("sending", hex.EncodeToString(c.session.Hash[:]), tenant.Rate{N: 1, Per: AskLimit})
	first, err := c.MarkUsed(ctx, sending, counters...)
	switch {
	case err != nil: // the mark may be another request's
		return err
	case !first:
		return wire.ErrTokenInvalid
	}
	stored := false
	defer func() { // even if a plugin panics
		if !stored {
			_ = c.Counters.Refund(record.Detached(ctx), c.Now, sending) // else the token works again in a minute
		}
	}()
	if err := c.Tells.deliver(ctx, st, next.Hash, code); err != nil {
		return err
	}
	err = c.store(ctx, next)
	stored = err == nil
	return err
}

// complete does what else must succeed in a step, before the client gets the token. It
// records the disclaimers that the user has accepted in this login, then uses up the backup
// code: a spare acceptance is better than a lost code.
func (c *Call) complete(ctx context.Context, st Step) error {
	if st.State == record.Authorized && len(st.Accepted) > 0 {
		accepted := record.Event{Name: record.TypeDisclaimersAccepted, Time: c.Now, Mnemocode: st.Account.Mnemocode, Accepted: st.Accepted}
		if err := c.m.Accounts.Accept(ctx, c.Company.Code, st.Account.ID, st.Accepted, background.OutboxEvents(ctx, c.Company, accepted)...); err != nil {
			return wire.Unavailable("recording the accepted disclaimers", err)
		}
	}
	if st.backupCode == "" {
		return nil
	}
	// ErrTokenInvalid: another login has used the code; this one's session is replaced already.
	return wire.Gone("spending the backup code", c.m.Accounts.UseBackupCode(ctx, c.Company.Code, st.Account.ID, st.backupCode))
}

// SecondFactors returns the second factors that the account's owner can use. It returns
// none for an account without a password, because strangers can begin its logins.
func SecondFactors(company *tenant.Company, a record.Account) (factors []record.AuthMethods) {
	if a.PasswordHash == "" {
		return nil
	}
	for _, factor := range []record.AuthMethods{record.ByApp, record.BySMS, record.ByBackupCode} {
		if company.CanGive(a, factor) {
			factors = append(factors, factor)
		}
	}
	return factors
}

// enterStateless takes a step to checkpassword. Its token holds the session; the store
// holds nothing.
func (c *Call) enterStateless(ctx context.Context, st Step) (Reply, error) {
	if err := c.Charge(ctx, st.Counters...); err != nil {
		return Reply{}, err
	}
	session := c.newSession(st)
	token := c.Keys.NewStateless(session, c.listing())
	c.nextID = tokens.StatelessID(token)
	return c.Describe(st.Account, session, token), nil
}

// codelessLogins limits the sessions that strangers can begin for an account without
// a password after its SMS budget is used up, or while its gateway fails.
var codelessLogins = tenant.Rate{N: 30, Per: 10 * time.Minute}

// enterCheckOTP takes the step to checkotp. If no SMS may be sent, an account with backup codes
// still gets its session (contract, section 4, Second factor), also if the gateway fails.
func (c *Call) enterCheckOTP(ctx context.Context, st Step) (Reply, error) {
	var err error
	if st.expects, err = c.expects(st.Account); err != nil {
		return Reply{}, c.AddressFirst(ctx, err)
	}
	if st.expects == record.ByBackupCode {
		return c.enterCodeless(ctx, st)
	}
	reply, err := c.enter(ctx, st)
	if st.expects == record.BySMS && st.Account.BackupCodes > 0 && IsUnsent(err) {
		c.m.WarnUnanswered(ctx, err, "company", c.Company.Code)
		return c.enterCodeless(ctx, st)
	}
	return reply, err
}

func (c *Call) enterCodeless(ctx context.Context, st Step) (Reply, error) {
	st.expects = record.ByBackupCode
	if st.Account.PasswordHash == "" {
		of := strconv.FormatInt(st.Account.ID, 10) + "/codeless"
		st.Counters = append(st.Counters, c.Counter("limit.sms_account", of, codelessLogins))
	}
	return c.enter(ctx, st)
}

// Exchange replaces the token of the call's authorized session and returns the new one.
// The replacement is atomic: of concurrent callers, one succeeds. The session keeps its
// ID, the time of its login and the end of its lifetime.
func (c *Call) Exchange(ctx context.Context) (Reply, error) {
	token, hash := tokens.New(tokens.Prefix, record.AccountBucket(c.Company.Code, c.session.Account))
	for range raises {
		next := *c.session
		next.Hash, next.LastUsed = hash, c.Now
		next.Code = nil // of a step-up, which may be spent at the same time
		next.AtMost = 0 // the number of sessions does not change, so the limit does not apply
		next.Expires = next.IdleUntil(c.Now.Add(time.Duration(c.Company.Session.Idle)))
		err := c.store(ctx, next)
		if err == nil {
			moved := c.Event()
			moved.Name, moved.Company = record.SessionMoved, c.Company.Code
			c.m.Emit(ctx, moved)
			return c.Describe(record.Account{}, next, token), nil
		}
		if !errors.Is(err, wire.ErrTokenInvalid) {
			return Reply{}, err
		}
		if err := c.Find(ctx, c.token); err != nil { // else it was raised or refreshed meanwhile
			return Reply{}, err
		}
	}
	return Reply{}, wire.Unavailable("exchanging the token", record.ErrConflict)
}

// SecondsUntil returns the whole seconds from now until then.
func (c *Call) SecondsUntil(then time.Time) int { return int(then.Sub(c.Now) / time.Second) }
