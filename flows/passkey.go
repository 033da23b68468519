package flows

import (
	"context"
	"crypto/subtle"
	"errors"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/tokens"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// passkeyOptions returns what a client needs to ask for a passkey (contract, section 17).
// It stores nothing. The options name no account: the user chooses one of the passkeys
// that the authenticator has for this site.
func (s *Service) passkeyOptions(ctx context.Context, c *session.Call, _ *emptyRequest) (Reply, error) {
	if c.Company.Passkeys == nil {
		return Reply{}, tenant.ErrNoPasskeys
	}
	return challengeOf(c, 0, nil)
}

// challengeOf returns a reply with a challenge of the account, or of any account for 0.
func challengeOf(c *session.Call, account int64, handle []byte) (Reply, error) {
	challenge := c.Keys.NewPasskeyChallenge(c.Company.Code, account, handle, c.Now.Add(tenant.PasskeyLife))
	options, err := c.Company.Passkeys.RequestOptions(challenge)
	return Reply{ChallengeToken: tokens.FormatPasskeyChallenge(challenge), PublicKey: options}, err
}

type passkeyLoginRequest struct {
	// The challenge_token that came with the options.
	ChallengeToken string `json:"challenge_token" max:"256" need:"y"`
	// The authenticator's answer: the AuthenticationResponseJSON that PublicKeyCredential.toJSON
	// returns.
	Credential        jsontext.Value `json:"credential" need:"y"`
	AcceptDisclaimers wire.Codes     `json:"accept_disclaimers" max:"129"`
	// The token of a known device, from an earlier login. The owner gets no notice of a login
	// from a known device. Default: the cookie `__Host-mnemogate-device`.
	DeviceToken    string `json:"device_token" max:"128"`
	RememberDevice bool   `json:"remember_device"`
}

// passkeyLogin logs in with a passkey (contract, section 17). A passkey is both factors,
// so no code follows. Like OAuth, it leads to disclaimers that are pending. If the client
// names some, it must name all of them.
func (s *Service) passkeyLogin(ctx context.Context, c *session.Call, req *passkeyLoginRequest) (Reply, error) {
	if c.Company.Passkeys == nil {
		return Reply{}, tenant.ErrNoPasskeys
	}
	assertion, err := c.Company.Passkeys.ReadAssertion(req.Credential)
	if err != nil {
		return Reply{}, errNoCredential
	}
	challenge, ok := c.Keys.OpenPasskeyChallenge(c.Company.Code, 0, nil, req.ChallengeToken, c.Now)
	a, err := s.accountOfPasskey(ctx, c, challenge, ok, assertion)
	if err != nil {
		return Reply{}, err
	}
	if err := tenant.CheckStatus(a); err != nil {
		return Reply{}, err
	}
	if err := c.FindDevice(ctx, a, req.DeviceToken); err != nil {
		return Reply{}, err
	}
	c.Remember(req.RememberDevice)
	accepted, err := c.Accept(ctx, a, req.AcceptDisclaimers)
	if err != nil && len(req.AcceptDisclaimers) > 0 {
		return Reply{}, err
	}
	st := session.Step{Account: a, Accepted: accepted, By: record.ByPasskey, State: record.Authorized}
	if pending := c.Pending(a, accepted); len(pending) > 0 {
		st.State, st.Lists = record.AcceptDisclaimers, pending
	}
	if c.Company.PasswordDue(a) {
		st.State = record.SetPassword
	}
	return c.Enter(ctx, st)
}

var errNoCredential = wire.Invalid("The field credential must be an AuthenticationResponseJSON, as PublicKeyCredential.toJSON() returns.")

// errPasskeyInvalid is the same for every cause, so that it does not reveal which
// passkeys exist.
var errPasskeyInvalid = &wire.Refusal{
	Err:     wire.ErrCredentialsInvalid,
	Message: "The passkey was not accepted. Get new options and try again, or log in another way.",
}

// errPasskeyUnknown tells clients that they can make the browser forget the passkey. Nobody
// guesses the ID of one.
var errPasskeyUnknown = &wire.Refusal{
	Err:     wire.ErrCredentialsInvalid,
	Reason:  wire.PasskeyUnknown,
	Message: "There is no such passkey any more. Tell the browser (signalUnknownCredential), and let the user log in another way.",
}

var errPasskeyChanged = &wire.Refusal{
	Err:     wire.ErrCredentialsInvalid,
	Reason:  wire.PasskeyChanged,
	Message: "The passkey is no longer the one that was created. Let the user log in another way, then create a new one.",
}

// accountOfPasskey verifies the answer of an authenticator to a challenge, if that is valid,
// and returns the account of its passkey. It spends the challenge, even if the login then
// fails. If the call has a session, the account is the session's.
func (s *Service) accountOfPasskey(ctx context.Context, c *session.Call, challenge []byte, valid bool, assertion tenant.PasskeyAssertion) (record.Account, error) {
	if !valid { // usually because the page was open for too long, so this is not a failure of the address
		return record.Account{}, c.AddressFirst(ctx, errPasskeyInvalid)
	}
	fresh, err := c.Spend(ctx, "passkey", challenge)
	if err != nil {
		return record.Account{}, err
	}
	if !fresh {
		return record.Account{}, errPasskeyInvalid
	}
	a, err := s.verifyPasskey(ctx, c, challenge, assertion)
	if err != nil && !errors.Is(err, wire.ErrCredentialsInvalid) {
		return record.Account{}, err
	}
	c.Worked()
	if err := c.RecordAddress(ctx, err == nil); err != nil {
		return record.Account{}, err
	}
	return a, err
}

// verifyPasskey returns the account of the passkey that has answered the challenge, and
// stores the use of the passkey.
func (s *Service) verifyPasskey(ctx context.Context, c *session.Call, challenge []byte, assertion tenant.PasskeyAssertion) (record.Account, error) {
	p, err := s.Accounts.Passkey(ctx, c.Company.Code, assertion.Credential)
	if errors.Is(err, record.ErrNotFound) {
		return record.Account{}, s.unknownPasskey(ctx, c, assertion.Credential)
	}
	if err == nil && c.Session().Account != 0 && c.Session().Account != p.Account {
		return record.Account{}, errPasskeyInvalid
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("looking up the passkey", err)
	}
	a, err := s.Accounts.ByID(ctx, c.Company.Code, p.Account)
	if errors.Is(err, record.ErrNotFound) { // it was deleted just now
		return record.Account{}, errPasskeyInvalid
	}
	if err != nil {
		return record.Account{}, wire.Unavailable("loading the account of the passkey", err)
	}
	use, err := assertion.Verify(challenge, p)
	if errors.Is(err, tenant.ErrPasskeyChanged) {
		c.SetAccount(a)
		c.Events = append(c.Events, record.Event{Name: record.AccountPasskeyChanged, Reason: p.ID()})
		return record.Account{}, errPasskeyChanged
	}
	if err == nil && subtle.ConstantTimeCompare(assertion.UserHandle, p.UserHandle) != 1 {
		err = errors.New("the user handle is not that of the passkey")
	}
	if err != nil {
		s.Log.Info("a passkey does not verify", "company", c.Company.Code, "mnemocode", a.Mnemocode, "error", err)
		return record.Account{}, errPasskeyInvalid
	}
	c.SetAccount(a)
	c.With = p.ID()
	err = s.Accounts.UsePasskey(ctx, c.Now, c.Company.Code, p.Credential, use.SignCount, use.BackedUp)
	switch {
	case errors.Is(err, record.ErrConflict):
		c.Events = append(c.Events, record.Event{Name: record.AccountPasskeyCopied, Reason: p.ID()})
		return record.Account{}, errPasskeyInvalid
	case errors.Is(err, record.ErrNotFound):
		return record.Account{}, errPasskeyInvalid
	case err != nil:
		return record.Account{}, wire.Unavailable("storing the use of the passkey", err)
	}
	return a, nil
}

// unknownPasskey returns the error of a passkey that the company does not have. It is
// errPasskeyUnknown unless another company of the same domain has it, or one that only other
// nodes know: browsers offer the passkeys of all companies of a domain.
func (s *Service) unknownPasskey(ctx context.Context, c *session.Call, credential []byte) error {
	companies, err := s.Accounts.CompaniesWithPasskey(ctx, credential)
	if err != nil {
		return errPasskeyInvalid
	}
	for _, code := range companies {
		if other := s.Companies[code]; other == nil || other.Passkeys != nil && other.Passkeys.RPID() == c.Company.Passkeys.RPID() {
			return errPasskeyInvalid
		}
	}
	return errPasskeyUnknown
}
