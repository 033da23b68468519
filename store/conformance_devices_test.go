package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
)

// failOn counts a wrong password for a device of the account, or for the account.
func failOn(t *testing.T, s record.Accounts, a record.Account, device string) {
	t.Helper()
	key := record.FailureKey{Company: a.Company, Account: a.ID, Device: device}
	must(t, s.UpdateFailures(bg, t0, key, record.WrongPasswords, add(1)))
}

var deviceCases = []accountsCase{
	{
		name:    "devices",
		promise: "AddDevice stores a device, Device finds it by its hash, only for its account, Devices lists all, RemoveDevices removes one or all.",
		run: func(t *testing.T, one, two record.Accounts) {
			a, b := create(t, one, plain("acme", "m1")), create(t, one, plain("acme", "m2"))
			must(t, one.AddDevice(bg, "acme", a.ID, device("x"), ""))
			must(t, one.AddDevice(bg, "acme", a.ID, device("y"), "none"))
			must(t, one.AddDevice(bg, "acme", b.ID, device("z"), ""))
			wantEqual(t, "x", get[record.Device](t)(two.Device(bg, "acme", a.ID, device("x").Hash)), device("x"))
			for what, of := range map[string]record.Account{
				"another account": b, "another company": {Company: "other", ID: a.ID}, "no account": {Company: "acme"},
			} {
				wantErr(t, what, second(two.Device(bg, of.Company, of.ID, device("x").Hash)), record.ErrNotFound)
			}
			wantEqual(t, "all", get[[]record.Device](t)(two.Devices(bg, "acme", a.ID)), []record.Device{device("x"), device("y")})
			wantEqual(t, "of another company", len(get[[]record.Device](t)(two.Devices(bg, "other", a.ID))), 0)
			wantErr(t, "of no account", one.AddDevice(bg, "acme", b.ID+7, device("n"), ""), record.ErrNotFound)
			wantErr(t, "in another company", one.AddDevice(bg, "other", a.ID, device("n"), ""), record.ErrNotFound)
			wantErr(t, "another's", one.RemoveDevices(bg, "acme", a.ID, "id of z"), record.ErrNotFound)
			must(t, one.RemoveDevices(bg, "other", a.ID, ""))
			must(t, one.RemoveDevices(bg, "acme", a.ID, "id of x"))
			wantEqual(t, "left", namesOf(get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))), []string{"id of y"})
			must(t, one.RemoveDevices(bg, "acme", a.ID, ""))
			must(t, one.RemoveDevices(bg, "acme", a.ID, ""))
			wantEqual(t, "left", namesOf(get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))), nil)
			wantEqual(t, "b's", namesOf(get[[]record.Device](t)(two.Devices(bg, "acme", b.ID))), []string{"id of z"})
		},
	},
	{
		name:    "the failure counts of a device",
		promise: "A device has its own failure counts. They are deleted with the device or its account.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			for _, name := range []string{"x", "y", "z"} {
				must(t, one.AddDevice(bg, "acme", a.ID, device(name), ""))
				failOn(t, one, a, "id of "+name)
			}
			failOn(t, one, a, "id of x")
			failOn(t, one, a, "")
			counts := func(device string) int {
				t.Helper()
				key := record.FailureKey{Company: "acme", Account: a.ID, Device: device}
				return get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, key))[record.WrongPasswords].Count
			}
			wantEqual(t, "x", get[record.Device](t)(two.Device(bg, "acme", a.ID, device("x").Hash)).Failures, 2)
			wantEqual(t, "y", get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))[1].Failures, 1)
			wantEqual(t, "the account's", get[record.Account](t)(two.ByID(bg, "acme", a.ID)).FailureCounts[record.WrongPasswords].Count, 1)
			must(t, one.RemoveDevices(bg, "acme", a.ID, "id of x"))
			must(t, one.AddDevice(bg, "acme", a.ID, device("w"), "id of y"))
			wantEqual(t, "left", namesOf(get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))), []string{"id of z", "id of w"})
			for name, want := range map[string]int{"id of x": 0, "id of y": 0, "id of z": 1, "": 1} {
				wantEqual(t, "counts of "+name, counts(name), want)
			}
			must(t, one.Delete(bg, "acme", a.ID, nil))
			wantEqual(t, "counts of a deleted account", counts("id of z"), 0)
			wantEqual(t, "its devices", len(get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))), 0)
		},
	},
	{
		name:    "the second factor of a device",
		promise: "A device that AddDevice stores without a FactorUntil has that of the one that it replaces, if this is of the same generations.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			former := device("former")
			for name, c := range map[string]struct {
				change func(*record.Device)
				former string
				want   time.Time
			}{
				"the same":                   {func(*record.Device) {}, former.ID, former.FactorUntil},
				"its own":                    {func(d *record.Device) { d.FactorUntil = t0 }, former.ID, t0},
				"another generation":         {func(d *record.Device) { d.Generation++ }, former.ID, time.Time{}},
				"another company generation": {func(d *record.Device) { d.CompanyGeneration++ }, former.ID, time.Time{}},
				"another device":             {func(*record.Device) {}, "none", time.Time{}},
			} {
				must(t, one.AddDevice(bg, "acme", a.ID, former, ""))
				d := device(name)
				d.FactorUntil = time.Time{}
				c.change(&d)
				must(t, one.AddDevice(bg, "acme", a.ID, d, c.former))
				wantEqual(t, name, get[record.Device](t)(two.Device(bg, "acme", a.ID, d.Hash)).FactorUntil, c.want)
				must(t, one.RemoveDevices(bg, "acme", a.ID, ""))
			}
		},
	},
	{
		name:    "racing RemoveDevices",
		promise: "No device has the second factor of one that was removed before.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			next := device("next")
			next.FactorUntil = time.Time{}
			for range 50 {
				must(t, one.AddDevice(bg, "acme", a.ID, device("former"), ""))
				for i, err := range race(2, one, two, func(i int, s record.Accounts) error {
					if i == 0 {
						return s.RemoveDevices(bg, "acme", a.ID, "")
					}
					return s.AddDevice(bg, "acme", a.ID, next, "id of former")
				}) {
					if err != nil {
						t.Errorf("%d: %v", i, err)
					}
				}
				for _, d := range get[[]record.Device](t)(two.Devices(bg, "acme", a.ID)) {
					wantEqual(t, d.ID, d.FactorUntil, time.Time{})
				}
				must(t, one.RemoveDevices(bg, "acme", a.ID, ""))
			}
		},
	},
	{
		name:    "what revokes devices",
		promise: "An Update that ends the sessions, SetPassword and DeletePasskey remove the account's devices, with their failure counts.",
		run: func(t *testing.T, one, two record.Accounts) {
			other := create(t, one, plain("acme", "m2"))
			must(t, one.AddDevice(bg, "acme", other.ID, device("z"), ""))
			a := plain("acme", "m1")
			a.Phone, a.NewPasskeys = "+37060012345", []record.Passkey{passkey(0, "p")}
			a = create(t, one, a)
			update := func(ends bool) error {
				return second(one.Update(bg, "acme", a.ID, func(*record.Account) (bool, error) { return ends, nil }))
			}
			for _, c := range []struct {
				name   string
				change func() error
				left   []string
			}{
				{"another update", func() error { return update(false) }, []string{"id of another update"}},
				{"an update", func() error { return update(true) }, nil},
				{"a password", func() error {
					a := get[record.Account](t)(one.ByID(bg, "acme", a.ID))
					return one.SetPassword(bg, t0, a, "hash", record.TokenHash{})
				}, nil},
				{"a passkey", func() error {
					return second(one.DeletePasskey(bg, t0, inGeneration(0, a), passkey(0, "p").Credential, record.TokenHash{}))
				}, nil},
			} {
				must(t, one.AddDevice(bg, "acme", a.ID, device(c.name), ""))
				failOn(t, one, a, "id of "+c.name)
				must(t, c.change())
				wantEqual(t, c.name, namesOf(get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))), c.left)
				key := record.FailureKey{Company: "acme", Account: a.ID, Device: "id of " + c.name}
				wantEqual(t, c.name+": counts", len(get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, key))), len(c.left))
			}
			wantEqual(t, "another's", namesOf(get[[]record.Device](t)(two.Devices(bg, "acme", other.ID))), []string{"id of z"})
		},
	},
	{
		name:    "racing AddDevice",
		promise: "An account has at most MaxDevices, the newest.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			must(t, one.AddDevice(bg, "acme", a.ID, device("first"), ""))
			failOn(t, one, a, "id of first")
			for i, err := range race(60, one, two, func(i int, s record.Accounts) error {
				return s.AddDevice(bg, "acme", a.ID, device(fmt.Sprint(i)), "")
			}) {
				if err != nil {
					t.Errorf("%d: %v", i, err)
				}
			}
			wantEqual(t, "devices", len(get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))), record.MaxDevices)
			wantErr(t, "the oldest", second(two.Device(bg, "acme", a.ID, device("first").Hash)), record.ErrNotFound)
			key := record.FailureKey{Company: "acme", Account: a.ID, Device: "id of first"}
			wantEqual(t, "its counts", len(get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, key))), 0)
		},
	},
	{
		name:    "sweeping devices",
		promise: "Sweep removes devices that have expired, with their failure counts.",
		run: func(t *testing.T, one, two record.Accounts) {
			a := create(t, one, plain("acme", "m1"))
			later := device("later")
			later.Expires = t0.Add(time.Hour + time.Microsecond)
			must(t, one.AddDevice(bg, "acme", a.ID, device("x"), ""))
			must(t, one.AddDevice(bg, "acme", a.ID, later, ""))
			failOn(t, one, a, "id of x")
			failOn(t, one, a, later.ID)
			must(t, one.Sweep(bg, t0.Add(time.Hour+time.Microsecond)))
			wantEqual(t, "left", namesOf(get[[]record.Device](t)(two.Devices(bg, "acme", a.ID))), []string{later.ID})
			key := record.FailureKey{Company: "acme", Account: a.ID, Device: "id of x"}
			wantEqual(t, "its counts", len(get[map[record.FailureKind]record.FailureCount](t)(two.FailureCounts(bg, key))), 0)
			wantEqual(t, "the other's", get[record.Device](t)(two.Device(bg, "acme", a.ID, later.Hash)).Failures, 1)
		},
	},
}
