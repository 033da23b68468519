package redis

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/mnemogate/mnemogate/flows/panics"
	"github.com/mnemogate/mnemogate/flows/record"
)

var deleteScript = newScript("delete")

func (s sessions) Delete(ctx context.Context, hash record.TokenHash) error {
	return s.change(ctx, "sessions.delete: ending session", record.ErrNotFound, deleteScript, []string{s.sessionKey(hash)}, hash[:], s.channel())
}

func (s sessions) DeleteID(ctx context.Context, now time.Time, company string, account int64, id string) (record.Session, error) {
	ended, err := s.deleteThese(ctx, "sessions.delete_id: ending session", now, company, account, record.States[1:], id, "")
	if err == nil && len(ended) == 0 {
		err = record.ErrNotFound
	}
	if err != nil {
		return record.Session{}, err
	}
	return ended[0], nil
}

func (s sessions) DeleteOthers(ctx context.Context, now time.Time, company string, account int64, keep record.TokenHash) ([]record.Session, error) {
	return s.deleteThese(ctx, "sessions.delete_others: ending sessions", now, company, account, []record.State{record.Authorized}, "", string(keep[:]))
}

var deleteTheseScript = newScript("deletethese")

// deleteThese revokes the session with an ID or, if keep is a hash, all others. It returns
// them.
func (s sessions) deleteThese(
	ctx context.Context, what string, now time.Time, company string, account int64, states []record.State, id, keep string,
) (ended []record.Session, err error) {
	err = s.call(ctx, what, func(ctx context.Context) error {
		_, answer, err := s.run(ctx, deleteTheseScript, s.indexes(company, account, states), id, keep, record.Micros(now), s.channel())
		if err == nil {
			ended, err = decodeSessions(answer)
		}
		return err
	})
	return ended, err
}

var expireScript = newScript("expire")

func (s sessions) Expire(ctx context.Context, now time.Time, hash record.TokenHash) error {
	return s.change(ctx, "sessions.expire: expiring session", record.ErrNotFound, expireScript, []string{s.sessionKey(hash)},
		record.Micros(now), hash[:], s.channel())
}

var endScript = newScript("end")

func (s sessions) End(ctx context.Context, now time.Time, e record.Revocation) error {
	const what = "sessions.end: ending sessions"
	if e.Account == 0 {
		began := time.Now()
		err := s.endCompany(ctx, e)
		return s.Called(ctx, what, began, err)
	}
	return s.call(ctx, what, func(ctx context.Context) error {
		keys := append([]string{s.accountKey("f", e.Company, e.Account)}, s.indexes(e.Company, e.Account, record.StoredStates)...)
		_, _, err := s.run(ctx, endScript, keys, e.Generation, e.MarkerLife().Milliseconds(), s.channel(), encodeRevocation(e),
			e.Keep.Bytes(), string(record.Authorized), record.Micros(now))
		return err
	})
}

var endCompanyScript = newScript("endcompany")

// endCompany stores the company's revocation marker in each bucket and publishes the
// revocation with the last one. It deletes no sessions: Redis forgets them when they
// expire.
func (s sessions) endCompany(ctx context.Context, e record.Revocation) error {
	const last = record.Buckets - 1
	raise := func(ctx context.Context, bucket int, message string) error {
		// Each has the time of a call: waiting for replicas takes some in each bucket.
		return explain(s.limited(ctx, func(ctx context.Context) error {
			_, _, err := s.run(ctx, endCompanyScript, []string{s.companyMarker(bucket, e.Company)},
				e.Generation, e.MarkerLife().Milliseconds(), s.channel(), message)
			return err
		}))
	}
	group, of := errgroup.WithContext(ctx)
	group.SetLimit(16)
	for bucket := range last {
		group.Go(func() error { return panics.Contain(func() error { return raise(of, bucket, "") }) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return raise(ctx, last, encodeRevocation(e))
}
