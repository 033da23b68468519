package store

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// companyCases test what does not belong to a single account.
var companyCases = []accountsCase{
	{
		name:    "census",
		promise: "CompaniesWithAccounts returns each company that has accounts. Count counts all of them. Stranded counts the accounts that need a second factor and have none, and Search lists them.",
		run: func(t *testing.T, one, two record.Accounts) {
			companies := func() []string {
				return append([]string(nil), get[[]string](t)(two.CompaniesWithAccounts(bg))...)
			}
			wantEqual(t, "companies of none", companies(), nil)
			wantEqual(t, "accounts of none", get[int](t)(two.Count(bg)), 0)
			stranded := func(company string, all bool, want int) {
				t.Helper()
				wantEqual(t, fmt.Sprintf("stranded of %.20q (all: %v)", company, all), get[map[string]int](t)(two.Stranded(bg, all))[company], want)
				listed, _, err := two.Search(bg, company, record.Match{Status: record.StatusActive, NoSecondFactor: true, Reach: 100}, "", 100)
				must(t, err)
				listed = slices.DeleteFunc(listed, func(a record.Account) bool { return !all && !a.SecondFactor })
				wantEqual(t, fmt.Sprintf("list of %.20q (all: %v)", company, all), len(listed), want)
			}
			for _, company := range []string{"b", "Acme", odd, "acme"} {
				for i, change := range []func(*record.Account){
					func(a *record.Account) {},
					func(a *record.Account) { a.SecondFactor = true },
					func(a *record.Account) { a.SecondFactor, a.Phone = true, "+37060012345" },
					func(a *record.Account) { a.SecondFactor, a.Status = true, record.StatusClosed },
					func(a *record.Account) {
						a.SecondFactor, a.Identities = true, []record.Identity{{Provider: 1, Subject: "x"}}
					},
				} {
					a := plain(company, fmt.Sprint(i))
					change(&a)
					create(t, one, a)
				}
				stranded(company, true, 2)
				stranded(company, false, 1)
			}
			wantEqual(t, "companies", companies(), []string{"Acme", "acme", "b", odd})
			coded := plain("b", "coded")
			coded.SecondFactor = true
			must(t, one.SetBackupCodes(bg, create(t, one, coded), []string{"c"}))
			keyed := plain("b", "keyed")
			keyed.SecondFactor = true
			must(t, one.AddPasskey(bg, t0, create(t, one, keyed), passkey(0, "k")))
			app := plain("b", "app") // useless without a password
			app.SecondFactor, app.TOTP = true, "sealed"
			id := create(t, one, app).ID
			stranded("b", true, 3)
			must(t, second(one.Update(bg, "b", id, set(false, func(a *record.Account) { a.PasswordHash = "h" }))))
			stranded("b", true, 2)
			for _, mnemocode := range []string{"0", "1", "2", "3", "4", "app", "coded", "keyed"} {
				must(t, one.Delete(bg, "b", get[record.Account](t)(one.ByMnemocode(bg, "b", mnemocode)).ID, nil))
			}
			wantEqual(t, "companies after deletes", companies(), []string{"Acme", "acme", odd})
			stranded("b", true, 0)
		},
	},
	{
		name:    "seeds",
		promise: "SetSeeded records that a configured account was created. The record stays when the account is deleted.",
		run: func(t *testing.T, one, two record.Accounts) {
			want := func(s record.Accounts, company, mnemocode string, want bool) {
				t.Helper()
				wantEqual(t, fmt.Sprintf("Seeded of %s %.20q", company, mnemocode), get[bool](t)(s.Seeded(bg, company, mnemocode)), want)
			}
			for _, mnemocode := range []string{"m1", odd} {
				a := create(t, one, plain("acme", mnemocode))
				want(two, "acme", mnemocode, false)
				wantWinners(t, race(10, one, two, func(_ int, s record.Accounts) error { return s.SetSeeded(bg, "acme", mnemocode) }), 10, is(nil))
				want(two, "acme", mnemocode, true)
				must(t, one.Delete(bg, "acme", a.ID, nil))
				want(one, "acme", mnemocode, true)
			}
			want(one, "other", "m1", false)
			want(one, "acme", "M1", false)
		},
	},
	{
		name:    "move",
		promise: "MoveAccount takes everything but devices to the other company, in one step, and overwrites nobody there. Of several callers, one succeeds.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := someone("acme", "m1")
			a.TOTP, a.TOTPPending = "sealed", "pending"
			a = create(t, one, a)
			must(t, one.AddPasskey(bg, t0, a, passkey(a.ID, "k")))
			must(t, one.AddDevice(bg, "acme", a.ID, device("d"), ""))
			must(t, one.SetBackupCodes(bg, a, []string{"c"}))
			failOn(t, one, a, "")
			failOn(t, one, a, "id of d")
			for field, other := range map[string]record.Account{
				"profile_mnemocode": plain("new", "m1"),
				"primary_email":     {Company: "new", Mnemocode: "m2", Status: record.StatusActive, Email: a.Email},
				"oauth_identities":  {Company: "new", Mnemocode: "m2", Status: record.StatusActive, Identities: a.Identities},
			} {
				other = create(t, one, other)
				wantTaken(t, "MoveAccount", two.MoveAccount(bg, "acme", a.ID, "new", func(*record.Account) {}), field)
				must(t, one.Delete(bg, "new", other.ID, nil))
			}
			other := create(t, one, plain("new", "m2"))
			must(t, one.AddPasskey(bg, t0, other, passkey(other.ID, "k")))
			wantTaken(t, "MoveAccount", two.MoveAccount(bg, "acme", a.ID, "new", func(*record.Account) {}), "credential")
			must(t, one.Delete(bg, "new", other.ID, nil))
			named := create(t, one, record.Account{Company: "acme", Mnemocode: "m3", Status: record.StatusActive, LoginName: "60099999", Storing: record.Storing{PhoneRegion: "LT"}})
			other = create(t, one, record.Account{Company: "new", Mnemocode: "m2", Status: record.StatusActive, Phone: "+37060099999"})
			wantTaken(t, "MoveAccount", two.MoveAccount(bg, "acme", named.ID, "new", func(*record.Account) {}), "login_name")
			for _, a := range []record.Account{named, other} {
				must(t, one.Delete(bg, a.Company, a.ID, nil))
			}
			a = get[record.Account](t)(two.ByID(bg, "acme", a.ID))
			errs := race(10, one, two, func(_ int, s record.Accounts) error {
				return s.MoveAccount(bg, "acme", a.ID, "new", func(a *record.Account) { a.TOTP += " again" })
			})
			wantWinners(t, errs, 1, is(record.ErrNotFound))
			wantErr(t, "the old company", second(two.ByID(bg, "acme", a.ID)), record.ErrNotFound)
			wantErr(t, "the old login id", second(two.ByLoginID(bg, "acme", typed.LoginID(a.Email, ""), "")), record.ErrNotFound)
			a.Company, a.TOTP = "new", "sealed again"
			wantEqual(t, "by mnemocode", get[record.Account](t)(two.ByMnemocode(bg, "new", "m1")), a)
			wantEqual(t, "by login id", get[record.Account](t)(two.ByLoginID(bg, "new", typed.LoginID(a.Email, ""), "")), a)
			wantEqual(t, "by identity", get[record.Account](t)(two.ByIdentity(bg, "new", a.Identities[0])), a)
			wantEqual(t, "passkey", get[record.Passkey](t)(two.Passkey(bg, "new", []byte("k"))).Account, a.ID)
			wantEqual(t, "backup codes", get[[]string](t)(two.BackupCodes(bg, "new", a.ID)), []string{"c"})
			wantEqual(t, "devices", len(get[[]record.Device](t)(two.Devices(bg, "new", a.ID))), 0)
			for _, company := range []string{"acme", "new"} {
				of := record.FailureKey{Company: company, Account: a.ID, Device: "id of d"}
				wantEqual(t, "counts of its device in "+company, len(get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, of))), 0)
			}
			must(t, one.Delete(bg, "new", a.ID, nil))
		},
	},
	{
		name:    "forget company",
		promise: "ForgetCompany deletes what belongs to a company without accounts, and nothing of others. An heir gets the seeds and the events, which are delivered in their order.",
		run: func(t *testing.T, one, two record.Accounts) {
			kept := func(company string) (kept []string) {
				unknown := record.FailureKey{Company: company, LoginID: "hash"}
				if len(get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, unknown))) > 0 {
					kept = append(kept, "failures")
				}
				if get[bool](t)(two.Seeded(bg, company, "m1")) {
					kept = append(kept, "seed")
				}
				if len(get[[]record.SigningKey](t)(two.SigningKeys(bg, company))) > 0 {
					kept = append(kept, "key")
				}
				if slices.ContainsFunc(backlog(t, two), func(b record.Backlog) bool { return b.Company == company }) {
					kept = append(kept, "event")
				}
				return kept
			}
			all := []string{"failures", "seed", "key", "event"}
			for _, company := range []string{"a1", "b2", "c3"} {
				a := create(t, one, plain(company, "m1"))
				must(t, one.UpdateFailures(bg, t0, record.FailureKey{Company: company, LoginID: "hash"}, record.WrongPasswords, add(1)))
				must(t, one.SetSeeded(bg, company, "m1"))
				must(t, one.AddSigningKey(bg, company, record.SigningKey{Number: 1, Sealed: "s", Created: t0}))
				must(t, one.Delete(bg, company, a.ID, nil, record.OutboxEvent{Queue: "q", ID: "1", Type: "t", Body: []byte("{}"), At: t0}))
				wantEqual(t, "kept of "+company, kept(company), all)
			}
			want := map[string]string{"q": "1 later"}
			for i := range 150 { // more than a store moves at once
				name := fmt.Sprint("queue ", i)
				create(t, one, noted(plain("b2", name), note(name, name)))
				want[name] = name
			}
			create(t, one, noted(plain("heir9", "m2"), note("q", "later")))
			get[[]record.OutboxQueue](t)(one.Claim(bg, t0, t0.Add(time.Minute), "b2", 7)) // by a node that dies
			wantEqual(t, "generation", get[record.Revocation](t)(one.NewCompanyGeneration(bg, "a1")).Generation, 1)
			must(t, one.ForgetCompany(bg, "a1", ""))
			must(t, one.ForgetCompany(bg, "b2", "heir9"))
			wantEqual(t, "kept of the erased", kept("a1"), nil)
			wantEqual(t, "kept of the renamed", kept("b2"), nil)
			wantEqual(t, "kept of the heir", kept("heir9"), []string{"seed", "event"})
			wantEqual(t, "kept of another", kept("c3"), all)
			wantEqual(t, "events of the heir", inQueues(get[[]record.OutboxQueue](t)(two.Claim(bg, t0.Add(time.Minute), t0.Add(time.Hour), "heir9", 1000))), want)
			wantEqual(t, "generation", get[record.Revocation](t)(one.NewCompanyGeneration(bg, "a1")).Generation, 2)
		},
	},
	{
		name:    "secrets",
		promise: "Secrets returns the same 32 random bytes on every node and after every restart, and what AddSecret added, ordered by Number. Of several callers of AddSecret with a Number, one succeeds.",
		run: func(t *testing.T, one, two record.Accounts) {
			secrets := make([]string, 20)
			errs := race(20, one, two, func(i int, s record.Accounts) error {
				found, err := s.Secrets(bg)
				if err == nil && len(found) == 1 && found[0].Number == 0 && found[0].Begins.IsZero() {
					secrets[i] = string(found[0].Value)
				}
				return err
			})
			wantWinners(t, errs, 20, is(nil))
			for _, s := range secrets {
				if s != secrets[0] || len(s) != 32 || s == strings.Repeat("\x00", 32) {
					t.Fatalf("secrets differ or are none: %x and %x", secrets[0], s)
				}
			}
			secret := func(number int64, value string) record.Secret {
				return record.Secret{Number: number, Value: []byte(value), Begins: t0.Add(time.Duration(number) * time.Hour)}
			}
			must(t, two.AddSecret(bg, secret(2, "b")))
			wantWinners(t, race(20, one, two, func(i int, s record.Accounts) error { return s.AddSecret(bg, secret(1, "a")) }), 1, is(record.ErrConflict))
			wantErr(t, "AddSecret", one.AddSecret(bg, secret(2, "c")), record.ErrConflict)
			want := []record.Secret{{Value: []byte(secrets[0])}, secret(1, "a"), secret(2, "b")}
			wantEqual(t, "secrets", get[[]record.Secret](t)(one.Secrets(bg)), want)
			wantEqual(t, "secrets", get[[]record.Secret](t)(two.Secrets(bg)), want)
		},
	},
}
