package flows_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/flows/session"
	"github.com/mnemogate/mnemogate/flows/wire"
	"github.com/mnemogate/mnemogate/store"
)

// A countingSessions counts the reads of the store.
type countingSessions struct {
	record.Sessions
	gets atomic.Int64
}

func (c *countingSessions) Get(ctx context.Context, hash record.TokenHash) (record.Session, error) {
	c.gets.Add(1)
	return c.Sessions.Get(ctx, hash)
}

// remembering gives the bench a memory with a lease of one hour.
func (b *bench) remembering(limit int) (*store.Memory, *countingSessions) {
	counting := &countingSessions{Sessions: b.Sessions}
	memory := store.NewMemory(counting, limit)
	memory.SetLease(time.Now().Add(time.Hour))
	b.Service.Sessions = memory
	return memory, counting
}

func (b *bench) authorize(token string) (record.Session, error) {
	return b.Authorize(b.t.Context(), session.Requirement{}, []string{"Bearer " + token})
}

func TestWhatEndsIsForgottenBeforeTheCallReturns(t *testing.T) {
	for name, end := range map[string]func(b *bench, token string){
		"logout": func(b *bench, token string) { b.must("auth/logout", token, nil) },
		"a new password": func(b *bench, _ string) {
			b.must("auth/setpassword", b.sessionIn(record.RecoveryPassword), object{"new_password": "another fine secret"})
		},
		"a closed account": func(b *bench, _ string) {
			b.update(true, func(a *record.Account) { a.Status = record.StatusClosed })
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			b.remembering(1000)
			token := b.sessionIn(record.Authorized)
			if _, err := b.authorize(token); err != nil {
				t.Fatal(err)
			}
			end(b, token)
			_, err := b.authorize(token)
			wantError(t, err, wire.ErrTokenInvalid)
		})
	}
}
