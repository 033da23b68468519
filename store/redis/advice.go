package redis

import (
	"cmp"
	"errors"
	"strings"

	goredis "github.com/redis/go-redis/v9"

	"github.com/mnemogate/mnemogate/store/causes"
)

// This file says what an operator can do about the errors of Redis. Its texts are part of
// the errors.

var steps = causes.Steps{
	causes.Authority: "this machine does not trust the authority of its certificate: name that authority's certificate in the URL, as ?ca=<file>",
	causes.NoTLS:     "it answers without TLS: turn TLS on there, or write redis:// if it is on this machine",
	causes.Closed:    "it closed the connection: if it expects TLS on this port, write rediss://; otherwise see its log",
	causes.Silent:    "check that it runs and how busy it is, that no firewall is between, and that it has TLS on this port if the URL begins with rediss://",
}

const sentinelLogin = "the sentinels want a password of their own: correct sentinel_user and sentinel_password in the URL"

const noRight = "give this user the rights that docs/examples/two-nodes/redis.conf gives it (ACL SETUSER): channels &mnemogate:*, keys ~{mg:*, and commands"

const isMoving = "a slot of the Cluster is being moved: wait, or end the move with redis-cli --cluster fix"

// stepsByAnswer are by the beginning of the answer.
var stepsByAnswer = []struct{ prefix, step string }{
	{"WRONGPASS", "correct the user and the password before the @ of its URL, with %xx for special characters"},
	{"NOAUTH", "it wants a password: write redis://<user>:<password>@<host>"},
	{"NOPERM", noRight},
	{"The user executing the script", noRight}, // the answer to a script that may not publish
	{"ACL failure in script", noRight},         // the same from Valkey
	{"unknown command", "mnemogate needs this command: use Redis 7 or newer, and take it out of rename-command there"},
	{"unknown command 'cluster'", "it is not one of a Cluster: name it alone, or add sentinel if these are sentinels"},
	{"unknown command 'sentinel'", "it is no sentinel: name the sentinels, or leave out sentinel"},
	{"DB index", "it has no database of this number: write a lower one in the URL, or raise its databases"},
	{"This instance has cluster support disabled", "it is not one of a Cluster: name it alone, or add sentinel if these are sentinels"},
	{isFull, "it takes no more connections: raise its maxclients, or lower pool_size on the nodes"},
	{isProtected, "it takes connections from its own machine only, since its default user has no password: give it one, or set protected-mode no if a firewall keeps strangers away"},
	{"OOM ", "its memory is full, and it takes no writes: raise its maxmemory; nobody can log in until then"},
	{"MISCONF ", "it takes no writes because its log or snapshot failed: see its log, free disk or memory (vm.overcommit_memory = 1) or, with appendonly yes, run CONFIG SET save ''; nobody can log in until then"},
	{"READONLY ", "it is a replica and takes no writes: name its master, or use sentinel"},
	{"BUSY ", "another program's script keeps it busy: end that with SCRIPT KILL there"},
	{"NOREPLICAS ", "it has too few replicas for its min-replicas-to-write: see that they run and follow"},
	{"LOADING ", "it is loading its data: wait"},
	{"MASTERDOWN ", "it is a replica that does not reach its master: see that the master runs"},
	{"TRYAGAIN ", isMoving},
	{"Script attempted to access a non local key", isMoving},
	{"CROSSSLOT ", "it has several shards behind one address: turn on its OSS Cluster API and name several of its nodes, or its one address twice; or use a database without clustering"},
	{"CLUSTERDOWN ", "a part of the Cluster is down: see CLUSTER INFO and CLUSTER NODES there"},
}

// explain adds what to do about an error of a server.
func explain(err error) error {
	step := ""
	sentinels := err != nil && strings.Contains(err.Error(), "redis: all sentinels")
	switch {
	case errors.Is(err, errReplicas):
		step = "see that its replicas run and follow, or lower wait_replicas"
	case sentinels:
		step = "no sentinel answers, or none knows the master: check their addresses and the name of the master"
	}
	for _, a := range stepsByAnswer {
		if goredis.HasErrorPrefix(err, a.prefix) {
			step = a.step
		}
	}
	if sentinels && goredis.IsAuthError(err) {
		step = sentinelLogin
	}
	return causes.Explain(err, cmp.Or(step, steps.Step(err)))
}
