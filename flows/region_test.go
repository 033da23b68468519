package flows_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mnemogate/mnemogate/flows/manage"
	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/wire"
)

// The account's phone is +37060012345.
var nationally = []string{"8 600 12345", "(0-600) 12345", "60012345", "370 600 12345"}

// In a company with a region, a national phone finds the account and counts like the
// international one.
func TestNationalPhonesFindTheirAccount(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.company.PhoneRegion, b.company.Hardened = "LT", hardened
		b.company.Limits.LockAfter = len(nationally) + 1
		for _, typed := range nationally {
			b.must("auth/checkcredentials", "", object{"login_id": typed, "password": password})
			if reply := b.must("auth/recovery/recover", "", object{"login_id": typed, "captcha_response": "x", "method": "PHONE"}); hardened && reply.UserPhone != "+37*******45" {
				t.Errorf("%s: the phone is shown as %q", typed, reply.UserPhone)
			}
			if a, err := b.admin().ByLoginID(t.Context(), typed); err != nil || a.ID != b.account {
				t.Errorf("operators don't find %s: %v", typed, err)
			}
			b.company.Limits.SMSPerAccount.N++
		}
		for _, typed := range append(nationally, phone) {
			b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": typed, "password": "wrong"})
		}
		for _, typed := range append(nationally, phone) {
			b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", object{"login_id": typed, "password": password})
			b.wrong(wire.ErrRestricted, "auth/login", "", object{"login_id": typed})
		}
		if _, err := b.admin().Unlock(t.Context(), mnemocode); err != nil {
			t.Fatal(err)
		}
		b.must("auth/checkcredentials", "", object{"login_id": nationally[0], "password": password})
		b.company.PhoneRegion = ""
		b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": nationally[0], "password": password})
	}
}

// The answer says how a phone was read. In a hardened company, it says nothing of digits
// that may be a login name, whether or not there is one.
func TestNationalPhonesAreToldAsTheyWereRead(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.company.Hardened = hardened
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "digits", LoginName: "860054321"}, Password: password})
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "other", Phone: "+37060054321"}, Password: password})
		b.company.PhoneRegion = "LT"
		for typed, want := range map[string]string{
			"8 600 12345": phone, "(8-600)12345": phone, "8/60012345": phone, "00370 60012345": phone, phone: "", email: "",
			"860012345": map[bool]string{false: phone}[hardened], "8 600 54321": "+37060054321", "860054321": "",
		} {
			if reply := b.must("auth/login", "", object{"login_id": typed}); reply.LoginID != want {
				t.Errorf("hardened %v: %q was read as %q, want %q", hardened, typed, reply.LoginID, want)
			}
		}
	}
}

// A region does not change which account a login name of digits finds, and neither does
// an account whose phone is written like it.
func TestALoginNameOfDigitsComesFirst(t *testing.T) {
	for _, hardened := range []bool{false, true} {
		b := newHarness(t)
		b.company.Hardened = hardened
		b.company.Limits.LockAfter = 2
		const name = "860012345" // reads as the phone of the harness's account
		b.seed(manage.Seed{Account: record.Account{Mnemocode: "digits", LoginName: name}, Password: "the password of digits"})
		b.company.PhoneRegion = "LT"
		for _, typed := range []string{name, " 860012345 ", "\u200e" + name, "8600\u00ad12345\ufeff"} {
			if reply := b.must("auth/checkcredentials", "", object{"login_id": typed, "password": "the password of digits"}); reply.ProfileMnemocode != "digits" {
				t.Errorf("%q finds %q", typed, reply.ProfileMnemocode)
			}
			if a, err := b.admin().ByLoginID(t.Context(), typed); err != nil || a.Mnemocode != "digits" {
				t.Errorf("operators find %q, %v for %q", a.Mnemocode, err, typed)
			}
		}
		b.must("auth/checkcredentials", "", object{"login_id": "8 600 12345", "password": password}) // spaces: no login name
		b.must("auth/checkcredentials", "", object{"login_id": phone, "password": password})
		for range 2 {
			b.wrong(wire.ErrCredentialsInvalid, "auth/checkcredentials", "", object{"login_id": name, "password": "wrong"})
		}
		b.wrong(wire.ErrRestricted, "auth/checkcredentials", "", object{"login_id": name, "password": "the password of digits"})
		if _, err := b.admin().Unlock(t.Context(), "digits"); err != nil {
			t.Fatal(err)
		}
		b.must("auth/checkcredentials", "", object{"login_id": name, "password": "the password of digits"})
	}
}

// A login name that reads as another account's phone would lock that account's owner out,
// and get the owner's recoveries. So only one of the two can be stored.
func TestNobodyTakesALoginNameThatReadsAsAnotherPhone(t *testing.T) {
	b := newHarness(t)
	b.company.PhoneRegion = "LT"
	create := func(a record.Account) error {
		_, err := b.admin().Create(t.Context(), manage.Change{Apply: func(to *record.Account) error {
			a.Status = to.Status
			*to = a
			return nil
		}})
		return err
	}
	wantTaken := func(field string, err error) {
		t.Helper()
		if taken, ok := errors.AsType[*record.TakenError](err); !ok || taken.Field != field {
			t.Errorf("got %v, want that %s is taken", err, field)
		}
	}
	for i, name := range append(nationally, phone, "00370 60012345", "８ ６００ １２３４５") {
		wantTaken("login_name", create(record.Account{Mnemocode: fmt.Sprint("thief", i), LoginName: name}))
	}
	must(t, create(record.Account{Mnemocode: "digits", LoginName: "860099991"}))
	wantTaken("primary_phone", create(record.Account{Mnemocode: "late", Phone: "+37060099991"}))
	wantTaken("login_name", create(record.Account{Mnemocode: "late", LoginName: "60099991"}))
	rename := func(name string) error {
		_, _, err := b.admin().Change(t.Context(), "digits", set(func(a *record.Account) { a.LoginName = name }))
		return err
	}
	wantTaken("login_name", rename("860012345"))
	if _, _, err := b.admin().Change(t.Context(), "digits", set(func(a *record.Account) { a.Role = "clerk" })); err != nil {
		t.Error(err)
	}
	wantTaken("primary_phone", create(record.Account{Mnemocode: "late", Phone: "+37060099991"}))
	if err := rename("bob"); err != nil {
		t.Error(err)
	}
	if err := create(record.Account{Mnemocode: "late", Phone: "+37060099991"}); err != nil {
		t.Errorf("the phone stays taken: %v", err)
	}
}

// Backends may write phones as they are dialled; they are stored as E.164.
func TestNationalPhonesAreStoredAsE164(t *testing.T) {
	b := newHarness(t)
	b.company.PhoneRegion = "LT"
	set := func(phone string) (record.Account, error) {
		a, _, err := b.admin().Change(t.Context(), mnemocode, set(func(a *record.Account) { a.Phone = phone }))
		return a, err
	}
	if a, err := set("8 (611) 11111"); err != nil || a.Phone != "+37061111111" {
		t.Errorf("got %q, %v", a.Phone, err)
	}
	if a, err := set("112"); err == nil {
		t.Errorf("112 is stored as %q", a.Phone)
	}
	if m, err := manage.NewTrial(b.company, "8 611 11111", false); err != nil || m.To != "+37061111111" {
		t.Errorf("the test SMS goes to %q, %v", m.To, err)
	}
}
