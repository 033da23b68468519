package flows_test

import (
	"context"

	"github.com/mnemogate/mnemogate/flows/record"
)

// A disturbed is a store of accounts in which something happens once during a call of a
// method below: after it has read, or before it writes.
type disturbed struct {
	record.Accounts
	method  string
	happens func()
}

// during makes something happen during the next call of a method.
func (b *harness) during(method string, happens func()) {
	b.Accounts = &disturbed{b.Accounts, method, happens}
}

func (d *disturbed) disturb(method string) {
	if d.method == method {
		d.method = ""
		d.happens()
	}
}

func (d *disturbed) Device(ctx context.Context, company string, account int64, hash record.TokenHash) (record.Device, error) {
	found, err := d.Accounts.Device(ctx, company, account, hash)
	d.disturb("Device")
	return found, err
}

func (d *disturbed) AddDevice(ctx context.Context, company string, account int64, added record.Device, former string) error {
	d.disturb("AddDevice")
	return d.Accounts.AddDevice(ctx, company, account, added, former)
}

func (d *disturbed) Delete(ctx context.Context, company string, id int64, match func(record.Account) bool, events ...record.OutboxEvent) error {
	d.disturb("Delete")
	return d.Accounts.Delete(ctx, company, id, match, events...)
}
