package store

import (
	"errors"

	"github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/flows/record"
)

// takesNoWrites reports whether a store answered but is full or read-only.
func takesNoWrites(err error) bool {
	if diskTakesNoWrites(err) {
		return true
	}
	switch postgresCode(err) {
	case "53100", "25006": // disk_full, read_only_sql_transaction
		return true
	}
	for _, answer := range []string{"OOM ", "MISCONF ", "READONLY "} {
		if redis.HasErrorPrefix(err, answer) {
			return true
		}
	}
	return false
}

// Advice returns what an operator can do about an error that is no answer of a store
// (see record.IsAnswer).
func Advice(err error) string {
	if errors.Is(err, record.ErrDamaged) {
		return "stop Caddy, keep a copy of the file and its -wal file, and restore the latest backup (caddy mnemogate restore); until then, delete no older backup"
	}
	if takesNoWrites(err) {
		return "it answers and takes no writes: free or add space on its disk (Redis: or in its maxmemory), and check that neither the disk nor the server is read-only; nobody can log in until then"
	}
	if redis.HasErrorPrefix(err, redisIsFull) || postgresCode(err) == "53300" {
		return "it takes no more connections: raise its max_connections (Redis: maxclients), or lower max_conns (Redis: pool_size) on the nodes"
	}
	return "check that its server runs and can be reached from here, and that its replicas follow if wait_replicas is set; until it answers, the routes answer service.unavailable"
}
