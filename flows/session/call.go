package session

import (
	"context"
	"strconv"
	"strings"

	"golang.org/x/text/language"

	"github.com/mnemogate/mnemogate/flows/limits"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
)

// A Client describes the sender of a request.
type Client struct {
	Address   string // for its limits
	UserAgent string // as sent; sessions keep the first part
	// Languages returns the languages that the user reads, best first. It is called
	// only if a text has translations. Languages may be nil.
	Languages func() []language.Tag
	// Device returns the client's device token from a cookie, or "". It fails if
	// another site may have caused the request. Device may be nil.
	Device func() (string, error)
}

// A Call is the state of one request: its company, its client, the session of its
// token, and the results so far.
type Call struct {
	limits.Attempt
	Tells Disclosure // what the client may learn
	// SeesStatus allows an answer that tells the client the status of the account, if a
	// change of that status revoked the token.
	SeesStatus bool

	m         *Manager
	session   *record.Session // nil until it is found
	token     string          // the session's
	revoked   bool            // Revoke has revoked the session, so the next one replaces none
	hidden    bool            // the store has the session as a decoy's (see reveal)
	client    Client
	userAgent string // as sessions keep it
	key       string // the name of the API key
	remember  bool   // the client wants to be a known device
	welcomed  bool   // the session is that of a link that welcomes a user

	// Results of finding the session.
	limited   *record.FullError // the limit that the address has reached; nil if none
	stateless *stateless        // nil if the store has the session
	device    *record.Device    // what FindDevice has found; see known

	// For the call's events.
	By      record.AuthMethods // the proof with which the step succeeded; empty for none
	With    string             // the ID of the passkey, the OAuth provider, or the device that spared a code; empty for none
	account int64
	nextID  string // of the session that the call issued a token for
	country string // calling code of the phone that the call's SMS code is for; empty for none
	gateway string // the one that was asked last for the call's code or link; empty for none
}

// NewCall returns the call of a client. Call SetCompany next.
func (m *Manager) NewCall(client Client) *Call {
	return &Call{Attempt: m.attempt(nil, client.Address), m: m, client: client, userAgent: KeptUserAgent(client.UserAgent)}
}

// CallOf returns the call of a company's client, who has sent the API key of this name. Its
// error is that of Keys.
func (m *Manager) CallOf(ctx context.Context, company *tenant.Company, key string, client Client) (*Call, error) {
	c := m.NewCall(client)
	return c, c.SetCompany(ctx, company, key)
}

// SetCompany sets the company of the call and the name of the API key that the client
// sent. Its error is that of Keys.
func (c *Call) SetCompany(ctx context.Context, company *tenant.Company, key string) (err error) {
	c.setCompany(company)
	c.key = key
	c.Keys, err = c.m.Keys(ctx)
	return err
}

func (c *Call) setCompany(company *tenant.Company) {
	c.Company, c.Tells = company, open{c}
	if company.Hardened {
		c.Tells = hardened{open{c}}
	}
}

// Session returns the session of the call's token. Its State is record.None if no
// session was found.
func (c *Call) Session() record.Session {
	if c.session == nil {
		return record.Session{}
	}
	return *c.session
}

// NextID returns the ID of the session that the call issued a token for, or "".
func (c *Call) NextID() string { return c.nextID }

// SetAccount records which account the call is about.
func (c *Call) SetAccount(a record.Account) { c.account, c.Mnemocode = a.ID, a.Mnemocode }

// ClientEvent returns an event that the call's client caused.
func (c *Call) ClientEvent(reason string) record.Event {
	return record.Event{Address: c.Address, UserAgent: c.userAgent, Key: c.key, Reason: reason}
}

// Event is ClientEvent with the account, the session, and the country and gateway of an SMS.
func (c *Call) Event() record.Event {
	e := c.ClientEvent("")
	e.Time, e.Country, e.Gateway, e.Account, e.Mnemocode = c.Now, c.country, c.gateway, c.account, c.Mnemocode
	if c.session != nil {
		e.Session, e.State = c.session.ID, c.session.State
		if c.Mnemocode == "" {
			e.Account, e.Mnemocode = c.session.Account, c.session.Mnemocode
		}
	}
	return e
}

// smsCountry returns the calling code of a phone, or "" if the phone gets no SMS.
func smsCountry(company *tenant.Company, phone string) string {
	if _, fixed := company.FixedCode(phone); fixed || phone == "" {
		return ""
	}
	return tenant.CallingCode(phone)
}

// maxUserAgent is how many bytes of a user agent sessions keep.
const maxUserAgent = 200

// unescaper undoes what strconv.Quote does with harmless characters.
var unescaper = strings.NewReplacer(`\\`, `\`, `\"`, `"`)

// KeptUserAgent returns the part of a user agent that sessions keep, as valid UTF-8. It escapes
// what could change how a log or a page shows the rest, such as U+202E.
func KeptUserAgent(s string) string {
	s = strconv.Quote(strings.ToValidUTF8(s[:min(len(s), maxUserAgent)], ""))
	s = unescaper.Replace(s[1 : len(s)-1])
	return strings.ToValidUTF8(s[:min(len(s), maxUserAgent)], "")
}
