package redis

import (
	"errors"
	"flag"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
	"github.com/mnemogate/mnemogate/store/recordtest"
	"github.com/mnemogate/mnemogate/store/storetest"
)

var partition = flag.Duration("partition", 200*time.Millisecond, "how long TestRedisPartition goes on after the failover; 30m for a thorough run")

// A partition leaves a master alone with some nodes, while the sentinel promotes its
// replica, which has a replica too, for the others. With WaitReplicas, neither side
// acknowledges a change that is lost when the partition ends: no spent code and no
// revoked session comes back.
func TestRedisPartition(t *testing.T) {
	t.Parallel()
	f := storetest.NewFailover(t)
	second := storetest.NewRedis(t, storetest.FreePorts(t, 1)[0], "--replicaof", strings.ReplaceAll(f.Replica.Addr(), ":", " "))
	must(t, second.Start())
	following := func(s *storetest.Redis) bool {
		return strings.Contains(s.Ask(t, "info", "replication"), "master_link_status:up\r\n")
	}
	storetest.Eventually(t, 20*time.Second, "a replica of the replica", func() bool { return following(second) })
	// The replica and the sentinel are the default user, so the master can shut them out.
	f.Master.Ask(t, "acl", "setuser", "alone", "on", ">secret", "~*", "&*", "+@all")
	master := goredis.NewClient(&goredis.Options{Addr: f.Master.Addr(), Username: "alone", Password: "secret"})
	defer master.Close()
	alone := openUsers(t, Options{URLs: []string{"redis://alone:secret@" + f.Master.Addr()}, WaitReplicas: 1})
	others := openUsers(t, Options{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName, WaitReplicas: 1})
	heartbeatReturned := recordtest.ListenTo(t, alone)

	const workers = 8
	changes := 25 + int(*partition/time.Second)*10 // of each worker
	pause := (*partition + 2*time.Second) / time.Duration(changes)
	name := func(side string, worker, i int) string { return fmt.Sprint(side, " ", worker, " ", i) }
	code := newCode("c")
	sides := map[string]record.Sessions{"alone": alone.Sessions(), "others": others.Sessions()}
	patient := openStore(t, Options{URLs: []string{f.Sentinel.URL()}, SentinelMaster: storetest.MasterName}).Sessions() // waits for no replica
	var all sync.WaitGroup
	for side := range sides {
		for worker := range workers {
			all.Go(func() {
				for i := range changes {
					s := session(name(side, worker, i), 1, 1, record.CheckOTP)
					s.Code = &code
					if err := patient.Create(bg, t0, s); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	probe := 0
	storetest.Eventually(t, time.Minute, "a replica with all sessions", func() bool {
		probe++
		return sides["others"].Create(bg, t0, session(fmt.Sprint("probe ", probe), 1, 1, record.Authorized)) == nil
	})

	var cut atomic.Bool
	whileCut := map[string]int{} // changes that a side acknowledged meanwhile
	var mu sync.Mutex
	var revoked, spent []string
	replaced, stop := make(chan struct{}), make(chan struct{})
	for side, sessions := range sides {
		for worker := range workers {
			all.Go(func() {
				for i := range changes {
					if i == changes/2 {
						<-replaced
					}
					name, before := name(side, worker, i), cut.Load()
					var err error
					if i%2 == 0 {
						err = sessions.Delete(bg, hash(name))
					} else {
						_, err = sessions.SpendCode(bg, t0, "acme", hash(name), record.CheckOTP)
					}
					mu.Lock()
					switch {
					case err != nil:
					case i%2 == 0:
						revoked = append(revoked, name)
					default:
						spent = append(spent, name)
					}
					if err == nil && before && cut.Load() {
						whileCut[side]++
					}
					mu.Unlock()
					select {
					case <-stop:
						return
					case <-time.After(pause):
					}
				}
			})
		}
	}
	time.Sleep(100 * time.Millisecond)
	must(t, master.Do(bg, "acl", "setuser", "default", "off").Err())
	must(t, master.Do(bg, "client", "kill", "user", "default").Err())
	cut.Store(true)
	storetest.Eventually(t, 30*time.Second, "a replica that was promoted", func() bool {
		return strings.HasPrefix(f.Replica.Ask(t, "role"), "[master")
	})
	storetest.Eventually(t, 30*time.Second, "a change that the new master acknowledges", func() bool {
		return others.Sessions().Create(bg, t0, session("probe", 1, 1, record.Authorized)) == nil
	})
	close(replaced)
	recordtest.Soon(t, "distrust on the side of the old master", func() bool { return !heartbeatReturned.Trusted() })
	time.Sleep(*partition)
	storetest.Eventually(t, 30*time.Second, "more of them", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return whileCut["others"] > 0
	})
	cut.Store(false)
	must(t, master.Do(bg, "acl", "setuser", "default", "on").Err())
	storetest.Eventually(t, 60*time.Second, "the old master as a replica", func() bool { return following(f.Master) })
	close(stop)
	all.Wait()

	back := 0
	for _, name := range revoked {
		if _, err := patient.Get(bg, hash(name)); !errors.Is(err, record.ErrNotFound) {
			back++
		}
	}
	for _, name := range spent {
		if s, err := patient.Get(bg, hash(name)); err != nil || s.Code != nil {
			back++
		}
	}
	t.Logf("acknowledged: %d revocations and %d spent codes, of them during the partition %v; %d came back", len(revoked), len(spent), whileCut, back)
	if back > 0 || whileCut["alone"] > 0 {
		t.Error("want none that the old master acknowledged during the partition, and none that came back")
	}
}
