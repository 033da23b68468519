package flows_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/message"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// keychain stands for WebAuthn. Its formats are an answer in JSON, and its signature is
// the challenge itself. Package caddymodule/passkey tests the real one.
type keychain struct{}

type keychainAnswer struct {
	ID, Handle, Challenge []byte
	Count                 uint32
	Changed               bool // it is no longer the passkey that was created
}

func (keychain) RequestOptions(challenge []byte) ([]byte, error) {
	return json.Marshal(keychainAnswer{Challenge: challenge})
}

func (keychain) CreationOptions(challenge []byte, owner tenant.PasskeyOwner, _ []record.Passkey) ([]byte, error) {
	return json.Marshal(keychainAnswer{Challenge: challenge, Handle: owner.Handle})
}

func (keychain) ReadAssertion(credential []byte) (tenant.PasskeyAssertion, error) {
	var a keychainAnswer
	if err := json.Unmarshal(credential, &a); err != nil || len(a.ID) == 0 {
		return tenant.PasskeyAssertion{}, tenant.ErrPasskeyJSON
	}
	return tenant.PasskeyAssertion{Credential: a.ID, UserHandle: a.Handle, Verify: func(challenge []byte, _ record.Passkey) (tenant.PasskeyUse, error) {
		if string(challenge) != string(a.Challenge) {
			return tenant.PasskeyUse{}, errors.New("wrong challenge")
		}
		if a.Changed {
			return tenant.PasskeyUse{}, tenant.ErrPasskeyChanged
		}
		return tenant.PasskeyUse{SignCount: a.Count, BackedUp: true}, nil
	}}, nil
}

func (keychain) RPID() string { return "example.com" }

// An otherDomain is a keychain of a company with another domain.
type otherDomain struct{ keychain }

func (otherDomain) RPID() string { return "example.org" }

func (keychain) Register(challenge []byte, _ tenant.PasskeyOwner, credential []byte, _ bool) (record.Passkey, error) {
	var a keychainAnswer
	if err := json.Unmarshal(credential, &a); err != nil || len(a.ID) == 0 {
		return record.Passkey{}, tenant.ErrPasskeyJSON
	}
	if string(challenge) != string(a.Challenge) {
		return record.Passkey{}, errors.New("wrong challenge")
	}
	return record.Passkey{Credential: a.ID, PublicKey: []byte{1}, SignCount: a.Count}, nil
}

// A device is an authenticator with one passkey of the harness's account.
type device struct {
	b      *harness
	id     []byte
	handle []byte
	count  uint32 // 0 for an authenticator that does not count
}

// create begins a passkey and returns the answer of the authenticator.
func (d *device) create(mnemocode string) (token string, credential []byte) {
	d.b.t.Helper()
	options, err := d.b.admin().NewPasskey(d.b.t.Context(), mnemocode)
	must(d.b.t, err)
	var a keychainAnswer
	must(d.b.t, json.Unmarshal(options.PublicKey, &a))
	d.handle, a.ID, a.Count = a.Handle, d.id, d.count
	credential, _ = json.Marshal(a)
	return options.ChallengeToken, credential
}

// device adds a passkey with this ID to the account.
func (b *harness) device(id string, count uint32) *device {
	b.t.Helper()
	d := &device{b: b, id: []byte(id), count: count}
	token, credential := d.create(mnemocode)
	if _, err := b.admin().AddPasskey(b.t.Context(), mnemocode, token, credential, "", false); err != nil {
		b.t.Fatal(err)
	}
	settle(b.Service) // its notice
	return d
}

// answer returns the body of a login with new options of the company.
func (d *device) answer(company string) object {
	d.b.t.Helper()
	reply, err := d.b.serveAs(company, "192.0.2.1", "passkey/options", "", nil)
	must(d.b.t, err)
	return object{"challenge_token": reply.ChallengeToken, "credential": d.sign(reply.PublicKey)}
}

// sign answers a challenge.
func (d *device) sign(publicKey []byte) keychainAnswer {
	d.b.t.Helper()
	var a keychainAnswer
	must(d.b.t, json.Unmarshal(publicKey, &a))
	if d.count > 0 {
		d.count++
	}
	a.ID, a.Handle, a.Count = d.id, d.handle, d.count
	return a
}

func TestAPasskeyIsBothFactors(t *testing.T) {
	b := newHarness(t)
	b.company.SecondFactor = tenant.SecondFactorRequired
	d := b.device("k", 0)
	wantStep(t, b.must("passkey/login", "", d.answer(code)), record.Authorized)
	if b.sms.count() != 0 {
		t.Error("a code was sent")
	}
	if live, err := b.admin().LiveSessions(t.Context(), mnemocode); err != nil || len(live) != 1 || live[0].Profile.Methods() != "passkey mfa" {
		t.Errorf("the session is %+v, %v", live, err)
	}
	b.update(true, func(a *record.Account) { a.PasswordHash, a.Phone = "", "" })
	wantStep(t, b.must("passkey/login", "", d.answer(code)), record.Authorized)
	if p, _ := b.Accounts.Passkey(t.Context(), code, d.id); !p.BackedUp || !p.LastUsed.Equal(b.clock.Now()) {
		t.Errorf("the use was stored as %+v", p)
	}
}

func TestAPasskeyChallengeWorksOnceInItsCompany(t *testing.T) {
	b := newHarness(t)
	d := b.device("k", 0)
	b.addCompany("other")
	invalid := wire.ErrCredentialsInvalid

	creation, credential := d.create(mnemocode)
	b.wrong(invalid, "passkey/login", "", object{"challenge_token": creation, "credential": json.RawMessage(credential)})
	b.wrong(invalid, "passkey/login", "", d.answer("other"))
	b.wrong(invalid, "passkey/login", "", with(d.answer(code), object{"challenge_token": strings.Repeat("A", 75)}))
	ahead := d.answer(code)
	b.clock.advance(-3 * time.Minute) // the clock of the node that gets it
	b.must("passkey/login", "", ahead)
	b.clock.advance(5*time.Minute + time.Second)
	b.wrong(invalid, "passkey/login", "", ahead)
	late := d.answer(code)
	b.clock.advance(5 * time.Minute)
	b.wrong(invalid, "passkey/login", "", late)
	if _, err := b.serveAs("other", "192.0.2.1", "passkey/login", "", d.answer("other")); !errors.Is(err, invalid) {
		t.Errorf("in another company: %v", err)
	}
	b.wrong(wire.ErrValidation, "passkey/login", "", with(d.answer(code), object{"credential": object{"type": "public-key"}}))
	b.wrong(wire.ErrValidation, "passkey/login", "", with(d.answer(code), object{"credential": "k"}))
	b.wrong(wire.ErrValidation, "passkey/login", "", with(d.answer(code), object{"credential": nil}))

	again := d.answer(code)
	b.wrong(wire.ErrUserClosed, "passkey/login", "", func() object { b.status(record.StatusClosed); return again }())
	b.status(record.StatusActive)
	b.wrong(invalid, "passkey/login", "", again) // the failed login has spent it
	b.must("passkey/login", "", d.answer(code))
}

// passkeyReads counts the queries for a passkey.
type passkeyReads struct {
	record.Accounts
	n int
}

func (r *passkeyReads) Passkey(ctx context.Context, company string, credential []byte) (record.Passkey, error) {
	r.n++
	return r.Accounts.Passkey(ctx, company, credential)
}

func (r *passkeyReads) CompaniesWithPasskey(ctx context.Context, credential []byte) ([]string, error) {
	r.n++
	return r.Accounts.CompaniesWithPasskey(ctx, credential)
}

func TestPasskeysThatAreRefused(t *testing.T) {
	b := newHarness(t)
	invalid := wire.ErrCredentialsInvalid
	d := b.device("k", 5)
	b.seed(manage.Seed{Account: record.Account{Mnemocode: "bob-0001"}})
	bobs := &device{b: b, id: []byte("bobs"), count: 5}
	token, credential := bobs.create("bob-0001")
	if _, err := b.admin().AddPasskey(t.Context(), "bob-0001", token, credential, "Bob's", false); err != nil {
		t.Fatal(err)
	}
	if string(bobs.handle) == string(d.handle) {
		t.Error("two accounts have the same user handle")
	}
	swapped := *d
	swapped.handle = bobs.handle
	b.wrong(invalid, "passkey/login", "", swapped.answer(code))
	unknown := device{b: b, id: []byte("unknown"), handle: d.handle}
	b.addCompany("other")
	changed := d.answer(code)
	credentialOf := changed["credential"].(keychainAnswer)
	credentialOf.Changed = true
	changed["credential"] = credentialOf
	before := b.record()
	for _, c := range []struct {
		name, company string
		body          object
		reason        wire.Reason
	}{
		{"one that nobody has", code, unknown.answer(code), wire.PasskeyUnknown},
		{"one of another company of the domain", "other", d.answer("other"), ""}, // the browser must keep it
		{"one that has changed", code, changed, wire.PasskeyChanged},
	} {
		if _, err := b.serveAs(c.company, "192.0.2.1", "passkey/login", "", c.body); !errors.Is(err, invalid) || wire.ReasonOf(err) != c.reason {
			t.Errorf("%s: %v, reason %q", c.name, err, wire.ReasonOf(err))
		}
	}
	for i := range 10 {
		b.addCompany(fmt.Sprint("more ", i))
	}
	asks := &passkeyReads{Accounts: b.Accounts}
	b.Accounts = asks
	b.wrong(invalid, "passkey/login", "", unknown.answer(code))
	if b.Accounts = asks.Accounts; asks.n != 2 {
		t.Errorf("the store was asked %d times for a passkey that nobody has, want 2", asks.n)
	}
	delete(b.Companies, code) // which another node may know
	if _, err := b.serveAs("other", "192.0.2.1", "passkey/login", "", d.answer("other")); !errors.Is(err, invalid) || wire.ReasonOf(err) != "" {
		t.Errorf("one of a company that this node does not know: %v, reason %q", err, wire.ReasonOf(err))
	}
	b.Companies[code] = b.company
	passkeys := b.company.Passkeys
	for _, b.company.Passkeys = range []tenant.PasskeyVerifier{nil, otherDomain{}} {
		if _, err := b.serveAs("other", "192.0.2.1", "passkey/login", "", d.answer("other")); wire.ReasonOf(err) != wire.PasskeyUnknown {
			t.Errorf("one of a company of another domain: %v, reason %q", err, wire.ReasonOf(err))
		}
	}
	b.company.Passkeys = passkeys
	if got := named(before(), record.AccountPasskeyChanged); len(got) != 1 || got[0].Account != b.account {
		t.Errorf("the events are %v", got)
	}

	copied := *d
	b.must("passkey/login", "", d.answer(code))
	events := b.record()
	b.wrong(invalid, "passkey/login", "", copied.answer(code))
	if got := named(events(), record.AccountPasskeyCopied); len(got) != 1 || got[0].Account != b.account {
		t.Errorf("the events are %v", got)
	}
	b.must("passkey/login", "", d.answer(code))

	b.must("auth/setpassword", b.sessionIn(record.SetPassword), object{"new_password": "another fine secret"})
	b.must("passkey/login", "", d.answer(code)) // a new password keeps passkeys
	must(t, b.admin().RemovePasskey(t.Context(), mnemocode, record.Passkey{Credential: d.id}.ID(), ""))
	b.wrong(invalid, "passkey/login", "", d.answer(code))
}

func TestPasskeyLoginsCountForTheAddress(t *testing.T) {
	b := newHarness(t)
	d := b.device("k", 0)
	b.company.Limits.FailuresPerAddress = tenant.Rate{N: 2, Per: time.Minute}
	unknown := device{b: b, id: []byte("unknown"), handle: d.handle}
	for range 2 {
		b.wrong(wire.ErrCredentialsInvalid, "passkey/login", "", unknown.answer(code))
	}
	b.wrong(wire.ErrRestricted, "passkey/login", "", d.answer(code))
	b.clock.advance(time.Minute)
	b.company.Limits.LoginsPerAddress = tenant.Rate{N: 2, Per: time.Minute}
	for range 2 {
		b.must("passkey/login", "", d.answer(code))
	}
	b.wrong(wire.ErrRestricted, "passkey/login", "", d.answer(code))

	user := b.admin() // as of a Self
	user.Address = "203.0.113.9"
	for i, want := range []error{nil, nil, wire.ErrRestricted} {
		token, credential := (&device{b: b, id: []byte{byte(i)}}).create(mnemocode)
		if _, err := user.AddPasskey(t.Context(), mnemocode, token, credential, "", false); !errors.Is(err, want) {
			t.Errorf("new passkey %d: %v", i, err)
		}
	}
}

func TestPasskeyOptionsStoreNothing(t *testing.T) {
	b := newHarness(t)
	writes := b.countWrites()
	seen := map[string]bool{}
	for range 100 {
		seen[b.must("passkey/options", "", nil).ChallengeToken] = true
	}
	if writes.Load() != 0 || len(seen) != 100 {
		t.Errorf("%d writes, %d challenges", writes.Load(), len(seen))
	}
}

func TestAddingPasskeys(t *testing.T) {
	b := newHarness(t)
	events := b.record()
	ad := b.admin()
	kept := b.sessionIn(record.Authorized)
	d := &device{b: b, id: []byte("k")}
	token, credential := d.create(mnemocode)
	login := d.answer(code)
	answer, err := json.Marshal(login["credential"])
	must(t, err)
	for name, c := range map[string]struct {
		token      string
		credential string
		name       string
		want       string
	}{
		"a wrong challenge":   {token[1:], string(credential), "", manage.ErrPasskeyRefused.Error()},
		"a login's challenge": {login["challenge_token"].(string), string(answer), "", manage.ErrPasskeyRefused.Error()},
		"no JSON":             {token, "k", "", "credential: "},
		"another answer":      {token, `{"id":"a2s="}`, "", manage.ErrPasskeyRefused.Error()},
		"a long name":         {token, string(credential), strings.Repeat("x", 65), "name: "},
		"a name of two lines": {token, string(credential), "a\nb", "name: "},
	} {
		if _, err := ad.AddPasskey(t.Context(), mnemocode, c.token, []byte(c.credential), c.name, false); err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	p, err := ad.AddPasskey(t.Context(), mnemocode, token, credential, " My phone ", false)
	if err != nil || p.Name != "My phone" || p.ID() != "aw" {
		t.Fatalf("got %+v, %v", p, err)
	}
	settle(b.Service)
	if m := b.mail.last(t); m.Type != message.NoticePasskeyAdded || m.To != email {
		t.Errorf("the owner got %+v", m)
	}
	if got := events(); len(named(got, record.AccountPasskeyAdded)) != 1 {
		t.Errorf("the events are %v", got)
	}
	if _, err := ad.AddPasskey(t.Context(), mnemocode, token, credential, "", false); !errors.Is(err, manage.ErrPasskeyRefused) {
		t.Errorf("the same challenge: %v", err)
	}
	token, credential = d.create(mnemocode)
	if _, err := ad.AddPasskey(t.Context(), mnemocode, token, credential, "", false); !errors.Is(err, manage.ErrPasskeyTaken) {
		t.Errorf("the same passkey: %v", err)
	}
	second := b.device("k2", 0)
	if string(second.handle) != string(d.handle) || len(d.handle) != 32 {
		t.Errorf("the handles are %x and %x", d.handle, second.handle)
	}
	if got, err := ad.Passkeys(t.Context(), mnemocode); err != nil || len(got) != 2 || got[0].ID() != "aw" || got[1].Name != "Passkey" || b.load().Passkeys != 2 {
		t.Errorf("passkeys: %+v, %v", got, err)
	}
	b.must("auth/logout", kept, nil) // no session was revoked
	b.status(record.StatusClosed)
	if _, err := ad.NewPasskey(t.Context(), mnemocode); !errors.Is(err, manage.ErrNotActive) {
		t.Errorf("a closed account: %v", err)
	}
	b.company.Passkeys = nil
	if _, err := ad.NewPasskey(t.Context(), mnemocode); !errors.Is(err, tenant.ErrNoPasskeys) {
		t.Errorf("without passkeys: %v", err)
	}
}

// Authenticators know the account of imported passkeys by their user handle.
func TestANewPasskeyHasTheUserHandleOfTheOthers(t *testing.T) {
	b := newHarness(t)
	must(t, b.Accounts.AddPasskey(t.Context(), b.Now(), b.load(), record.Passkey{Credential: []byte("imported"), UserHandle: []byte("handle"), PublicKey: []byte("key")}))
	if d := b.device("k", 0); string(d.handle) != "handle" {
		t.Errorf("its user handle is %q", d.handle)
	}
}

func TestRemovingPasskeys(t *testing.T) {
	b := newHarness(t)
	ad := b.admin()
	one, two := b.device("one", 0), b.device("two", 0)
	id := func(d *device) string { return record.Passkey{Credential: d.id}.ID() }
	keep := b.must("passkey/login", "", one.answer(code)).SessionToken
	other := b.must("passkey/login", "", two.answer(code)).SessionToken
	live, err := ad.LiveSessions(t.Context(), mnemocode)
	if err != nil || len(live) != 2 {
		t.Fatal(live, err)
	}
	for _, wrong := range []string{"x", "!", id(two) + "=", ""} {
		if err := ad.RemovePasskey(t.Context(), mnemocode, wrong, ""); !errors.Is(err, manage.ErrNoPasskey) {
			t.Errorf("%q: %v", wrong, err)
		}
	}
	if err := ad.RemovePasskey(t.Context(), mnemocode, id(two), "x"); !errors.Is(err, manage.ErrNoSessionToKeep) {
		t.Errorf("an unknown session: %v", err)
	}
	kept := live[slices.IndexFunc(live, func(s record.Session) bool { return s.Hash == record.HashToken(keep) })].ID
	must(t, ad.RemovePasskey(t.Context(), mnemocode, id(two), kept))
	b.wrong(wire.ErrTokenInvalid, "auth/logout", other, nil)
	b.must("auth/logout", keep, nil)

	b.update(true, func(a *record.Account) { a.PasswordHash, a.Phone, a.Identities = "", "", nil })
	if err := ad.RemovePasskey(t.Context(), mnemocode, id(one), ""); !errors.Is(err, manage.ErrLastPasskey) {
		t.Errorf("the last way to log in: %v", err)
	}
	b.must("passkey/login", "", one.answer(code))
	b.update(true, func(a *record.Account) { a.Phone = phone })
	sender := b.company.SMS
	b.company.SMS = nil
	user := b.self(b.must("passkey/login", "", one.answer(code)).SessionToken)
	if err := manage.ForUser(user.RemovePasskey(t.Context(), mnemocode, id(one), user.Session.ID)); !errors.Is(err, wire.ErrConflict) {
		t.Errorf("the last way to log in, where nothing sends SMS: %v", err)
	}
	b.company.SMS = sender
	b.update(false, func(a *record.Account) { a.Phone, a.Email, a.LoginName, a.PasswordHash = "", "", "", "h" })
	for actor, remove := range map[string]func(context.Context, string, string, string) error{"a user": user.RemovePasskey, "an operator": ad.RemovePasskey} {
		if err := remove(t.Context(), mnemocode, id(one), ""); !errors.Is(err, manage.ErrLastPasskey) {
			t.Errorf("%s, a password of an account without a login id: %v", actor, err)
		}
	}
	b.update(false, func(a *record.Account) { a.Phone, a.PasswordHash = phone, "" })
	if err := ad.RemovePasskey(t.Context(), mnemocode, id(one), ""); err != nil {
		t.Error(err)
	}
}

// What a removal looked at may have changed. Then it removes nothing, and ends no session
// that the change has spared.
func TestAChangeThatComesFirstRefusesAUsersRemovalOfAPasskey(t *testing.T) {
	id := func(credential string) string { return record.Passkey{Credential: []byte(credential)}.ID() }
	for name, c := range map[string]struct {
		phone    string
		passkeys []string
		policy   tenant.SecondFactor
		change   func(b *harness, user *manage.Self, owner string) error
		live     []bool // the user's session, and that of the owner
	}{
		"the removal of the other one": {"", []string{"one", "two"}, tenant.SecondFactorRequired, func(b *harness, user *manage.Self, _ string) error {
			return user.RemovePasskey(b.t.Context(), mnemocode, id("two"), user.Session.ID)
		}, []bool{true, false}},
		"the removal of the phone": {phone, []string{"one"}, tenant.SecondFactorOff, func(b *harness, user *manage.Self, _ string) error {
			return user.RemoveOwnContact(b.t.Context(), record.Phone)
		}, []bool{true, false}},
		"a new password that ends the user's session": {phone, []string{"one"}, tenant.SecondFactorRequired, func(b *harness, _ *manage.Self, owner string) error {
			return b.changeOwn(manage.PasswordChange{Current: password, New: newSecret, Keep: owner})
		}, []bool{false, true}},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.company.SecondFactor = c.policy
			b.update(true, func(a *record.Account) {
				if a.Phone = c.phone; c.policy == tenant.SecondFactorOff {
					a.PasswordHash = "" // which would be another way to log in
				}
			})
			var login func() string
			for _, credential := range c.passkeys {
				d := b.device(credential, 0)
				login = func() string { return b.must("passkey/login", "", d.answer(code)).SessionToken }
			}
			tokens := []string{login(), login()}
			owner, user := b.idOf(tokens[1]), b.self(tokens[0])
			whole := b.Accounts
			b.Accounts = overtaken{whole, func() {
				b.Accounts = whole
				must(t, c.change(b, user, owner))
			}}
			if err := user.RemovePasskey(t.Context(), mnemocode, id("one"), user.Session.ID); !errors.Is(err, manage.ErrChanged) {
				t.Errorf("got %v, want ErrChanged", err)
			}
			if n := b.load().Passkeys; n != 1 {
				t.Errorf("%d passkeys are left, want one", n)
			}
			for i, live := range c.live {
				if _, err := b.authorize(tokens[i]); (err == nil) != live {
					t.Errorf("session %d: got %v, want live: %v", i, err, live)
				}
			}
		})
	}
}
