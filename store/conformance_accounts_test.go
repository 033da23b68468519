package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var createCases = []accountsCase{
	{
		name:    "create and find",
		promise: "Create stores a new account and returns its ID. It keeps Created, and sets Updated. Every finder returns all fields.",
		run: func(t *testing.T, one, two record.Accounts) {
			want := someone("acme", "m1")
			want.ID, want.Generation, want.Created, want.Updated = 77, 88, t0.Add(-2*time.Hour), t0.Add(-time.Hour)
			id := get[int64](t)(one.Create(bg, t0, want))
			got := get[record.Account](t)(two.ByID(bg, "acme", id))
			if got.ID != id || got.ID == 77 || got.Generation != t0.Unix() { // which no account had before
				t.Errorf("ID %d (returned: %d) and Generation %d are not the store's own", got.ID, id, got.Generation)
			}
			want.ID, want.Generation, want.Created, want.Updated = id, got.Generation, t0.Add(-2*time.Hour), t0
			wantEqual(t, "ByID", got, want)
			wantEqual(t, "ByMnemocode", get[record.Account](t)(two.ByMnemocode(bg, "acme", "m1")), want)
			for _, i := range want.Identities {
				wantEqual(t, "ByIdentity", get[record.Account](t)(two.ByIdentity(bg, "acme", i)), want)
			}
			for field, id := range record.LoginIDs(want) {
				wantEqual(t, field, get[record.Account](t)(two.ByLoginID(bg, "acme", id, "login id hash")), want)
			}
		},
	},
	{
		name:    "create with backup codes",
		promise: "Create stores the account's backup codes in the same step, each once.",
		run: func(t *testing.T, one, two record.Accounts) {
			want := someone("acme", "m1")
			want.NewBackupCodes = []string{odd, "a", "a"}
			a := create(t, one, want)
			wantEqual(t, "count", a.BackupCodes, 2)
			wantEqual(t, "codes", get[[]string](t)(two.BackupCodes(bg, "acme", a.ID)), []string{"a", odd})
			taken := plain("acme", "m1")
			taken.NewBackupCodes = []string{"b"}
			_, err := two.Create(bg, t0, taken)
			wantTaken(t, "Create", err, "profile_mnemocode")
			wantEqual(t, "codes", get[[]string](t)(one.BackupCodes(bg, "acme", a.ID)), []string{"a", odd})
		},
	},
	{
		name:    "what works once",
		promise: "Create and Update spend a.Spends in the same step. A SpentError says which was spent before, and then nothing is stored.",
		run: func(t *testing.T, one, two record.Accounts) {
			proof := func(field string, first byte) record.Spend {
				return record.Spend{Field: field, Hash: [32]byte{first}, Until: t0.Add(time.Hour)}
			}
			wantSpent := func(what string, err error, field string) {
				t.Helper()
				if spent, ok := errors.AsType[*record.SpentError](err); !ok || spent.Field != field {
					t.Errorf("%s: got %v, want that %s was spent", what, err, field)
				}
			}
			with := func(mnemocode string, spends ...record.Spend) record.Account {
				a := plain("acme", mnemocode)
				a.Spends = spends
				return a
			}
			a := create(t, one, with("m1", proof("phone_proof", 1)))
			must(t, one.Sweep(bg, t0)) // the proof has not expired
			_, err := two.Create(bg, t0, with("m2", proof("email_proof", 2), proof("phone_proof", 1)))
			wantSpent("Create", err, "phone_proof")
			_, err = two.ByMnemocode(bg, "acme", "m2")
			wantErr(t, "the account", err, record.ErrNotFound)
			_, err = one.Create(bg, t0, with("m1", proof("email_proof", 2)))
			wantTaken(t, "Create", err, "profile_mnemocode")
			spends := func(accounts record.Accounts, p record.Spend) error {
				_, err := accounts.Update(bg, "acme", a.ID, func(a *record.Account) (bool, error) {
					a.Role, a.Spends = p.Field, []record.Spend{p}
					return false, nil
				})
				return err
			}
			wantSpent("Update", spends(two, proof("phone_proof", 1)), "phone_proof")
			wantEqual(t, "role", get[record.Account](t)(one.ByID(bg, "acme", a.ID)).Role, "")
			errs := race(20, one, two, func(_ int, s record.Accounts) error { return spends(s, proof("email_proof", 2)) })
			wantWinners(t, errs, 1, isA[*record.SpentError]) // no failed call has spent it
		},
	},
	{
		name:    "an account with nothing",
		promise: "An empty field is no login id, so accounts without login ids do not collide.",
		run: func(t *testing.T, one, _ record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			create(t, one, plain("acme", "m2"))
			want := plain("acme", "m1")
			want.ID, want.Generation, want.Created, want.Updated = a.ID, a.Generation, t0, t0
			wantEqual(t, "account", a, want)
			wantErr(t, "ByLoginID of nothing", second(one.ByLoginID(bg, "acme", "", "login id hash")), record.ErrNotFound)
		},
	},
	{
		name:    "odd bytes in accounts",
		promise: "A store changes no string.",
		run: func(t *testing.T, one, two record.Accounts) {
			want := record.Account{
				Company: odd, Mnemocode: odd, Role: odd, Phone: odd + "p", Email: odd + "e", LoginName: odd,
				Status: record.Status(odd), PasswordHash: odd, Question: odd, AnswerHash: odd,
				Identities: []record.Identity{{Provider: 5, Subject: odd}},
				Accepted:   []record.Acceptance{{Code: odd, Version: odd, At: t0}},
			}
			a := create(t, one, want)
			want.ID, want.Generation, want.Created, want.Updated = a.ID, a.Generation, t0, t0
			wantEqual(t, "account", a, want)
			wantEqual(t, "ByMnemocode", get[record.Account](t)(two.ByMnemocode(bg, odd, odd)), want)
			wantEqual(t, "ByIdentity", get[record.Account](t)(two.ByIdentity(bg, odd, want.Identities[0])), want)
			wantEqual(t, "ByLoginID", get[record.Account](t)(two.ByLoginID(bg, odd, typed.LoginID(odd, ""), "login id hash")), want)
			must(t, one.SetBackupCodes(bg, a, []string{odd}))
			wantEqual(t, "codes", get[[]string](t)(two.BackupCodes(bg, odd, a.ID)), []string{odd})
			must(t, two.UseBackupCode(bg, odd, a.ID, odd))
			subject := record.FailureKey{Company: odd, LoginID: odd}
			must(t, one.UpdateFailures(bg, t0, subject, record.FailureKind(odd), add(1)))
			wantEqual(t, "failure counts", get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, subject)),
				map[record.FailureKind]record.FailureCount{record.FailureKind(odd): {Count: 1}})
		},
	},
	{
		name:    "strings that a database might take for equal",
		promise: "Mnemocodes and companies match byte for byte.",
		run: func(t *testing.T, one, _ record.Accounts) {
			for _, name := range []string{"m", "M", "m ", " m", "é", "e\u0301", "%", "_"} {
				id := get[int64](t)(one.Create(bg, t0, plain("acme", name)))
				got := get[record.Account](t)(one.ByMnemocode(bg, "acme", name))
				wantEqual(t, fmt.Sprintf("account of %q", name), got.ID, id)
			}
			wantErr(t, "ByMnemocode in another company", second(one.ByMnemocode(bg, "Acme", "m")), record.ErrNotFound)
		},
	},
	{
		name:    "strings that are no text",
		promise: "Finders return ErrNotFound. List may start after any string.",
		run: func(t *testing.T, one, _ record.Accounts) {
			create(t, one, plain("acme", "m1"))
			for _, odd := range []string{"\xff", "m\xff1", "\xc3", "\xff\x00", "\x00", "m1\x00", "\x00m1"} {
				_, err := one.ByLoginID(bg, "acme", odd, "login id hash")
				wantErr(t, "ByLoginID", err, record.ErrNotFound)
				_, err = one.ByMnemocode(bg, "acme", odd)
				wantErr(t, "ByMnemocode", err, record.ErrNotFound)
				_, err = one.ByIdentity(bg, "acme", record.Identity{Provider: 1, Subject: odd})
				wantErr(t, "ByIdentity", err, record.ErrNotFound)
				_, err = one.List(bg, "acme", odd, 1)
				must(t, err)
				_, _, err = one.Search(bg, "acme", record.Match{Reach: 5}, odd, 1)
				must(t, err)
				found, _, err := one.Search(bg, "acme", record.Match{Part: odd, Reach: 5}, "", 1)
				must(t, err)
				wantEqual(t, "found", len(found), 0)
				found, _, err = one.Search(bg, "acme", record.Match{Role: odd, Reach: 5}, "", 1)
				must(t, err)
				wantEqual(t, "with the role", len(found), 0)
			}
			for after, want := range map[string]int{"\x00z": 1, "m1\x00": 0, "m\x00z": 1} {
				wantEqual(t, fmt.Sprintf("after %q", after), len(get[[]record.Account](t)(one.List(bg, "acme", after, 5))), want)
			}
		},
	},
	{
		name:    "missing accounts",
		promise: "ErrNotFound, or ErrConflict where the interface says so.",
		run: func(t *testing.T, one, _ record.Accounts) {
			create(t, one, someone("acme", "m1"))
			wantStranger(t, one, "acme", 4711)
			wantErr(t, "ByLoginID", second(one.ByLoginID(bg, "acme", "nobody", "login id hash")), record.ErrNotFound)
			wantErr(t, "ByMnemocode", second(one.ByMnemocode(bg, "acme", "m2")), record.ErrNotFound)
			for _, i := range []record.Identity{{Provider: 2, Subject: "m1"}, {Provider: 1, Subject: "m2"}} {
				wantErr(t, "ByIdentity", second(one.ByIdentity(bg, "acme", i)), record.ErrNotFound)
			}
		},
	},
	{
		name:    "list of accounts",
		promise: "List returns up to limit accounts of the company after `after`, ordered by mnemocode.",
		run: func(t *testing.T, one, two record.Accounts) {
			for _, m := range []string{"m2", "B", "m10", "a"} {
				create(t, one, record.Account{Company: "acme", Mnemocode: m, Status: record.StatusActive})
			}
			create(t, one, record.Account{Company: "other", Mnemocode: "m3", Status: record.StatusActive})
			list := func(after string, limit int) []string {
				names := []string{}
				for _, a := range get[[]record.Account](t)(two.List(bg, "acme", after, limit)) {
					names = append(names, a.Mnemocode)
				}
				return names
			}
			wantEqual(t, "all", list("", 10), []string{"B", "a", "m10", "m2"})
			wantEqual(t, "first page", list("", 3), []string{"B", "a", "m10"})
			wantEqual(t, "next page", list("m10", 3), []string{"m2"})
			wantEqual(t, "behind the last", list("m2", 3), []string{})
			wantEqual(t, "nobody's", list("", 0), []string{})
			must(t, second(one.NewCompanyGeneration(bg, "acme")))
			wantEqual(t, "company generation", get[[]record.Account](t)(two.List(bg, "acme", "", 1))[0].CompanyGeneration, 1)
		},
	},
	{
		name:    "search for accounts",
		promise: "Search lists the accounts that match. It reads at most Reach accounts, and returns the last one that it read if it stopped there.",
		run: func(t *testing.T, one, two record.Accounts) {
			add := func(company, name string, status record.Status, loginName string) {
				create(t, one, record.Account{Company: company, Mnemocode: name, Status: status, LoginName: loginName, Phone: "+3706001234" + name[1:]})
			}
			add("acme", "m1", record.StatusActive, "Jane_Doe@x")
			add("acme", "m2", record.StatusRestricted, "jane%doe")
			add("acme", "m3", record.StatusActive, `jane\doe`)
			add("acme", "m4", record.StatusRestricted, "ЖАННА")
			add("acme", "m5", record.StatusActive, "o'neill")
			add("other", "m6", record.StatusActive, "jane")
			of := func(name string) record.Account { return get[record.Account](t)(one.ByMnemocode(bg, "acme", name)) }
			failOn(t, one, of("m2"), "")
			failOn(t, one, of("m3"), "a device")
			for name, change := range map[string]func(*record.Account){
				"m5": func(a *record.Account) { a.Role, a.Updated = "editor", t0.Add(time.Hour) },
				"m3": func(a *record.Account) { a.PasswordHash = "h" },
				"m4": func(a *record.Account) { a.Phone = "" },
				"m1": func(a *record.Account) { a.Phone = "" },
			} {
				must(t, second(one.Update(bg, "acme", of(name).ID, set(false, change))))
			}
			must(t, one.AddPasskey(bg, t0, of("m1"), passkey(0, "k")))
			search := func(match record.Match, after string, limit int) []string {
				found, last, err := two.Search(bg, "acme", match, after, limit)
				must(t, err)
				names := []string{}
				for _, a := range found {
					names = append(names, a.Mnemocode)
				}
				return append(names, "to "+last)
			}
			for _, c := range []struct {
				what  string
				match record.Match
				want  []string
			}{
				{"all", record.Match{}, []string{"m1", "m2", "m3", "m4", "m5", "to "}},
				{"a status", record.Match{Status: record.StatusRestricted}, []string{"m2", "m4", "to "}},
				{"a part", record.Match{Part: "jane"}, []string{"m1", "m2", "m3", "to "}},
				{"both", record.Match{Part: "jane", Status: record.StatusActive}, []string{"m1", "m3", "to "}},
				{"a phone's", record.Match{Part: "012343"}, []string{"m3", "to "}},
				{"of two login ids", record.Match{Part: "0"}, []string{"m2", "m3", "m5", "to "}},
				{"a percent sign", record.Match{Part: "%"}, []string{"m2", "to "}},
				{"an underscore", record.Match{Part: "e_d"}, []string{"m1", "to "}},
				{"a backslash", record.Match{Part: `\`}, []string{"m3", "to "}},
				{"an apostrophe", record.Match{Part: "'"}, []string{"m5", "to "}},
				{"other letters", record.Match{Part: "анн"}, []string{"m4", "to "}},
				{"NUL", record.Match{Part: "\x00"}, []string{"to "}},
				{"nobody's", record.Match{Part: "janet"}, []string{"to "}},
				{"a role", record.Match{Role: "editor"}, []string{"m5", "to "}},
				{"another's role", record.Match{Role: "editor", Part: "jane"}, []string{"to "}},
				{"failures", record.Match{Failed: true}, []string{"m2", "to "}},
				{"a password", record.Match{PasswordSet: new(true)}, []string{"m3", "to "}},
				{"no password", record.Match{PasswordSet: new(false)}, []string{"m1", "m2", "m4", "m5", "to "}},
				{"changed then", record.Match{UpdatedSince: t0.Add(time.Hour)}, []string{"m5", "to "}},
				{"no factor", record.Match{NoSecondFactor: true}, []string{"m4", "to "}},
			} {
				c.match.Reach = 10
				wantEqual(t, c.what, search(c.match, "", 10), c.want)
			}
			wantEqual(t, "a limit", search(record.Match{Part: "jane", Reach: 10}, "", 2), []string{"m1", "m2", "to "})
			wantEqual(t, "behind", search(record.Match{Part: "jane", Reach: 10}, "m2", 2), []string{"m3", "to "})
			wantEqual(t, "reach", search(record.Match{Status: record.StatusRestricted, Reach: 3}, "", 9), []string{"m2", "to m3"})
			wantEqual(t, "further", search(record.Match{Status: record.StatusRestricted, Reach: 3}, "m3", 9), []string{"m4", "to "})
			wantEqual(t, "in vain", search(record.Match{Part: "o'", Reach: 2}, "", 9), []string{"to m2"})
			wantEqual(t, "behind the last", search(record.Match{Reach: 2}, "m5", 9), []string{"to "})
		},
	},
	{
		name:    "companies never meet",
		promise: "No company sees or uses the data of another.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			must(t, one.SetBackupCodes(bg, a, []string{"c"}))
			b := create(t, two, someone("other", "m1"))
			must(t, one.UpdateFailures(bg, t0, record.FailureKey{Company: "acme", LoginID: "x"}, record.WrongPasswords, add(1)))
			before := get[record.Account](t)(one.ByID(bg, "acme", a.ID))
			wantStranger(t, two, "other", a.ID)
			wantErr(t, "another's backup code", two.UseBackupCode(bg, "other", a.ID, "c"), record.ErrConflict)
			wantErr(t, "another's generation", two.SetPassword(bg, t0, record.Account{Company: "other", ID: a.ID, Generation: a.Generation}, "h", record.TokenHash{}), record.ErrConflict)
			wantEqual(t, "account", get[record.Account](t)(one.ByID(bg, "acme", a.ID)), before)
			for field, id := range record.LoginIDs(b) {
				got := get[record.Account](t)(one.ByLoginID(bg, "other", id, "login id hash"))
				wantEqual(t, field, got.ID, b.ID)
			}
			got := get[record.Account](t)(one.ByIdentity(bg, "other", b.Identities[0]))
			wantEqual(t, "identity", got.ID, b.ID)
			failures := get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, record.FailureKey{Company: "other", LoginID: "x"}))
			wantEqual(t, "failure counts", len(failures), 0)
		},
	},
	{
		name:    "taken",
		promise: "A TakenError names the field that another account of the company has already.",
		run: func(t *testing.T, one, _ record.Accounts) {
			create(t, one, someone("acme", "m1"))
			other := create(t, one, plain("acme", "m2"))
			for _, c := range []struct {
				field  string
				change func(*record.Account)
			}{
				{"profile_mnemocode", func(a *record.Account) { a.Mnemocode = "m1" }},
				{"primary_phone", func(a *record.Account) { a.Phone = "+37060012345" }},
				{"primary_phone", func(a *record.Account) { a.Phone = "login m1" }},
				{"primary_email", func(a *record.Account) { a.Email = "M1@example.com" }},
				{"login_name", func(a *record.Account) { a.LoginName = "m1@example.COM" }},
				{"login_name", func(a *record.Account) { a.LoginName = " 00370 (600) 12-345 " }},
				{"oauth_identities", func(a *record.Account) { a.Identities = []record.Identity{{Provider: 3, Subject: "m1"}} }},
			} {
				a := plain("acme", "new")
				c.change(&a)
				_, err := one.Create(bg, t0, a)
				wantTaken(t, "Create", err, c.field)
				_, err = one.Update(bg, "acme", other.ID, func(a *record.Account) (bool, error) {
					a.Role = "changed"
					c.change(a)
					return true, nil
				})
				wantTaken(t, "Update", err, c.field)
			}
			wantErr(t, "ByMnemocode of what was refused", second(one.ByMnemocode(bg, "acme", "new")), record.ErrNotFound)
			wantEqual(t, "account", get[record.Account](t)(one.ByID(bg, "acme", other.ID)), other)
			wantEqual(t, "pending revocations", len(pendingRevocations(t, one)), 0)
		},
	},
	{
		name:    "one login id in two fields",
		promise: "Two fields of one account may normalise to the same login id.",
		run: func(t *testing.T, one, _ record.Accounts) {
			a := plain("acme", "m1")
			a.Email, a.LoginName = "me@example.com", "ME@example.com"
			a = create(t, one, a)
			got := get[record.Account](t)(one.ByLoginID(bg, "acme", "me@example.com", "login id hash"))
			wantEqual(t, "account", got, a)
			must(t, second(one.Update(bg, "acme", a.ID, set(false, func(a *record.Account) { a.LoginName = "" }))))
			must(t, second(one.ByLoginID(bg, "acme", "me@example.com", "login id hash")))
		},
	},
	{
		name:    "racing Create",
		promise: "A login id names at most one account of a company.",
		run: func(t *testing.T, one, two record.Accounts) {
			errs := race(50, one, two, func(i int, s record.Accounts) error {
				a := plain("acme", fmt.Sprint(i))
				a.Email = "same@example.com"
				return second(s.Create(bg, t0, a))
			})
			wantWinners(t, errs, 1, isA[*record.TakenError])
		},
	},
}

var accountsContextCases = []accountsCase{
	{
		name:    "cancelled context",
		promise: "A method does everything or nothing. If the context ended before, it returns the context's error.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			must(t, one.SetBackupCodes(bg, a, []string{"c"}))
			must(t, one.AddPasskey(bg, t0, a, passkey(a.ID, "c")))
			a.BackupCodes, a.Passkeys = 1, 1
			ctx, cancel := context.WithCancel(bg)
			cancel()
			for method, err := range callAllAccounts(ctx, one, a) {
				wantErr(t, method, err, context.Canceled)
			}
			wantEqual(t, "account", get[record.Account](t)(two.ByID(bg, "acme", a.ID)), a)
			wantEqual(t, "pending revocations", len(pendingRevocations(t, two)), 0)
			wantErr(t, "ByMnemocode", second(two.ByMnemocode(bg, "acme", "new")), record.ErrNotFound)
		},
	},
	{
		name:    "contexts cancelled in flight",
		promise: "What a method acknowledged is stored. A call that was given up harms no other caller.",
		run: func(t *testing.T, one, two record.Accounts) {
			tries := 0
			storetest.InQuiet(t, 500*time.Millisecond, func() (late error) { // calls have 2 s
				tries++
				a := create(t, one, plain("acme", fmt.Sprint("m", tries)))
				errs := race(200, one, two, func(i int, s record.Accounts) error {
					ctx, cancel := context.WithCancel(bg)
					defer cancel()
					if i%4 == 0 {
						go cancel()
					}
					return second(s.Update(ctx, "acme", a.ID, set(false, func(a *record.Account) { a.Role += fmt.Sprintf("<%d>", i) })))
				})
				role := get[record.Account](t)(one.ByID(bg, "acme", a.ID)).Role
				for i, err := range errs {
					if err == nil && !strings.Contains(role, fmt.Sprintf("<%d>", i)) {
						t.Errorf("update %d is not stored", i)
					}
					if err != nil && i%4 != 0 {
						late = fmt.Errorf("update %d: %w", i, err)
					}
				}
				return late
			})
		},
	},
}

// wantStranger checks with every method that takes an id that the company has no
// account with this id.
func wantStranger(t *testing.T, s record.Accounts, company string, id int64) {
	t.Helper()
	_, err := s.ByID(bg, company, id)
	wantErr(t, "ByID", err, record.ErrNotFound)
	_, err = s.Update(bg, company, id, func(*record.Account) (bool, error) {
		t.Error("Update called change without an account")
		return true, nil
	})
	wantErr(t, "Update", err, record.ErrNotFound)
	wantErr(t, "Delete", s.Delete(bg, company, id, nil), record.ErrNotFound)
	for generation := range int64(3) {
		wantErr(t, "SetPassword", s.SetPassword(bg, t0, record.Account{Company: company, ID: id, Generation: generation}, "h", record.TokenHash{}), record.ErrConflict)
	}
	wantErr(t, "Accept", s.Accept(bg, company, id, []record.Acceptance{{Code: "z", Version: "1", At: t0}}), record.ErrNotFound)
	wantErr(t, "SetBackupCodes", s.SetBackupCodes(bg, record.Account{Company: company, ID: id, Generation: 1}, []string{"z"}), record.ErrNotFound)
	wantErr(t, "UseBackupCode", s.UseBackupCode(bg, company, id, "z"), record.ErrConflict)
	codes := get[[]string](t)(s.BackupCodes(bg, company, id))
	wantEqual(t, "BackupCodes", len(codes), 0)
	wantErr(t, "AddPasskey", s.AddPasskey(bg, t0, record.Account{Company: company, ID: id, Generation: 1}, passkey(id, "z")), record.ErrNotFound)
	wantEqual(t, "Passkeys", len(get[[]record.Passkey](t)(s.Passkeys(bg, company, id))), 0)
	wantErr(t, "DeletePasskey", second(s.DeletePasskey(bg, t0, record.Account{Company: company, ID: id}, []byte("c"), record.TokenHash{})), record.ErrNotFound)
}
