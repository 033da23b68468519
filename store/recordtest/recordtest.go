// Package recordtest has the accounts, sessions and feeds of the tests of all stores, and
// checks of what the stores make of them. It is only for tests.
package recordtest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var bg = context.Background()

// Noisy is a route on which unauthenticated users cause events; on Quiet they can't.
const Noisy, Quiet = "auth/login", "auth/checkcredentials"

// Someone returns an account with a value in every field.
func Someone(company, name string) record.Account {
	return record.Account{
		Company:         company,
		Mnemocode:       name,
		Role:            "admin",
		Phone:           "+37060012345",
		Email:           name + "@Example.com",
		LoginName:       "Login " + name,
		Status:          record.StatusActive,
		SecondFactor:    true,
		MustSetPassword: true,
		PasswordHash:    "hash of " + name,
		Question:        "Which?",
		AnswerHash:      "answer of " + name,
		TOTP:            "sealed of " + name,
		TOTPPending:     "pending of " + name,
		Locale:          "lt-LT",
		Identities:      []record.Identity{{Provider: 1, Subject: name}, {Provider: 3, Subject: name}},
		Accepted:        []record.Acceptance{{Code: "a", Version: "1", At: T0}, {Code: "b", Version: "2", At: T0}},
	}
}

// Plain returns an account whose only unique value is its mnemocode.
func Plain(company, name string) record.Account {
	return record.Account{Company: company, Mnemocode: name, Status: record.StatusActive}
}

// Create stores an account and returns it as stored.
func Create(t *testing.T, s record.Accounts, a record.Account) record.Account {
	t.Helper()
	id := Get[int64](t)(s.Create(bg, T0, a))
	return Get[record.Account](t)(s.ByID(bg, a.Company, id))
}

// CallAllAccounts calls each method with arguments that would have an effect.
func CallAllAccounts(ctx context.Context, s record.Accounts, a record.Account) map[string]error {
	subject := record.FailureKey{Company: a.Company, Account: a.ID}
	return map[string]error{
		"Create":      Second(s.Create(ctx, T0, Plain(a.Company, "new"))),
		"ByLoginID":   Second(s.ByLoginID(ctx, a.Company, typed.LoginID(a.Email, ""), "login id hash")),
		"ByID":        Second(s.ByID(ctx, a.Company, a.ID)),
		"ByMnemocode": Second(s.ByMnemocode(ctx, a.Company, a.Mnemocode)),
		"List":        Second(s.List(ctx, a.Company, "", 100)),
		"Search":      Third(s.Search(ctx, a.Company, record.Match{Reach: 100}, "", 100)),
		"ByIdentity":  Second(s.ByIdentity(ctx, a.Company, a.Identities[0])),
		"Update": Second(s.Update(ctx, a.Company, a.ID, func(a *record.Account) (bool, error) {
			a.Role = "changed"
			return true, nil
		})),
		"Accept":                s.Accept(ctx, a.Company, a.ID, []record.Acceptance{{Code: "z", Version: "1", At: T0}}),
		"BackupCodes":           Second(s.BackupCodes(ctx, a.Company, a.ID)),
		"UseBackupCode":         s.UseBackupCode(ctx, a.Company, a.ID, "c"),
		"SetBackupCodes":        s.SetBackupCodes(ctx, a, []string{"z"}),
		"AddPasskey":            s.AddPasskey(ctx, T0, a, Passkey(a.ID, "z")),
		"Passkeys":              Second(s.Passkeys(ctx, a.Company, a.ID)),
		"Passkey":               Second(s.Passkey(ctx, a.Company, []byte("c"))),
		"CompaniesWithPasskey":  Second(s.CompaniesWithPasskey(ctx, []byte("c"))),
		"UsePasskey":            s.UsePasskey(ctx, T0, a.Company, []byte("c"), 9, true),
		"RenamePasskey":         s.RenamePasskey(ctx, a.Company, a.ID, []byte("c"), "new"),
		"DeletePasskey":         Second(s.DeletePasskey(ctx, T0, record.Account{Company: a.Company, ID: a.ID}, []byte("c"), record.TokenHash{})),
		"AddDevice":             s.AddDevice(ctx, a.Company, a.ID, Device("z"), ""),
		"Device":                Second(s.Device(ctx, a.Company, a.ID, Device("z").Hash)),
		"Devices":               Second(s.Devices(ctx, a.Company, a.ID)),
		"RemoveDevices":         s.RemoveDevices(ctx, a.Company, a.ID, ""),
		"AddToken":              s.AddToken(ctx, a, &record.IssuedToken{Hash: Hash("z"), ID: "z", Created: T0, Expires: T0.Add(time.Hour)}, 1),
		"Token":                 Second(s.Token(ctx, Hash("z"))),
		"Tokens":                Second(s.Tokens(ctx, T0, a.Company, a.ID)),
		"UseToken":              s.UseToken(ctx, Hash("z"), T0),
		"DeleteToken":           Second(s.DeleteToken(ctx, a.Company, a.ID, "z", false)),
		"UpdateFailures":        s.UpdateFailures(ctx, T0, subject, record.WrongCodes, AddFailures(1)),
		"FailureCounts":         Second(s.FailureCounts(ctx, subject)),
		"SetPassword":           s.SetPassword(ctx, T0, a, "new", record.TokenHash{}),
		"NewCompanyGeneration":  Second(s.NewCompanyGeneration(ctx, a.Company)),
		"PendingRevocations":    Second(s.PendingRevocations(ctx, record.Revocation{}, 1)),
		"RevocationDone":        s.RevocationDone(ctx, record.Revocation{Company: a.Company, Account: a.ID, Generation: record.AllGenerations}),
		"Secrets":               Second(s.Secrets(ctx)),
		"AddSecret":             s.AddSecret(ctx, record.Secret{Number: 1, Value: []byte("z"), Begins: T0}),
		"MoveAccount":           s.MoveAccount(ctx, a.Company, a.ID, a.Company, func(*record.Account) {}),
		"ForgetCompany":         errors.Join(s.ForgetCompany(ctx, "none", ""), s.ForgetCompany(ctx, "none", "heir")),
		"SetSeeded":             s.SetSeeded(ctx, a.Company, a.Mnemocode),
		"Seeded":                Second(s.Seeded(ctx, a.Company, a.Mnemocode)),
		"CompaniesWithAccounts": Second(s.CompaniesWithAccounts(ctx)),
		"Count":                 Second(s.Count(ctx)),
		"Stranded":              Second(s.Stranded(ctx, true)),
		"SigningKeys":           Second(s.SigningKeys(ctx, a.Company)),
		"AddSigningKey":         s.AddSigningKey(ctx, a.Company, record.SigningKey{Number: 1, Created: T0}),
		"RemoveSigningKeys":     s.RemoveSigningKeys(ctx, a.Company, 2),
		"Sweep":                 s.Sweep(ctx, T0),
		"Delete":                s.Delete(ctx, a.Company, a.ID, nil),
	}
}

// Third returns the error of a call with three results.
func Third(_, _ any, err error) error { return err }

// NewCode returns a code for a name.
func NewCode(name string) record.Code {
	return record.Code{Hash: Hash(name), Phone: "+37060012345", Expires: T0.Add(5 * time.Minute)}
}

// Device returns a device whose every field is set.
func Device(name string) record.Device {
	return record.Device{
		Hash: record.HashToken(name), ID: "id of " + name, Generation: 3, CompanyGeneration: 2,
		FactorUntil: T0.Add(2 * time.Hour), Created: T0, Expires: T0.Add(time.Hour), Address: "192.0.2.1", UserAgent: Odd[:40],
	}
}

// DeviceIDs returns the IDs of devices.
func DeviceIDs(devices []record.Device) (ids []string) {
	for _, d := range devices {
		ids = append(ids, d.ID)
	}
	return ids
}

// AddFailures returns a change that adds n failures.
func AddFailures(n int) func(*record.FailureCount) error {
	return func(t *record.FailureCount) error {
		t.Count += n
		return nil
	}
}

// Second returns the error of a call with two results.
func Second(_ any, err error) error { return err }

// Happened returns an event of an account, n seconds after T0.
func Happened(a record.Account, n int, route string) record.Event {
	return record.Event{
		Name: "mnemogate.test", Time: T0.Add(time.Duration(n) * time.Second), Company: a.Company, Account: a.ID, Mnemocode: a.Mnemocode,
		Session: fmt.Sprint(n), State: record.Authorized, Address: "192.0.2.1", UserAgent: "agent/1", Actor: "shop",
		Route: route, Result: record.Success, Reason: "why", Noise: route == Noisy, Count: 1,
	}
}

// Recorded returns an account's history.
func Recorded(t *testing.T, s record.Accounts, a record.Account, limit int) []record.Event {
	t.Helper()
	events := Get[[]record.Event](t)(s.Recorded(bg, a.Company, a.ID, limit))
	for i, e := range events {
		events[i].Noise = e.Route == Noisy // Noise itself is not stored
	}
	return events
}

// Passkey returns a passkey of an account.
func Passkey(account int64, credential string) record.Passkey {
	return record.Passkey{
		Account: account, Credential: []byte(credential), UserHandle: []byte{0, 1, 255}, PublicKey: []byte{255, 0, '\''},
		SignCount: 5, BackupEligible: true, Transports: "internal hybrid", Name: "phone " + Odd, Created: T0,
	}
}

// Hash returns a token hash for a name. It is in the bucket of the account that owns
// the session: account 1 of acme, or another that the name gives after an @.
func Hash(name string) (h record.TokenHash) {
	company, account := ownerOf(name)
	h[0] = byte(record.AccountBucket(company, account))
	copy(h[1:], name)
	return h
}

// ownerOf returns acme and 2 for "x@2", other and 1 for "x@other/1".
func ownerOf(name string) (company string, account int64) {
	_, owner, ok := strings.Cut(name, "@")
	if !ok {
		return "acme", 1
	}
	company, number, ok := strings.Cut(owner, "/")
	if !ok {
		company, number = "acme", owner
	}
	account, _ = strconv.ParseInt(number, 10, 64)
	return company, account
}

// Session returns a session with a value in every field but Code.
func Session(name string, account, generation int64, state record.State) record.Session {
	company, owner := ownerOf(name)
	if account != owner && account != 0 {
		panic(fmt.Sprintf("the session %s of account %d is not named so", name, account))
	}
	return record.Session{
		Hash:       Hash(name),
		ID:         "id of " + name,
		Company:    company,
		Account:    account,
		Mnemocode:  "m1",
		Generation: generation,
		State:      state,
		Accepted:   []record.Acceptance{{Code: "a", Version: "1", At: T0}},
		Created:    T0,
		Expires:    T0.Add(10 * time.Minute),
		Ends:       T0.Add(time.Hour),
		LastUsed:   T0,
		Address:    "2001:db8::1",
		UserAgent:  strings.Repeat("Mozilla/5.0 ", 16),
		Device:     "0123456789abcdef0123456789abcdef",
		Profile:    record.Profile("admin " + strings.Repeat("x", 64) + "@example.com +37060012345"),
	}
}

// WantGone checks that there are no sessions with these names.
func WantGone(t *testing.T, s record.Sessions, names ...string) {
	t.Helper()
	for _, name := range names {
		_, err := s.Get(bg, Hash(name))
		WantErr(t, "Get of "+name, err, record.ErrNotFound)
	}
}

// WantSession checks that a session is stored as it is.
func WantSession(t *testing.T, s record.Sessions, want record.Session) {
	t.Helper()
	WantEqual(t, "session", Get[record.Session](t)(s.Get(bg, want.Hash)), want)
}

// SessionIDs returns the IDs of sessions.
func SessionIDs(sessions []record.Session) []string {
	var all []string
	for _, s := range sessions {
		all = append(all, s.ID)
	}
	return all
}

// CallAllSessions calls each method with arguments that would have an effect.
func CallAllSessions(ctx context.Context, s record.Sessions, on record.Session) map[string]error {
	counter := record.Counter{Key: "k", Limit: 1, Window: time.Minute}
	return map[string]error{
		"Create":       s.Create(ctx, T0, Session("b", 1, 1, record.Authorized)),
		"Get":          Second(s.Get(ctx, on.Hash)),
		"Revoked":      Second(s.Revoked(ctx, on.Hash)),
		"Expire":       s.Expire(ctx, T0, on.Hash),
		"Touch":        s.Touch(ctx, T0, on.Hash, T0.Add(time.Hour)),
		"Raise":        s.Raise(ctx, T0, on.Hash, on.Profile, "   2 pwd"),
		"List":         Second(s.List(ctx, T0, on.Company, on.Account)),
		"SetCode":      s.SetCode(ctx, T0, on.Hash, on.State, NewCode("z"), false),
		"SpendCode":    Second(s.SpendCode(ctx, T0, on.Company, on.Hash, on.State)),
		"Charge":       s.Charge(ctx, T0, counter),
		"a look":       s.Charge(ctx, T0, record.CheckOnly(counter)...),
		"Sweep":        s.Sweep(ctx, T0.Add(24*time.Hour)),
		"Replace":      s.Replace(ctx, T0, on.Hash, on.State, Session("c", 1, 1, record.Authorized)),
		"DeleteID":     Second(s.DeleteID(ctx, T0, on.Company, on.Account, on.ID)),
		"Refund":       s.Refund(ctx, T0, counter),
		"Claim":        Second(s.Claim(ctx, T0, "n", "h", T0.Add(time.Minute))),
		"Keep":         s.Keep(ctx, T0, "n", "h", nil, T0.Add(time.Minute)),
		"DeleteOthers": Second(s.DeleteOthers(ctx, T0, on.Company, on.Account, Hash("z"))),
		"End all":      s.End(ctx, T0, record.Revocation{Company: "nobody", Generation: 1}),
		"End":          s.End(ctx, T0, record.Revocation{Company: on.Company, Account: on.Account, Generation: record.AllGenerations}),
		"Delete":       s.Delete(ctx, on.Hash),
	}
}

// ChangeNothing is a change of an account that changes nothing.
func ChangeNothing(*record.Account) (ends bool, err error) { return false, nil }

// Revoking is a change of an account that revokes its sessions.
func Revoking(*record.Account) (ends bool, err error) { return true, nil }

// Set returns a change that is never refused. It revokes the sessions if ends is true.
func Set(ends bool, change func(*record.Account)) func(*record.Account) (ends bool, err error) {
	return func(a *record.Account) (bool, error) { change(a); return ends, nil }
}

// Bind returns a change that adds an identity, if the account has none of its
// provider.
func Bind(identity record.Identity) func(*record.Account) (ends bool, err error) {
	return func(a *record.Account) (bool, error) {
		if slices.ContainsFunc(a.Identities, func(i record.Identity) bool { return i.Provider == identity.Provider }) {
			return false, record.ErrConflict
		}
		a.Identities = append(a.Identities, identity)
		return false, nil
	}
}

// Get ends the test if a call returns an error, and otherwise returns its value.
func Get[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		storetest.Must(t, err)
		return v
	}
}

// WantErr checks an error with errors.Is.
func WantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: got error %v, want %v", what, got, want)
	}
}

// WantFull checks that an error is a FullError.
func WantFull(t *testing.T, what string, got error, key string, until time.Time) {
	t.Helper()
	full, ok := errors.AsType[*record.FullError](got)
	if !ok || full.Key != key || !full.Until.Equal(until) {
		t.Errorf("%s: got error %#v, want %s full until %v", what, got, key, until)
	}
}

// WantEqual checks that got equals want.
func WantEqual[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Race calls f n times, on both nodes in turn, and returns the errors. It has more calls
// in flight than both nodes have connections to PostgreSQL (8 each), but no more than two busy CPUs
// can answer in time.
func Race[S any](n int, one, two S, f func(i int, s S) error) []error {
	return Callers(n, 2*8+2, one, two, f)
}

// Callers is Race with atOnce calls in flight.
func Callers[S any](n, atOnce int, one, two S, f func(i int, s S) error) []error {
	free := make(chan struct{}, atOnce)
	return storetest.Together(n, func(i int) error {
		free <- struct{}{}
		defer func() { <-free }()
		return f(i, []S{one, two}[i%2])
	})
}

// WantWinners checks that n calls succeeded and that the others failed with an error
// for which lost is true.
func WantWinners(t *testing.T, errs []error, n int, lost func(error) bool) {
	t.Helper()
	won := 0
	for i, err := range errs {
		switch {
		case err == nil:
			won++
		case !lost(err):
			t.Errorf("racer %d: unexpected error %v", i, err)
		}
	}
	if won != n {
		t.Errorf("%d of %d won, want %d", won, len(errs), n)
	}
}

// Is returns a function that reports whether an error is want.
func Is(want error) func(error) bool {
	return func(err error) bool { return errors.Is(err, want) }
}

// WantRefusedUnlessOpen starts and closes a store. It checks that every method returns
// notOpen before and after that.
func WantRefusedUnlessOpen(t *testing.T, s interface {
	Start(context.Context) error
	Close() error
}, notOpen error, accounts record.Accounts, sessions record.Sessions) {
	t.Helper()
	check := func(when string) {
		t.Helper()
		for method, err := range CallAllAccounts(bg, accounts, Someone("acme", "m1")) {
			WantErr(t, method+" "+when, err, notOpen)
		}
		if sessions == nil {
			return
		}
		for method, err := range CallAllSessions(bg, sessions, Session("a", 1, 1, record.CheckOTP)) {
			WantErr(t, method+" "+when, err, notOpen)
		}
	}
	check("before Start")
	storetest.Must(t, s.Start(bg))
	storetest.Must(t, s.Start(bg))
	storetest.Must(t, s.Close())
	check("after Close")
	storetest.Must(t, s.Close())
	WantErr(t, "Start after Close", s.Start(bg), notOpen)
}

// Odd contains what a careless store damages: quotes, a line end, a byte order
// mark, characters outside the BMP, a combining character, and length.
var Odd = "it's \"odd\" \\ % _ \r\n \ufeff 𝔐🗝 e\u0301 {x} " + strings.Repeat("ж", 2048)

// T0 is the time of the tests.
var T0 = time.Date(2031, 5, 6, 7, 8, 9, 123456000, time.UTC)

// Answering returns the address of a server that answers once with these bytes.
func Answering(t *testing.T, bytes string) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	storetest.Must(t, err)
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1<<10))
			_, _ = io.WriteString(conn, bytes)
			conn.Close()
		}
	}()
	return ln.Addr().String()
}
