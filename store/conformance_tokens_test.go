package store

import (
	"reflect"
	"strconv"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

func issued(account int64, name string) *record.IssuedToken {
	return &record.IssuedToken{
		Hash: record.HashToken(name), ID: "id of " + name, Company: "acme", Account: account, Name: name,
		Paths: []string{"/a b/*", "/x"}, Methods: []string{"GET", "POST"}, Actor: "anna", Reason: "ticket", Created: t0, Expires: t0.Add(time.Hour),
	}
}

func tokensOf(t *testing.T, s record.Accounts, a record.Account) (names []string) {
	t.Helper()
	for _, found := range get[[]*record.IssuedToken](t)(s.Tokens(bg, t0, a.Company, a.ID)) {
		names = append(names, found.Name)
	}
	return names
}

var tokenCases = []accountsCase{
	{
		name:    "issued tokens",
		promise: "AddToken stores a token, Token finds it by its hash, Tokens lists an account's, UseToken moves LastUsed forward, DeleteToken removes one and leaves a pending revocation of the present generation.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "m1")), create(t, one, plain("acme", "m2"))
			x, y := issued(a.ID, "x"), issued(a.ID, "y")
			y.Actor, y.Reason = "", ""
			must(t, one.AddToken(bg, a, x, 5))
			must(t, one.AddToken(bg, a, y, 5))
			must(t, one.AddToken(bg, b, issued(b.ID, "z"), 5))
			wantErr(t, "in another company", one.AddToken(bg, record.Account{Company: "other", ID: a.ID, Generation: a.Generation}, issued(a.ID, "n"), 5), record.ErrNotFound)
			wantErr(t, "of no account", one.AddToken(bg, record.Account{Company: "acme", ID: b.ID + 7, Generation: b.Generation}, issued(b.ID+7, "n"), 5), record.ErrNotFound)
			if got := get[*record.IssuedToken](t)(two.Token(bg, x.Hash)); !reflect.DeepEqual(got, x) {
				t.Errorf("x is %v", got)
			}
			wantErr(t, "an unknown one", second(two.Token(bg, record.HashToken("n"))), record.ErrNotFound)
			wantEqual(t, "all", tokensOf(t, two, a), []string{"x", "y"})
			wantEqual(t, "of another company", len(get[[]*record.IssuedToken](t)(two.Tokens(bg, t0, "other", a.ID))), 0)
			wantEqual(t, "after they expired", len(get[[]*record.IssuedToken](t)(two.Tokens(bg, t0.Add(time.Hour), "acme", a.ID))), 0)
			must(t, one.UseToken(bg, x.Hash, t0.Add(time.Minute)))
			must(t, one.UseToken(bg, x.Hash, t0))
			must(t, one.UseToken(bg, record.HashToken("n"), t0))
			wantEqual(t, "last used", get[*record.IssuedToken](t)(two.Token(bg, x.Hash)).LastUsed, t0.Add(time.Minute))
			for what, err := range map[string]error{
				"another's":           second(one.DeleteToken(bg, "acme", b.ID, x.ID, false)),
				"another company's":   second(one.DeleteToken(bg, "other", a.ID, x.ID, false)),
				"without an actor":    second(one.DeleteToken(bg, "acme", a.ID, y.ID, true)),
				"that does not exist": second(one.DeleteToken(bg, "acme", a.ID, "n", false)),
			} {
				wantErr(t, what, err, record.ErrNotFound)
			}
			revocation := get[record.Revocation](t)(one.DeleteToken(bg, "acme", a.ID, x.ID, true))
			wantEqual(t, "revocation", revocation, record.Revocation{Company: "acme", Account: a.ID, Generation: a.Generation, Token: revocation.Token})
			wantEqual(t, "the account's generation", get[record.Account](t)(two.ByID(bg, "acme", a.ID)).Generation, a.Generation)
			wantEqual(t, "left", tokensOf(t, two, a), []string{"y"})
			wantEqual(t, "pending", pendingRevocations(t, two), map[record.Revocation]bool{revocation: true})
		},
	},
	{
		name:    "pending revocations of issued tokens",
		promise: "The revocation that DeleteToken leaves replaces one of the same generation and spares the same session. RevocationDone of an earlier one leaves it.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			remove := func(name string) record.Revocation {
				t.Helper()
				must(t, one.AddToken(bg, a, issued(a.ID, name), 5))
				return get[record.Revocation](t)(two.DeleteToken(bg, "acme", a.ID, "id of "+name, false))
			}
			wantPending := func(e record.Revocation) {
				t.Helper()
				wantEqual(t, "pending", pendingRevocations(t, two), map[record.Revocation]bool{e: true})
			}
			first := remove("first")
			second := remove("second")
			must(t, one.RevocationDone(bg, first))
			wantPending(second)
			must(t, one.RevocationDone(bg, second))
			third := remove("third")
			must(t, one.RevocationDone(bg, second))
			wantPending(third)

			must(t, one.SetPassword(bg, t0, a, "h", hash("s")))
			a.Generation++
			changed := record.Revocation{Company: "acme", Account: a.ID, Generation: a.Generation, Keep: hash("s")}
			must(t, two.RevocationDone(bg, third))
			wantPending(changed)
			fourth := remove("fourth")
			wantEqual(t, "session", fourth.Keep, hash("s"))
			must(t, two.RevocationDone(bg, changed))
			wantPending(fourth)
			must(t, two.RevocationDone(bg, fourth))
			wantEqual(t, "pending", len(pendingRevocations(t, one)), 0)
		},
	},
	{
		name:    "what revokes issued tokens",
		promise: "An Update that ends the sessions revokes an account's tokens unless it spares them. So do a revocation of the company, a move and a deletion, but no new password. Sweep removes those that expired.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "m1")), create(t, one, plain("acme", "m2"))
			change := func(ends, spare bool) {
				t.Helper()
				must(t, second(one.Update(bg, "acme", a.ID, set(ends, func(a *record.Account) { a.SpareTokens = spare }))))
			}
			must(t, one.AddToken(bg, a, issued(a.ID, "x"), 5))
			must(t, one.AddToken(bg, b, issued(b.ID, "z"), 5))
			change(false, false)
			change(true, true)
			a = get[record.Account](t)(two.ByID(bg, "acme", a.ID))
			must(t, one.SetPassword(bg, t0, a, "hash", record.TokenHash{}))
			wantEqual(t, "spared", tokensOf(t, two, a), []string{"x"})
			change(true, false)
			wantEqual(t, "revoked", tokensOf(t, two, a), nil)
			wantErr(t, "revoked", second(two.Token(bg, record.HashToken("x"))), record.ErrNotFound)
			wantEqual(t, "another's", tokensOf(t, two, b), []string{"z"})
			get[record.Revocation](t)(one.NewCompanyGeneration(bg, "acme"))
			wantEqual(t, "of the company", tokensOf(t, two, b), nil)
			wantErr(t, "of the company", second(two.Token(bg, record.HashToken("z"))), record.ErrNotFound)
			a = get[record.Account](t)(two.ByID(bg, "acme", a.ID))
			must(t, one.AddToken(bg, a, issued(a.ID, "new"), 1))
			wantEqual(t, "after that", tokensOf(t, two, a), []string{"new"})
			must(t, one.Sweep(bg, t0.Add(time.Hour+record.KeepExpired)))
			get[*record.IssuedToken](t)(two.Token(bg, record.HashToken("new")))
			must(t, one.Sweep(bg, t0.Add(time.Hour+record.KeepExpired+time.Microsecond)))
			wantErr(t, "swept", second(two.Token(bg, record.HashToken("new"))), record.ErrNotFound)
			must(t, one.AddToken(bg, a, issued(a.ID, "moved"), 5))
			must(t, one.MoveAccount(bg, "acme", a.ID, "new", func(*record.Account) {}))
			wantErr(t, "moved", second(two.Token(bg, record.HashToken("moved"))), record.ErrNotFound)
			b = get[record.Account](t)(two.ByID(bg, "acme", b.ID))
			must(t, one.AddToken(bg, b, issued(b.ID, "deleted"), 5))
			must(t, one.Delete(bg, "acme", b.ID, nil))
			wantErr(t, "deleted", second(two.Token(bg, record.HashToken("deleted"))), record.ErrNotFound)
		},
	},
	{
		name:    "AddToken after a revocation",
		promise: "A revocation of the account or of the company leaves no token that was being issued. One of the account leaves no backup codes and no passkey.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			get[record.Account](t)(one.Update(bg, "acme", a.ID, func(*record.Account) (bool, error) { return true, nil }))
			wantErr(t, "an account revoked meanwhile", two.AddToken(bg, a, issued(a.ID, "x"), 5), record.ErrNotFound)
			wantErr(t, "its backup codes", two.SetBackupCodes(bg, a, []string{"x"}), record.ErrNotFound)
			wantErr(t, "its passkey", two.AddPasskey(bg, t0, a, passkey(a.ID, "x")), record.ErrNotFound)
			a = get[record.Account](t)(two.ByID(bg, "acme", a.ID))
			get[record.Revocation](t)(one.NewCompanyGeneration(bg, "acme"))
			wantErr(t, "a company revoked meanwhile", two.AddToken(bg, a, issued(a.ID, "y"), 5), record.ErrNotFound)
			wantEqual(t, "tokens", tokensOf(t, two, a), nil)
		},
	},
	{
		name:    "racing DeleteToken and UseToken",
		promise: "One of the callers removes a token. The latest use counts.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			x := issued(a.ID, "x")
			must(t, one.AddToken(bg, a, x, 5))
			for _, err := range race(20, one, two, func(i int, s record.Accounts) error {
				return s.UseToken(bg, x.Hash, t0.Add(time.Duration(i)*time.Minute))
			}) {
				must(t, err)
			}
			wantEqual(t, "last used", get[*record.IssuedToken](t)(two.Token(bg, x.Hash)).LastUsed, t0.Add(19*time.Minute))
			errs := race(20, one, two, func(_ int, s record.Accounts) error { return second(s.DeleteToken(bg, "acme", a.ID, x.ID, false)) })
			wantWinners(t, errs, 1, is(record.ErrNotFound))
		},
	},
	{
		name:    "racing AddToken",
		promise: "An account has at most limit tokens that have not expired.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			expired := issued(a.ID, "expired")
			expired.Expires = t0
			must(t, one.AddToken(bg, a, expired, 5))
			errs := race(20, one, two, func(i int, s record.Accounts) error { return s.AddToken(bg, a, issued(a.ID, strconv.Itoa(i)), 5) })
			wantWinners(t, errs, 5, is(record.ErrConflict))
			wantEqual(t, "tokens", len(tokensOf(t, two, a)), 5)
		},
	},
}
