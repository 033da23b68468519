package session

import (
	"context"
	"strings"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A Client is what is known of the sender of a request.
type Client struct {
	Address   string // for its limits
	UserAgent string // as it came; sessions keep its beginning
	// Languages returns those that the user reads, the best first. It is called only
	// where there is something to choose; nil if nothing is known of them.
	Languages func() []language.Tag
	// SeesStatus allows the status of an account as the answer, if the status has revoked
	// the token.
	SeesStatus bool
}

// A Call is one request of a client on its way through a flow: the company and the client,
// the session of its token, and what has come of the request so far.
type Call struct {
	limits.Attempt

	s         *Manager
	session   *record.Session // nil while none is found
	token     string          // the session's
	revoked   bool            // Revoke has ended the session, so the next one replaces none
	client    Client
	userAgent string // as sessions keep it
	key       string // what the API key is called

	// What looking for the session has shown already.
	limited *record.Full    // why the address may not go on
	loaded  *record.Account // the session's
	claim   *record.Counter // of a stateless token: full once it was used; nil if the session is stored

	// What the call's events tell.
	issued  string // the ID of the session that began
	country string // calling code of the phone whose SMS code the call is about; empty for none
}

// NewCall begins the call of a client. Admit says which company the call is for.
func (s *Manager) NewCall(client Client) *Call {
	return &Call{Attempt: s.attempt(nil, client.Address), s: s, client: client, userAgent: keptUserAgent(client.UserAgent)}
}

// Admit says which company the call is for, and what the API key is called that the client
// sent.
func (c *Call) Admit(ctx context.Context, company *tenant.Company, key string) (err error) {
	c.Company, c.key = company, key
	c.Keys, err = c.s.Keys(ctx)
	return err
}

// Attempt is one of a client at that address.
func (s *Manager) Attempt(ctx context.Context, company *tenant.Company, address string) (limits.Attempt, error) {
	keys, err := s.Keys(ctx)
	at := s.attempt(company, address)
	at.Keys = keys
	return at, err
}

// attempt is an Attempt that lacks its Keys.
func (s *Manager) attempt(company *tenant.Company, address string) limits.Attempt {
	at := limits.Attempt{Company: company, Address: address, Now: s.Now(), Counters: s.Sessions, FailureCounts: s.Accounts}
	if s.Observe != nil {
		at.Told, at.Traffic = &s.told, &s.traffic
	}
	return at
}

// Session is the session that the call's token led to. Its State is record.None if
// there is none.
func (c *Call) Session() record.Session {
	if c.session == nil {
		return record.Session{}
	}
	return *c.session
}

// Issued is the ID of the session whose token the call has issued; empty for none.
func (c *Call) Issued() string { return c.issued }

// Found notes whose account the call is about.
func (c *Call) Found(a record.Account) { c.Account, c.Mnemocode = a.ID, a.Mnemocode }

// By is an event that the call's client has caused.
func (c *Call) By(reason string) record.Event {
	return record.Event{Address: c.Address, UserAgent: c.userAgent, Key: c.key, Reason: reason}
}

// Event is By, with the account, the session and the country that the call is about.
func (c *Call) Event() record.Event {
	e := c.By("")
	e.Time, e.Country, e.Account, e.Mnemocode = c.Now, c.country, c.Account, c.Mnemocode
	if c.session != nil {
		e.Session, e.State = c.session.ID, c.session.State
		if c.Mnemocode == "" {
			e.Account, e.Mnemocode = c.session.Account, c.session.Mnemocode
		}
	}
	return e
}

// aboutSMS notes the country of a phone, unless it gets no SMS.
func (c *Call) aboutSMS(phone string) {
	if _, fixed := c.Company.OTP.FixedCode(phone); !fixed && phone != "" {
		c.country = tenant.CallingCode(phone)
	}
}

// maxUserAgent is how much of a user agent is kept, in bytes.
const maxUserAgent = 200

// keptUserAgent is what sessions keep of a client's word: valid UTF-8.
func keptUserAgent(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxUserAgent)], "")
}
