package flows_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/manage"
	pw "github.com/mnemogate/mnemogate/flows/password"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/tenant"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store/storetest"
)

func (b *harness) admin() *manage.Admin {
	return &manage.Admin{Manager: b.Manager, Company: b.company, Address: "192.0.2.7:1"}
}

// A change is stored even if its sessions can't be revoked then. They are revoked later, and
// whoever repeats the change gets another answer than ErrRevocationPending only once they are.
func TestWhatCannotBeRevokedAtOnceIsRevokedLater(t *testing.T) {
	closing := func(b *harness, _ string) error {
		_, _, err := b.admin().Change(b.t.Context(), mnemocode, set(func(a *record.Account) { a.Status = record.StatusClosed }))
		return err
	}
	passkey := record.Passkey{Credential: []byte("k")}
	for name, c := range map[string]struct {
		change   func(b *harness, kept string) error
		repeated bool
		then     error // of the change that is repeated
		keeps    bool
	}{
		"a change":           {change: closing},
		"a change, repeated": {change: closing, repeated: true},
		"a deletion, repeated": {change: func(b *harness, _ string) error {
			return b.admin().Delete(b.t.Context(), mnemocode, nil)
		}, repeated: true, then: record.ErrNotFound},
		"a passkey's removal, repeated": {change: func(b *harness, _ string) error {
			return b.admin().RemovePasskey(b.t.Context(), mnemocode, passkey.ID(), "")
		}, repeated: true, then: manage.ErrNoPasskey},
		"the company's end": {change: func(b *harness, _ string) error { return b.admin().EndAllSessions(b.t.Context()) }},
		"a user's own password": {change: func(b *harness, kept string) error {
			return b.changeOwn(manage.PasswordChange{Current: password, New: newSecret, Keep: kept})
		}, keeps: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			b.device("k", 0)
			kept, other := b.sessionIn(record.Authorized), b.sessionIn(record.Authorized)
			id := b.idOf(kept)
			down := b.fails("End")
			down.Store(true)
			times := 1
			if c.repeated {
				times = 2
			}
			for range times {
				if err := c.change(b, id); !errors.Is(err, manage.ErrRevocationPending) {
					t.Fatalf("got %v, want ErrRevocationPending", err)
				}
			}
			if live, err := b.admin().LiveSessions(t.Context(), mnemocode); len(live) != 0 || err != nil && !errors.Is(err, record.ErrNotFound) {
				t.Errorf("a session that is to end is shown: %v, %v", live, err)
			}
			down.Store(false)
			later := func() error { return b.RevokePending(t.Context(), late) }
			if c.repeated {
				later = func() error { return c.change(b, id) }
			}
			if err := later(); !errors.Is(err, c.then) {
				t.Errorf("later: got %v, want %v", err, c.then)
			}
			b.wantLive(other, wire.ErrTokenInvalid)
			if c.keeps {
				b.wantLive(kept, nil)
			} else {
				b.wantLive(kept, wire.ErrTokenInvalid)
			}
			if pending, err := b.Accounts.PendingRevocations(t.Context(), record.Revocation{}, 10); err != nil || len(pending) != 0 {
				t.Errorf("still pending: %v, %v", pending, err)
			}
		})
	}
}

// failing is an account store that can't change failure counts or backup codes, and
// can't delete accounts.
type failing struct{ record.Accounts }

func (failing) UpdateFailures(context.Context, time.Time, record.FailureKey, record.FailureKind, func(*record.FailureCount) error) error {
	return errDown
}

func (failing) SetBackupCodes(context.Context, record.Account, []string, ...record.OutboxEvent) error {
	return errDown
}

func (failing) Delete(context.Context, string, int64, func(record.Account) bool, ...record.OutboxEvent) error {
	return errDown
}

func TestAPasswordThatWasSetIsToldWhateverFailsThen(t *testing.T) {
	b := newHarness(t)
	b.company.Hardened = true // its login ids have counts of their own
	events := b.record()
	b.Accounts = failing{b.Accounts}
	if _, _, err := b.admin().Change(t.Context(), mnemocode, manage.Change{Password: "some other secret"}); !errors.Is(err, wire.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	if !slices.ContainsFunc(events(), func(e record.Event) bool { return e.Name == record.AccountChanged && e.Reason == "password" }) {
		t.Errorf("got %+v", events())
	}
	storetest.Eventually(t, 10*time.Second, "notice", func() bool { return b.mail.count() == 1 })
}

// A change that is repeated finds nothing to do.
func TestANewPasswordEndsItsLockWhateverFailsThen(t *testing.T) {
	b := newHarness(t)
	b.fail(b.company.Limits.LockAfter, email)
	whole, hash := b.Accounts, bcryptHash(t, newSecret)
	b.Accounts = failing{whole}
	for range 2 {
		_, _, err := b.admin().Change(t.Context(), mnemocode, set(func(a *record.Account) { a.PasswordHash = hash }))
		if err != nil && !errors.Is(err, wire.ErrUnavailable) {
			t.Fatal(err)
		}
		storetest.Eventually(t, 10*time.Second, "the end of the notice", func() bool { return b.Waiting() == 0 })
		b.Accounts = whole
	}
	must(t, b.login(newSecret))
}

// A deletion is of the account that the caller has seen, also if what has changed meanwhile is
// no change of the account's own.
func TestADeletionLooksAtTheAccountThatItDeletes(t *testing.T) {
	b := newHarness(t)
	b.during("Delete", func() { b.backupCodes("ABCDE23456") })
	had := b.load().BackupCodes
	same := func(a record.Account) bool { return a.BackupCodes == had }
	if err := b.admin().Delete(t.Context(), mnemocode, same); !errors.Is(err, manage.ErrVersion) {
		t.Errorf("got %v, want ErrVersion", err)
	}
	must(t, b.admin().Delete(t.Context(), mnemocode, nil))
}

// An import that is run again skips existing accounts, so each account must be
// created completely.
func TestAnAccountIsCreatedWithItsBackupCodes(t *testing.T) {
	b := newHarness(t)
	whole := b.Accounts
	b.Accounts = failing{whole}
	hashes, err := b.Hasher.HashSet(t.Context(), pw.Turn{Company: code}, cheap, []string{"ABCDE23456"})
	must(t, err)
	_, failed := b.admin().Create(t.Context(), manage.Change{
		Apply:       func(a *record.Account) error { a.Mnemocode = "carol"; return nil },
		BackupCodes: hashes,
	})
	b.Accounts = whole
	if a, err := b.admin().ByMnemocode(t.Context(), "carol"); failed != nil || err != nil || a.BackupCodes != 1 {
		t.Errorf("%v; there are %d codes, %v", failed, a.BackupCodes, err)
	}
}

// There may be very many pending revocations, and each is tried again every few
// seconds.
func TestPendingRevocationsDoNotFloodTheLog(t *testing.T) {
	b := newHarness(t)
	var lines bytes.Buffer
	b.Log = slog.New(slog.NewTextHandler(&lines, nil))
	b.watch(func(c seen) error {
		if c.method == "End" || c.method == "List" {
			return errDown
		}
		return nil
	})
	if err := b.admin().EndSessions(t.Context(), mnemocode); !errors.Is(err, manage.ErrRevocationPending) {
		t.Fatalf("got %v, want ErrRevocationPending", err)
	}
	for range 20 {
		if err := b.RevokePending(t.Context(), late); err == nil {
			t.Fatal("the endings were made")
		}
	}
	if got := strings.Count(lines.String(), "\n"); got != 1 || !strings.Contains(lines.String(), "could not be revoked yet") {
		t.Errorf("got %d lines, want one for the change:\n%s", got, lines.String())
	}
}

func TestAnAdminsChangesAreEvents(t *testing.T) {
	b := newHarness(t)
	events := b.record()
	ad := b.admin()
	named := func(mnemocode, role string) manage.Change {
		return set(func(a *record.Account) { a.Mnemocode, a.Role = mnemocode, role })
	}
	do := func(_ any, err error) {
		t.Helper()
		must(t, err)
	}
	do(ad.Create(t.Context(), named("zed", "")))
	change := named("zed", "boss")
	change.Password = "a password"
	_, changed, err := ad.Change(t.Context(), "zed", change)
	do(changed, err)
	_, changed, err = ad.Change(t.Context(), "zed", named("zed", "boss"))
	do(nil, err)
	if changed {
		t.Error("a change that changes nothing is none")
	}
	do(ad.Unlock(t.Context(), "zed"))
	do(ad.NewBackupCodes(t.Context(), "zed"))
	do(nil, ad.Delete(t.Context(), "zed", nil))
	ad.Bulk = true
	do(ad.Create(t.Context(), named("zed", "")))
	want := []string{
		"mnemogate.account.created " + code + " zed 192.0.2.7:1 admin",
		"mnemogate.account.changed " + code + " zed 192.0.2.7:1 role (boss), password",
		"mnemogate.account.unlocked " + code + " zed 192.0.2.7:1",
		"mnemogate.account.backup_codes " + code + " zed 192.0.2.7:1",
		"mnemogate.account.deleted " + code + " zed 192.0.2.7:1",
		"mnemogate.account.created " + code + " zed 192.0.2.7:1 import",
	}
	var got []string
	for _, e := range events() {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s %s", e.Name, e.Company, e.Mnemocode, e.Address, e.Reason)))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func TestBackupCodesOfAnAdminAreFiftyRandomBits(t *testing.T) {
	b := newHarness(t)
	seen := map[string]bool{}
	for range 20 {
		codes, err := b.admin().NewBackupCodes(t.Context(), mnemocode)
		must(t, err)
		for _, code := range codes {
			if len(code) != 11 || code[5] != '-' || strings.Trim(code, "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567-") != "" || seen[code] {
				t.Errorf("got %q", code)
			}
			seen[code] = true
		}
	}
	hashes, err := b.Accounts.BackupCodes(t.Context(), code, b.account)
	if err != nil || len(hashes) != 10 {
		t.Errorf("%d codes are left, %v", len(hashes), err)
	}
}

// A client can't send these values, so a secret that contains one could never be
// entered.
func TestAnAdminSetsNoSecretThatCanNotBeSent(t *testing.T) {
	b := newHarness(t)
	for _, test := range []struct{ password, answer, field string }{
		{password: "a\x00b", field: "password"},
		{password: "a\xffb", field: "password"},
		{password: strings.Repeat("é", 129), field: "password"},
		{answer: "a\x00b", field: "control_answer"},
		{answer: "\xc3", field: "control_answer"},
		{answer: strings.Repeat("é", 257), field: "control_answer"},
		{answer: " \u00a0 ", field: "control_answer"},
		{password: strings.Repeat("é", 128), answer: strings.Repeat("é", 256)},
		{password: "\u0001 \t\ufeff\u200b\U0001f600", answer: "\u0001"},
	} {
		change := manage.Change{Password: test.password, Answer: test.answer, Apply: func(a *record.Account) error { return nil }}
		_, _, err := b.admin().Change(t.Context(), mnemocode, change)
		if field, _ := errors.AsType[*manage.FieldError](err); (test.field == "") != (err == nil) || field != nil && field.Field != test.field {
			t.Errorf("%q, %q: got %v, want %q", test.password, test.answer, err, test.field)
		}
	}
	wantStep(t, b.must("auth/checkcredentials", "", object{"login_id": email, "password": "\u0001 \t\ufeff\u200b\U0001f600"}), record.Authorized)
}

// A nearsighted store examines few accounts in one search.
type nearsighted struct{ record.Accounts }

func (n nearsighted) Search(ctx context.Context, company string, match record.Match, after string, limit int) ([]record.Account, string, error) {
	match.Reach = 7
	return n.Accounts.Search(ctx, company, match, after, limit)
}

// Contract, section 23: a page of a filtered list is full unless it is the last.
func TestAPageOfAFilteredListIsFull(t *testing.T) {
	b := newHarness(t)
	for i := range 50 {
		a := record.Account{Mnemocode: fmt.Sprintf("m%02d", i), LoginName: fmt.Sprint("user", i), Company: code, Status: record.StatusActive}
		if i%20 == 19 || i == 30 {
			a.LoginName = fmt.Sprint("rare", i)
		}
		if _, err := b.Accounts.Create(t.Context(), b.clock.Now(), a); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 { // most of them are not locked
		id, err := b.Accounts.ByMnemocode(t.Context(), code, fmt.Sprintf("m%02d", i))
		must(t, err)
		must(t, b.Accounts.UpdateFailures(t.Context(), b.clock.Now(), record.FailureKey{Company: code, Account: id.ID}, record.WrongCodes, func(f *record.FailureCount) error {
			f.Count, f.Until = 1, b.clock.Now().Add(time.Hour)
			if i%20 == 19 || i == 30 {
				f.Count = b.company.Limits.WrongCodes.N
			}
			return nil
		}))
	}
	b.Accounts = nearsighted{b.Accounts}
	for limit, want := range map[int]string{1: "m19", 2: "m19 m30", 3: "m19 m30 m39", 4: "m19 m30 m39"} {
		for _, match := range []record.Match{{Part: "rare"}, {Failed: true}} {
			found, err := b.admin().Search(t.Context(), match, "", limit)
			must(t, err)
			var got []string
			for _, a := range found {
				got = append(got, a.Mnemocode)
			}
			if strings.Join(got, " ") != want {
				t.Errorf("%v, %d: got %q, want %s", match, limit, got, want)
			}
		}
	}
}

func TestOfChangesThatRaceNoneIsLost(t *testing.T) {
	b := newHarness(t)
	before := b.load()
	got := race(40, func(i int) error {
		_, _, err := b.admin().Change(t.Context(), mnemocode, manage.Change{Apply: func(a *record.Account) error {
			if i%2 == 0 {
				a.LoginName += "x"
			} else {
				a.SecondFactor = !a.SecondFactor // revokes sessions
			}
			return nil
		}})
		return err
	})
	if got[""] != 40 {
		t.Errorf("got %v", got)
	}
	a, err := b.admin().ByMnemocode(t.Context(), mnemocode)
	if err != nil || len(a.LoginName) != 20 || a.SecondFactor || a.Generation != before.Generation+20 {
		t.Errorf("got login name %q, second factor %v, generation %d, %v", a.LoginName, a.SecondFactor, a.Generation, err)
	}
}

// Each operation tells the audit log and the history who made it, even if it ends no session,
// or can't be finished yet.
func TestOperationsNameTheirActor(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(*harness)
		do      func(*manage.Admin) error
		want    record.Event // with the actor and address of the operator
	}{
		"an account without sessions": {
			do:   func(ad *manage.Admin) error { return ad.EndSessions(t.Context(), mnemocode) },
			want: record.Event{Name: record.AccountSessionsEnded, Mnemocode: mnemocode, Reason: record.EndedByAdmin},
		},
		"an account later": {
			prepare: func(b *harness) { b.fails("End").Store(true) },
			do:      func(ad *manage.Admin) error { return ad.EndSessions(t.Context(), mnemocode) },
			want:    record.Event{Name: record.AccountSessionsEnded, Mnemocode: mnemocode, Reason: record.EndedByAdmin},
		},
		"a company": {
			do:   func(ad *manage.Admin) error { return ad.EndAllSessions(t.Context()) },
			want: record.Event{Name: record.AllSessionsEnded, Reason: record.EndedByAdmin},
		},
		"a company later": {
			prepare: func(b *harness) { b.fails("End").Store(true) },
			do:      func(ad *manage.Admin) error { return ad.EndAllSessions(t.Context()) },
			want:    record.Event{Name: record.AllSessionsEnded, Reason: record.EndedByAdmin},
		},
		"a wrong code for a contact": {
			do: func(ad *manage.Admin) error {
				sent, err := ad.SendContact(t.Context(), record.Email, "new@example.com", "", "")
				must(t, err)
				_, _, _, err = ad.ConfirmContact(t.Context(), sent.Token, "00000000")
				return err
			},
			want: record.Event{Name: record.AccountChangeFailed, Route: "contacts/confirm", Result: wire.ErrOTPInvalid.Code, Reason: record.Email.Name},
		},
		"a code of another token": {
			do: func(ad *manage.Admin) error {
				_, _, _, err := ad.ConfirmContact(t.Context(), "x", "00000000")
				return err
			},
			want: record.Event{Name: record.AccountChangeFailed, Route: "contacts/confirm", Result: wire.ErrOTPInvalid.Code},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newHarness(t)
			if test.prepare != nil {
				test.prepare(b)
			}
			ad, all := b.admin(), b.record()
			ad.Actor = "backend"
			failed := test.want.Name == record.AccountChangeFailed || test.prepare != nil
			if err := test.do(ad); (err != nil) != failed {
				t.Fatalf("got %v", err)
			}
			got := named(all(), test.want.Name)
			if len(got) != 1 {
				t.Fatalf("got %+v", got)
			}
			checkEvent(t, got[0])
			test.want.Company, test.want.Actor, test.want.Address = code, ad.Actor, ad.Address
			if !maps.Equal(fieldsOf(got[0]), fieldsOf(test.want)) {
				t.Errorf("got %+v", got[0])
			}
		})
	}
}

// The person that acts as a user has a name that can be read, and none that the history
// gives to users or to administrators.
func TestTheActorOfATokenHasAName(t *testing.T) {
	b := newHarness(t)
	b.company.IssuedTokens = tenant.IssuedTokens{Lifetime: tenant.Duration(time.Hour), Acting: tenant.Duration(time.Hour), PerAccount: 9}
	issue := func(name, actor, reason string) (*record.IssuedToken, error) {
		_, issued, err := b.admin().IssueToken(t.Context(), mnemocode, manage.TokenWish{Name: name, Actor: actor, Reason: reason, Paths: []string{"/*"}, Methods: []string{"GET"}})
		return issued, err
	}
	for field, cases := range map[string][][3]string{
		"name":   {{" ", "anna", "ticket"}, {"\u200b", "", ""}},
		"actor":  {{"x", " ", "ticket"}, {"x", " ", " "}, {"x", "\u200b", "ticket"}, {"x", record.ActorUser, "ticket"}, {"x", "The\u200b User ", "ticket"}, {"x", "the \u200b user", "ticket"}, {"x", record.ActorAdmin, "ticket"}},
		"reason": {{"x", "anna", " "}, {"x", "anna", "\u2060"}},
	} {
		for _, c := range cases {
			_, err := issue(c[0], c[1], c[2])
			if wrong, ok := errors.AsType[*manage.FieldError](err); !ok || wrong.Field != field {
				t.Errorf("%q: got %v", c, err)
			}
		}
	}
	issued, err := issue("", " anna ", " ticket ")
	must(t, err)
	if issued.Name != "anna" || issued.Actor != "anna" || issued.Reason != "ticket" {
		t.Errorf("got %+v", issued)
	}
}
