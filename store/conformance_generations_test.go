package store

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/typed"
)

// Revocations of a whole company, and of one session by its ID.

var generationAccountsCases = []accountsCase{
	{
		name:    "company generations",
		promise: "NewCompanyGeneration begins a company generation that is one higher. All accounts that are loaded from now on have it.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, someone("acme", "m1"))
			other := create(t, one, someone("other", "m1"))
			for companyGeneration := int64(1); companyGeneration <= 2; companyGeneration++ {
				wantEqual(t, "revocation", get[record.Revocation](t)(one.NewCompanyGeneration(bg, "acme")), record.Revocation{Company: "acme", Generation: companyGeneration})
				unknown, err := two.ByLoginID(bg, "acme", "unknown", "login id hash")
				wantErr(t, "an unknown login id", err, record.ErrNotFound)
				generations := map[string]int64{
					"ByID":             get[record.Account](t)(two.ByID(bg, "acme", a.ID)).CompanyGeneration,
					"ByMnemocode":      get[record.Account](t)(two.ByMnemocode(bg, "acme", a.Mnemocode)).CompanyGeneration,
					"ByIdentity":       get[record.Account](t)(two.ByIdentity(bg, "acme", a.Identities[0])).CompanyGeneration,
					"ByLoginID":        get[record.Account](t)(two.ByLoginID(bg, "acme", typed.LoginID(a.LoginName, ""), "")).CompanyGeneration,
					"Update":           get[record.Account](t)(two.Update(bg, "acme", a.ID, set(false, func(a *record.Account) { a.CompanyGeneration = 9 }))).CompanyGeneration,
					"an unknown one's": unknown.CompanyGeneration,
				}
				for by, got := range generations {
					wantEqual(t, by, got, companyGeneration)
				}
			}
			wantEqual(t, "generation", get[record.Account](t)(two.ByID(bg, "acme", a.ID)).Generation, a.Generation)
			wantEqual(t, "another company's generation", get[record.Account](t)(two.ByID(bg, "other", other.ID)).CompanyGeneration, 0)
		},
	},
	{
		name:    "changes in an older company generation",
		promise: "What a user of a revoked company generation changes is not stored. A company generation begins before a change has looked at it, or after the change.",
		run: func(t *testing.T, one, two record.Accounts) {
			old := create(t, one, plain("acme", "m1"))
			must(t, one.AddPasskey(bg, t0, old, passkey(0, "old")))
			for range 2 { // the company's row is there in the second round
				var began chan error
				must(t, second(one.Update(bg, "acme", old.ID, func(*record.Account) (bool, error) {
					began = make(chan error, 1)
					go func() { began <- second(two.NewCompanyGeneration(bg, "acme")) }()
					time.Sleep(100 * time.Millisecond)
					if len(began) > 0 {
						t.Error("the company generation began during a change")
					}
					return false, nil
				})))
				must(t, <-began)
			}
			before := get[record.Account](t)(one.ByID(bg, "acme", old.ID))
			wantErr(t, "SetPassword", one.SetPassword(bg, t0, old, "h", record.TokenHash{}), record.ErrConflict)
			wantErr(t, "DeletePasskey", second(one.DeletePasskey(bg, t0, old, passkey(0, "old").Credential, record.TokenHash{})), record.ErrConflict)
			wantErr(t, "AddPasskey", one.AddPasskey(bg, t0, old, passkey(0, "new")), record.ErrNotFound)
			wantErr(t, "SetBackupCodes", one.SetBackupCodes(bg, old, []string{"c"}), record.ErrNotFound)
			wantEqual(t, "account", get[record.Account](t)(two.ByID(bg, "acme", old.ID)), before)
			must(t, one.SetPassword(bg, t0, before, "h", record.TokenHash{}))
		},
	},
	{
		name:    "racing company generations",
		promise: "Each call of NewCompanyGeneration begins another generation, also under concurrency.",
		run: func(t *testing.T, one, two record.Accounts) {
			var mu sync.Mutex
			var generations []int64
			race(40, one, two, func(_ int, s record.Accounts) error {
				e := get[record.Revocation](t)(s.NewCompanyGeneration(bg, "acme"))
				mu.Lock()
				defer mu.Unlock()
				generations = append(generations, e.Generation)
				return nil
			})
			slices.Sort(generations)
			for i, companyGeneration := range generations {
				wantEqual(t, "company generation", companyGeneration, int64(i+1))
			}
			wantEqual(t, "pending revocations", pendingRevocations(t, one), map[record.Revocation]bool{{Company: "acme", Generation: 40}: true})
		},
	},
	{
		name:    "revocations of companies",
		promise: "PendingRevocations also returns those of companies. RevocationDone removes one unless the company generation is higher by now.",
		run: func(t *testing.T, one, two record.Accounts) {
			var all []record.Revocation
			for _, company := range []string{"Acme", "acme", odd} {
				a := create(t, one, plain(company, "m1"))
				all = append(all, get[record.Revocation](t)(one.NewCompanyGeneration(bg, company)))
				must(t, one.Delete(bg, company, a.ID, nil))
				all = append(all, record.Revocation{Company: company, Account: a.ID, Generation: record.AllGenerations})
			}
			var paged []record.Revocation
			for after := (record.Revocation{}); ; after = paged[len(paged)-1] {
				page := get[[]record.Revocation](t)(two.PendingRevocations(bg, after, 1))
				if len(page) == 0 {
					break
				}
				paged = append(paged, page...)
			}
			wantEqual(t, "page by page", paged, all)
			wantEqual(t, "at once", get[[]record.Revocation](t)(two.PendingRevocations(bg, record.Revocation{}, 100)), all)
			for _, e := range all {
				must(t, two.RevocationDone(bg, e))
			}
			later := get[record.Revocation](t)(one.NewCompanyGeneration(bg, "acme"))
			must(t, two.RevocationDone(bg, all[2])) // the generation before
			wantEqual(t, "pending revocations", pendingRevocations(t, one), map[record.Revocation]bool{later: true})
			must(t, two.RevocationDone(bg, later))
			wantEqual(t, "pending revocations", len(pendingRevocations(t, one)), 0)
		},
	},
}

// ofCompanyGeneration returns s with the given company generation.
func ofCompanyGeneration(companyGeneration int64, s record.Session) record.Session {
	s.CompanyGeneration = companyGeneration
	return s
}

var generationSessionsCases = []sessionsCase{
	{
		name:    "end of a company",
		promise: "End with Account 0 ends all sessions of a company with an earlier company generation, including links and decoys. Create and Replace refuse such sessions from then on.",
		run: func(t *testing.T, one, two record.Sessions) {
			code := newCode("c")
			coded := session("coded", 1, 7, record.CheckOTP)
			coded.Code = &code
			long := session("long@9", 9, 7, record.Authorized)
			long.Ends = t0.Add(record.LongestSession)
			long.Expires, long.CompanyGeneration = long.Ends, 3
			must(t, one.Create(bg, t0, long))
			old := []record.Session{
				coded, session("a", 1, 7, record.Authorized), session("link", 1, 7, record.MailedLink), session("b@2", 2, 1, record.Authorized),
				session("decoy", 0, 0, record.RecoveryOTP), session("decoy@2", 0, 0, record.RecoveryOTP), session("step@3", 3, 1, record.SetPassword),
			}
			kept := []record.Session{
				session("elsewhere@other/1", 1, 1, record.Authorized),
				ofCompanyGeneration(4, session("new", 1, 1, record.Authorized)), ofCompanyGeneration(4, session("new@2", 2, 1, record.CheckOTP)),
				ofCompanyGeneration(5, session("newer@4", 4, 1, record.MailedLink)), ofCompanyGeneration(4, session("new decoy", 0, 0, record.RecoveryOTP)),
			}
			for _, s := range slices.Concat(old, kept) {
				if s.Company == "acme" && s.CompanyGeneration == 0 {
					s.CompanyGeneration = 3
				}
				must(t, one.Create(bg, t0, s))
			}
			must(t, two.End(bg, t0, record.Revocation{Company: "acme", Generation: 4}))
			for _, s := range old {
				for method, err := range map[string]error{
					"Get":       second(one.Get(bg, s.Hash)),
					"SpendCode": second(one.SpendCode(bg, t0, "acme", s.Hash, s.State)),
					"Touch":     one.Touch(bg, t0, s.Hash, s.Ends),
					"Expire":    one.Expire(bg, s.Expires, s.Hash),
					"DeleteID":  second(one.DeleteID(bg, t0, "acme", s.Account, s.ID)),
					"Delete":    one.Delete(bg, s.Hash),
				} {
					wantErr(t, method+" of "+s.ID, err, record.ErrNotFound)
				}
				next := ofCompanyGeneration(4, s)
				next.Hash[31]++
				for method, err := range map[string]error{
					"SetCode": one.SetCode(bg, t0, s.Hash, s.State, code, false),
					"Replace": one.Replace(bg, t0, s.Hash, s.State, next),
					"Raise":   one.Raise(bg, t0, s.Hash, s.Profile, "raised"),
				} {
					wantErr(t, method+" of "+s.ID, err, record.ErrConflict)
				}
				late := ofCompanyGeneration(3, s)
				late.Hash[31] += 2
				wantErr(t, "Create beside "+s.ID, two.Create(bg, t0, late), record.ErrConflict)
			}
			for _, s := range kept {
				wantSession(t, one, s)
			}
			next := ofCompanyGeneration(3, session("next", 1, 1, record.Authorized))
			wantErr(t, "Replace by an ended company generation", one.Replace(bg, t0, hash("new"), record.Authorized, next), record.ErrConflict)
			must(t, one.Replace(bg, t0, hash("new"), record.Authorized, ofCompanyGeneration(4, next)))
			wantEqual(t, "sessions", names(get[[]record.Session](t)(two.List(bg, t0, "acme", 1))), []string{"id of next"})

			must(t, two.End(bg, t0, record.Revocation{Company: "acme", Generation: 2})) // no effect, as End was called for generation 4 before
			late := t0.Add(30 * 24 * time.Hour)
			must(t, one.Sweep(bg, late))
			wantErr(t, "in 30 days", one.Create(bg, late, ofCompanyGeneration(3, session("x", 1, 1, record.Authorized))), record.ErrConflict)
			must(t, one.Create(bg, late, ofCompanyGeneration(4, session("y", 1, 1, record.Authorized))))
			must(t, one.Sweep(bg, long.Ends.Add(-time.Hour)))
			wantGone(t, two, "long@9")
		},
	},
	{
		name:    "racing end of a company",
		promise: "No session of a revoked company generation survives, in whichever order the calls come.",
		run: func(t *testing.T, one, two record.Sessions) {
			name := func(kind string, i int) string { return fmt.Sprintf("%s%d@%d", kind, i, i%5+1) }
			for i := range 40 {
				must(t, one.Create(bg, t0, session(name("old", i), int64(i%5+1), 1, record.CheckOTP)))
			}
			errs := race(121, one, two, func(i int, s record.Sessions) error {
				n := i / 3
				switch {
				case i == 60:
					return s.End(bg, t0, record.Revocation{Company: "acme", Generation: 1})
				case i%3 == 0:
					return s.Create(bg, t0, session(name("created", n), int64(n%5+1), 1, record.Authorized))
				case i%3 == 1:
					return s.Replace(bg, t0, hash(name("old", n)), record.CheckOTP, session(name("next", n), int64(n%5+1), 1, record.Authorized))
				}
				return s.Create(bg, t0, ofCompanyGeneration(1, session(name("fresh", n), int64(n%5+1), 1, record.Authorized)))
			})
			for i, err := range errs {
				if err != nil && (i == 60 || i%3 == 2 || !errors.Is(err, record.ErrConflict)) {
					t.Errorf("racer %d: unexpected error %v", i, err)
				}
			}
			left := 0
			for account := range int64(5) {
				for _, s := range get[[]record.Session](t)(one.List(bg, t0, "acme", account+1)) {
					wantEqual(t, "company generation", s.CompanyGeneration, 1)
					left++
				}
			}
			wantEqual(t, "left", left, 40)
		},
	},
	{
		name:    "room after the end of a company",
		promise: "The oldest sessions that have not expired are ended. Sessions that ended with the company do not count, at any later time.",
		run: func(t *testing.T, one, two record.Sessions) {
			at := func(name string, companyGeneration int64, minute int) record.Session {
				s := ofCompanyGeneration(companyGeneration, session(name, 1, 1, record.Authorized))
				s.Created, s.AtMost = t0.Add(time.Duration(minute)*time.Minute), 2
				return s
			}
			must(t, one.Create(bg, t0, at("dead", 0, 5)))
			must(t, two.End(bg, t0, record.Revocation{Company: "acme", Generation: 1}))
			must(t, one.Create(bg, t0, at("a", 1, 1)))
			must(t, two.Create(bg, t0, at("b", 1, 2)))
			wantEqual(t, "left", names(get[[]record.Session](t)(one.List(bg, t0, "acme", 1))), []string{"id of a", "id of b"})
		},
	},
	{
		name:    "delete by ID",
		promise: "DeleteID ends the account's session with this ID, in any state, and returns it. Links have no ID. Of several callers, one succeeds.",
		run: func(t *testing.T, one, two record.Sessions) {
			code := newCode("c")
			step := session("step", 1, 1, record.CheckOTP)
			step.Code = &code
			for _, s := range []record.Session{
				step, session("a", 1, 1, record.Authorized), session("b", 1, 1, record.Authorized), session("link", 1, 1, record.MailedLink),
				session("others@2", 2, 1, record.Authorized), session("elsewhere@other/1", 1, 1, record.Authorized),
			} {
				must(t, one.Create(bg, t0, s))
			}
			for _, id := range []string{"id of link", "id of others@2", "id of elsewhere@other/1", "id of nobody", ""} {
				wantErr(t, id, second(two.DeleteID(bg, t0, "acme", 1, id)), record.ErrNotFound)
			}
			wantErr(t, "an expired one", second(two.DeleteID(bg, step.Expires, "acme", 1, step.ID)), record.ErrNotFound)
			wantEqual(t, "the step", get[record.Session](t)(two.DeleteID(bg, t0, "acme", 1, step.ID)), step)
			errs := race(20, one, two, func(_ int, s record.Sessions) error { return second(s.DeleteID(bg, t0, "acme", 1, "id of a")) })
			wantWinners(t, errs, 1, is(record.ErrNotFound))
			wantGone(t, one, "step", "a")
			left := get[[]record.Session](t)(one.List(bg, t0, "acme", 1))
			wantEqual(t, "left", names(left), []string{"id of b", "id of link"})
		},
	},
	{
		name:    "delete others",
		promise: "DeleteOthers ends the account's authorized sessions but one, and nothing else, and returns them.",
		run: func(t *testing.T, one, two record.Sessions) {
			ended := session("expired", 1, 1, record.Authorized)
			ended.Expires = t0
			for _, s := range []record.Session{
				session("own", 1, 1, record.Authorized), session("a", 1, 1, record.Authorized), session("b", 1, 1, record.Authorized), ended,
				session("step", 1, 1, record.CheckOTP), session("recovery", 1, 1, record.RecoveryPassword), session("link", 1, 1, record.MailedLink),
				session("others@2", 2, 1, record.Authorized), session("elsewhere@other/1", 1, 1, record.Authorized),
			} {
				must(t, one.Create(bg, t0, s))
			}
			gone := get[[]record.Session](t)(two.DeleteOthers(bg, t0, "acme", 1, hash("own")))
			record.SortByAge(gone)
			wantEqual(t, "ended", gone, []record.Session{session("a", 1, 1, record.Authorized), session("b", 1, 1, record.Authorized)})
			wantGone(t, one, "a", "b")
			for _, name := range []string{"own", "expired", "step", "recovery", "link", "others@2", "elsewhere@other/1"} {
				get[record.Session](t)(one.Get(bg, hash(name)))
			}
			must(t, one.Create(bg, t0, session("new", 1, 1, record.Authorized))) // no generation was revoked
			wantEqual(t, "nobody's", len(get[[]record.Session](t)(two.DeleteOthers(bg, t0, "acme", 3, hash("own")))), 0)
		},
	},
	{
		name:    "racing delete by ID",
		promise: "If the session is being replaced, either the old or the new one is ended, and none is left.",
		run: func(t *testing.T, one, two record.Sessions) {
			for round := range 20 {
				name := func(i int) string { return fmt.Sprintf("r%d step %d", round, i) }
				states := []record.State{record.CheckOTP, record.SetPassword, record.Authorized}
				of := func(i int) record.Session {
					s := session(name(i), 1, 1, states[i])
					s.ID = name(0)
					return s
				}
				must(t, one.Create(bg, t0, of(0)))
				race(2, one, two, func(i int, s record.Sessions) error {
					if i == 0 {
						return errors.Join(s.Replace(bg, t0, hash(name(0)), states[0], of(1)), s.Replace(bg, t0, hash(name(1)), states[1], of(2)))
					}
					return second(s.DeleteID(bg, t0, "acme", 1, name(0)))
				})
				wantEqual(t, "left", len(get[[]record.Session](t)(one.List(bg, t0, "acme", 1))), 0)
			}
		},
	},
}
