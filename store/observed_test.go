package store

import (
	"context"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/postgres"
	"github.com/mnemogate/mnemogate/store/redis"
	"github.com/mnemogate/mnemogate/store/storetest"
)

// The calls of requests are measured under the names of the methods.
func TestCallsAreObserved(t *testing.T) {
	pg := storetest.SharedPostgres(t)
	for name, s := range map[string]interface{ Observe(record.Observer) }{
		"sqlite":   startSQLite(t, tempFile(t)),
		"postgres": startPostgres(t, pg.DSN(pg.NewSchema(t)), postgres.Options{}),
		"redis":    patientRedis(t, redis.Options{URLs: []string{storetest.StartRedis(t).URL()}}),
	} {
		seen := map[string]bool{}
		s.Observe(func(_ context.Context, method string, _ time.Time, _ error) { seen[method] = true })
		check := func(kind string, called map[string]error, interfaces ...reflect.Type) {
			for _, i := range interfaces {
				for m := range i.Methods() {
					snake := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(m.Name, "${1}_$2"))
					if _, is := called[m.Name]; !is {
						t.Errorf("recordtest.go calls no %s.%s; write a call into CallAllAccounts or CallAllSessions", kind, m.Name)
					} else if !seen[kind+"."+snake] {
						t.Errorf("%s: %s.%s was called and not observed", name, kind, snake)
					}
				}
			}
		}
		if keeps, ok := s.(interface{ Accounts() record.Accounts }); ok {
			a := create(t, keeps.Accounts(), someone("acme", "m1"))
			check("accounts", callAllAccounts(bg, keeps.Accounts(), a), reflect.TypeFor[record.AccountReader](), reflect.TypeFor[record.AccountWriter](),
				reflect.TypeFor[record.BackupCodes](), reflect.TypeFor[record.Passkeys](), reflect.TypeFor[record.FailureCounts](),
				reflect.TypeFor[record.PendingRevocations](), reflect.TypeFor[record.Companies](),
				reflect.TypeFor[record.Devices](), reflect.TypeFor[record.IssuedTokens]())
		}
		if keeps, ok := s.(interface{ Sessions() record.Sessions }); ok {
			check("sessions", callAllSessions(bg, keeps.Sessions(), session("a", 1, 1, record.CheckOTP)), reflect.TypeFor[record.SessionReader](),
				reflect.TypeFor[record.SessionWriter](), reflect.TypeFor[record.SessionCodes](), reflect.TypeFor[record.Counters]())
		}
	}
}
