package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

var passkeyCases = []accountsCase{
	{
		name:    "passkeys",
		promise: "AddPasskey stores a passkey and the time of the change, Passkeys returns them by age, Passkey finds one by its Credential within the company, CompaniesWithPasskey those of all; accounts say how many they have.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "m1")), create(t, one, plain("acme", "m2"))
			other := create(t, one, plain("other", "m1"))
			young, old, theirs := passkey(a.ID, "a\x00 \xff"), passkey(a.ID, "z"), passkey(other.ID, "z")
			old.SignCount, old.BackedUp, old.Created, old.LastUsed = 1<<32-1, true, t0.Add(-time.Hour), t0
			must(t, one.AddPasskey(bg, t0, a, young))
			must(t, one.AddPasskey(bg, t0.Add(time.Hour), a, old))
			must(t, two.AddPasskey(bg, t0, other, theirs))
			wantEqual(t, "passkeys", get[[]record.Passkey](t)(two.Passkeys(bg, "acme", a.ID)), []record.Passkey{old, young})
			wantEqual(t, "found", get[record.Passkey](t)(two.Passkey(bg, "acme", young.Credential)), young)
			wantEqual(t, "other's", get[record.Passkey](t)(one.Passkey(bg, "other", []byte("z"))), theirs)
			wantErr(t, "not the other's", second(one.Passkey(bg, "other", young.Credential)), record.ErrNotFound)
			companies := func(credential string) []string {
				return slices.Sorted(slices.Values(get[[]string](t)(two.CompaniesWithPasskey(bg, []byte(credential)))))
			}
			wantEqual(t, "companies", companies("z"), []string{"acme", "other"})
			wantEqual(t, "companies", companies(string(young.Credential)), []string{"acme"})
			wantEqual(t, "companies", companies("none"), nil)
			wantEqual(t, "none", len(get[[]record.Passkey](t)(one.Passkeys(bg, "acme", b.ID))), 0)
			has := get[record.Account](t)(two.ByID(bg, "acme", a.ID))
			wantEqual(t, "count", has.Passkeys, 2)
			wantEqual(t, "updated", has.Updated, t0.Add(time.Hour))
			wantTaken(t, "again", two.AddPasskey(bg, t0, a, young), "credential")
			wantTaken(t, "of another account", one.AddPasskey(bg, t0, b, passkey(b.ID, "z")), "credential")
			updated, err := one.Update(bg, "acme", a.ID, set(false, func(a *record.Account) { a.Passkeys, a.Role = 7, "r" }))
			must(t, err)
			wantEqual(t, "count after Update", updated.Passkeys, 2)
		},
	},
	{
		name:    "too many passkeys",
		promise: "An account has at most MaxPasskeys, however many callers add one; a Credential is stored once.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "m1")), create(t, one, plain("acme", "m2"))
			wantWinners(t, race(10, one, two, func(i int, s record.Accounts) error {
				return s.AddPasskey(bg, t0, []record.Account{a, b}[i%2], passkey(a.ID, "same"))
			}), 1, isA[*record.TakenError])
			has := get[record.Account](t)(one.ByID(bg, "acme", a.ID)).Passkeys
			wantWinners(t, race(record.MaxPasskeys+10, one, two, func(i int, s record.Accounts) error {
				return s.AddPasskey(bg, t0, a, passkey(a.ID, fmt.Sprint(i)))
			}), record.MaxPasskeys-has, is(record.ErrConflict))
		},
	},
	{
		name:    "using passkeys",
		promise: "UsePasskey stores count, BackedUp and LastUsed, unless the count is not higher; of several callers with one count, one succeeds. Zero counts always pass.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			p := passkey(a.ID, "c")
			must(t, one.AddPasskey(bg, t0, a, p))
			use := func(s record.Accounts, count uint32) error {
				return s.UsePasskey(bg, t0.Add(time.Minute), "acme", p.Credential, count, true)
			}
			for _, count := range []uint32{0, 4, 5} {
				wantErr(t, fmt.Sprint("count ", count), use(two, count), record.ErrConflict)
			}
			wantEqual(t, "unused", get[record.Passkey](t)(one.Passkey(bg, "acme", p.Credential)), p)
			wantWinners(t, race(20, one, two, func(_ int, s record.Accounts) error { return use(s, 6) }), 1, is(record.ErrConflict))
			must(t, use(one, 1<<32-1))
			p.SignCount, p.BackedUp, p.LastUsed = 1<<32-1, true, t0.Add(time.Minute)
			wantEqual(t, "used", get[record.Passkey](t)(two.Passkey(bg, "acme", p.Credential)), p)
			wantErr(t, "another company", one.UsePasskey(bg, t0, "other", p.Credential, 7, true), record.ErrNotFound)

			p.Credential, p.SignCount = []byte("uncounted"), 0
			must(t, one.AddPasskey(bg, t0, a, p))
			must(t, use(one, 0))
			must(t, use(two, 0))
			must(t, use(two, 1))
			wantErr(t, "count back to zero", use(one, 0), record.ErrConflict)
			get[int64](t)(one.DeletePasskey(bg, t0, inGeneration(0, a), p.Credential, record.TokenHash{}))
			wantErr(t, "a deleted one", use(two, 9), record.ErrNotFound)
		},
	},
	{
		name:    "renaming passkeys",
		promise: "RenamePasskey changes the Name of a passkey of the account, and nothing else.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "m1")), create(t, one, plain("acme", "m2"))
			p, other := passkey(a.ID, "a\x00 \xff"), passkey(a.ID, "z")
			must(t, one.AddPasskey(bg, t0, a, p))
			must(t, one.AddPasskey(bg, t0, a, other))
			must(t, one.RenamePasskey(bg, "acme", a.ID, p.Credential, "laptop "+odd))
			wantErr(t, "another account's", two.RenamePasskey(bg, "acme", b.ID, p.Credential, "x"), record.ErrNotFound)
			wantErr(t, "another company's", two.RenamePasskey(bg, "other", a.ID, p.Credential, "x"), record.ErrNotFound)
			wantErr(t, "none", two.RenamePasskey(bg, "acme", a.ID, []byte("none"), "x"), record.ErrNotFound)
			p.Name = "laptop " + odd
			wantEqual(t, "passkeys", get[[]record.Passkey](t)(two.Passkeys(bg, "acme", a.ID)), []record.Passkey{p, other})
		},
	},
	{
		name:    "deleting passkeys",
		promise: "DeletePasskey removes a passkey of the account and stores a pending revocation that spares keep, unless the account has another generation than the caller assumes. It leaves no account without a passkey, a phone, an identity, and a password with a login id.",
		run: func(t *testing.T, one, two record.Accounts) {
			keep := record.HashToken("keep")
			a, b := create(t, one, plain("acme", "m1")), create(t, one, plain("acme", "m2"))
			for _, c := range []string{"1", "2"} {
				must(t, one.AddPasskey(bg, t0, a, passkey(a.ID, c)))
			}
			wantErr(t, "another account's", second(one.DeletePasskey(bg, t0, inGeneration(0, b), []byte("1"), keep)), record.ErrNotFound)
			wantErr(t, "another company's", second(one.DeletePasskey(bg, t0, record.Account{Company: "other", ID: a.ID}, []byte("1"), keep)), record.ErrNotFound)
			wantErr(t, "another generation's", second(one.DeletePasskey(bg, t0, inGeneration(a.Generation+1, a), []byte("1"), keep)), record.ErrConflict)
			wantEqual(t, "passkeys", get[record.Account](t)(two.ByID(bg, "acme", a.ID)).Passkeys, 2)
			wantWinners(t, race(20, one, two, func(i int, s record.Accounts) error {
				return second(s.DeletePasskey(bg, t0.Add(time.Second), inGeneration(0, a), []byte(fmt.Sprint(i%4/2+1)), keep))
			}), 1, func(err error) bool { return is(record.ErrLastPasskey)(err) || is(record.ErrNotFound)(err) })
			left := get[record.Account](t)(two.ByID(bg, "acme", a.ID))
			wantEqual(t, "left", left.Passkeys, 1)
			wantEqual(t, "generation", left.Generation, a.Generation+1)
			wantEqual(t, "updated", left.Updated, t0.Add(time.Second))
			pending := record.Revocation{Company: "acme", Account: a.ID, Generation: a.Generation + 1, Keep: keep}
			wantEqual(t, "pending", pendingRevocations(t, two), map[record.Revocation]bool{pending: true})

			last := get[[]record.Passkey](t)(two.Passkeys(bg, "acme", a.ID))[0]
			for _, c := range []struct {
				change func(*record.Account)
				want   error
			}{
				{func(a *record.Account) { a.PasswordHash, a.Email = "h", "a@example.com" }, nil},
				{func(a *record.Account) { a.PasswordHash, a.LoginName = "h", "a" }, nil},
				{func(a *record.Account) { a.Phone = "+37060012345" }, nil},
				{func(a *record.Account) { a.Identities = []record.Identity{{Provider: 1, Subject: "s"}} }, nil},
				{func(a *record.Account) { a.PasswordHash = "h" }, record.ErrLastPasskey}, // nobody can say whose it is
				{func(a *record.Account) { a.Email, a.LoginName = "b@example.com", "b" }, record.ErrLastPasskey},
			} {
				way := plain("acme", fmt.Sprint("way ", last.ID()))
				c.change(&way)
				way = create(t, one, way)
				last.Account, last.Credential = way.ID, append(last.Credential, 'x')
				must(t, one.AddPasskey(bg, t0, way, last))
				next, err := two.DeletePasskey(bg, t0, record.Account{Company: "acme", ID: last.Account, Generation: way.Generation}, last.Credential, record.TokenHash{})
				wantErr(t, "the last one", err, c.want)
				if c.want == nil {
					wantEqual(t, "generation", next, way.Generation+1)
				}
			}
			must(t, one.Delete(bg, "acme", a.ID, nil))
			for _, c := range []string{"1", "2"} {
				wantErr(t, "of a deleted account", second(two.Passkey(bg, "acme", []byte(c))), record.ErrNotFound)
			}
		},
	},
}
