package accounts

import "net/http"

// A Right is a permission of a key.
type Right string

const (
	Read       Right = "read"
	Write      Right = "write"
	Create     Right = "create"
	Sessions   Right = "sessions"
	Introspect Right = "introspect"
	Import     Right = "import"
	Export     Right = "export"
	Messages   Right = "messages"
	Issue      Right = "issue"
	Act        Right = "act" // tokens with an actor
)

type rights = []Right

// Rights lists all rights.
var Rights = []Right{Read, Write, Create, Sessions, Introspect, Import, Export, Messages, Issue, Act}

// A Route is a route of the API.
type Route struct {
	Method string
	// Pattern is the path after the root. A name in braces matches any one segment,
	// which Call.Param returns unescaped. {company} matches only companies that are
	// configured and that the key can access.
	Pattern string
	Rights  rights // any of them opens the route; nil if every key does
	Traits  Trait
	Query   []string // the query parameters that it takes
	Serve   func(*Call) error
	Summary string
}

// A Trait is what is special about a route.
type Trait uint8

const (
	NoBody    Trait = 1 << iota // refuses a body that says something
	Unkept                      // takes no Idempotency-Key
	Long                        // has no time limit
	Storeless                   // works even if a store can't be reached
)

func (r *Route) at() (method, pattern string) { return r.Method, r.Pattern }

// Is reports whether the route has a trait.
func (r *Route) Is(t Trait) bool { return r.Traits&t != 0 }

// MayRepeat reports whether the route takes an Idempotency-Key.
func (r *Route) MayRepeat() bool { return r.Method != http.MethodGet && !r.Is(Unkept) }

const introspectPattern = "{company}/introspect"

// Routes lists the routes that every API has.
var Routes = []Route{
	{http.MethodGet, "", nil, 0, nil, (*Call).companies, "Lists the companies that the key covers."},
	{http.MethodGet, "openapi.json", nil, 0, nil, (*Call).openAPI, "This document."},
	{http.MethodPost, "{company}/contacts", rights{Create, Write}, 0, nil, (*Call).sendContact, "Sends a code to a phone or email, which need not belong to an account."},
	{http.MethodPost, "{company}/contacts/confirm", rights{Create, Write}, 0, nil, (*Call).confirmContact, "Exchanges such a code for a proof, which creating or changing an account takes."},
	{http.MethodGet, "{company}/accounts", rights{Read}, 0, []string{"login_id", "provider_id", "subject", "status", "contains", "role", "locked", "no_second_factor", "updated_since", "password_set", "limit", "after"}, (*Call).list, "Finds an account by a login id or identity, or lists all accounts in pages."},
	{http.MethodPost, "{company}/accounts", rights{Create, Write}, 0, []string{"rules"}, (*Call).create, "Creates an account."},
	{http.MethodGet, "{company}/accounts/{mnemocode}", rights{Read}, 0, nil, (*Call).show, "Shows an account."},
	{http.MethodPatch, "{company}/accounts/{mnemocode}", rights{Write}, 0, []string{"rules"}, (*Call).change, "Changes an account by a JSON merge patch (RFC 7396)."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}", rights{Write}, NoBody, nil, (*Call).delete, "Deletes an account and revokes its sessions."},
	{http.MethodGet, "{company}/accounts/{mnemocode}/history", rights{Read}, 0, []string{"limit", "ref"}, (*Call).history, "Lists the history of an account."},
	{http.MethodGet, "{company}/history", rights{Read}, 0, []string{"ref"}, (*Call).referred, "Finds what the `ref` of an error names."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/backup-codes", rights{Write}, NoBody, nil, (*Call).backupCodes, "Creates ten backup codes, shown only this once, and revokes the old ones."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/totp", rights{Write}, NoBody, nil, (*Call).newTOTP, "Creates a secret for an authenticator app, shown only this once; it takes effect once confirmed."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/totp/confirm", rights{Write}, 0, nil, (*Call).confirmTOTP, "Confirms the newest secret with one of its codes, and revokes the account's sessions."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/totp", rights{Write}, NoBody, []string{"keep_session"}, (*Call).removeTOTP, "Removes the authenticator app and revokes the account's sessions."},
	{http.MethodGet, "{company}/accounts/{mnemocode}/passkeys", rights{Read}, 0, nil, (*Call).passkeys, "Lists an account's passkeys."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/passkeys/{passkey}", rights{Write}, NoBody, []string{"keep_session"}, (*Call).removePasskey, "Removes a passkey and revokes the account's sessions."},
	{http.MethodPut, "{company}/accounts/{mnemocode}/identities/{provider_id}/{subject}", rights{Write}, NoBody, nil, (*Call).addIdentity, "Binds a user of an OAuth provider to an account."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/identities/{provider_id}/{subject}", rights{Write}, NoBody, nil, (*Call).removeIdentity, "Removes the user of an OAuth provider from an account."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/password", rights{Write}, 0, nil, (*Call).changePassword, "Changes a user's password, given the current one."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/check-password", rights{Write}, 0, nil, (*Call).checkPassword, "Checks a user's current password."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/unlock", rights{Write}, NoBody, nil, (*Call).unlock, "Clears the failure counts, and so all locks."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/welcome", rights{Create, Write}, NoBody, nil, (*Call).welcome, "Mails a link for setting the first password; with `create`, once for an account."},
	{http.MethodGet, "{company}/accounts/{mnemocode}/sessions", rights{Sessions}, 0, nil, (*Call).sessions, "Lists an account's sessions."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/sessions", rights{Sessions}, NoBody, nil, (*Call).endSessions, "Revokes all sessions of an account."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/sessions/{session}", rights{Sessions}, NoBody, nil, (*Call).endSession, "Revokes one session of an account."},
	{http.MethodGet, "{company}/accounts/{mnemocode}/devices", rights{Sessions}, 0, nil, (*Call).devices, "Lists an account's known devices."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/devices/{device}", rights{Sessions}, NoBody, nil, (*Call).forgetDevices, "Removes a known device of an account."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/devices", rights{Sessions}, NoBody, nil, (*Call).forgetDevices, "Removes all known devices of an account."},
	{http.MethodPost, "{company}/accounts/{mnemocode}/tokens", rights{Issue, Act}, 0, nil, (*Call).issueToken, "Issues a token for an account, shown only this once."},
	{http.MethodGet, "{company}/accounts/{mnemocode}/tokens", rights{Issue, Act}, 0, nil, (*Call).tokens, "Lists an account's issued tokens."},
	{http.MethodDelete, "{company}/accounts/{mnemocode}/tokens/{token}", rights{Issue, Act}, NoBody, nil, (*Call).removeToken, "Revokes an issued token of an account."},
	{http.MethodGet, "{company}/messages", rights{Messages}, Long, []string{"to", "after", "wait"}, (*Call).messages, "Lists the messages that `sms capture` and `mail capture` have captured on this node, the oldest first."},
	{http.MethodDelete, "{company}/sessions", rights{Sessions}, NoBody, nil, (*Call).endAllSessions, "Revokes all sessions of the company."},
	{http.MethodPost, introspectPattern, rights{Introspect}, Unkept, nil, (*Call).introspect, "Says whether a token is valid (RFC 7662), and extends nothing."},
	{http.MethodPost, "{company}/import", rights{Import}, Unkept | Long, []string{"update", "verbose"}, (*Call).importLines, "Imports accounts, one per line."},
	{http.MethodGet, "{company}/export", rights{Export}, Long, []string{"secrets"}, (*Call).export, "Exports all accounts, one per line, with their password hashes; with secrets=true also the secrets of authenticator apps, in plain text."},
}
