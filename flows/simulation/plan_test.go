package simulation

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// A plan is the script of a story: what is done in a world, and when. Everything else
// follows from the seed. Plans are written as they are printed, so a part of one can be
// kept in testdata.
type plan struct {
	seed     uint64
	awaited  bool   // wait_replicas, and synchronous_standby_names
	planted  string // the name of a fault; empty for none
	actions  []action
	duration time.Duration
}

// crashes returns how many processes crash at most.
func (p plan) crashes() (n int) {
	for _, a := range p.actions {
		if a.verb == "crashes" {
			n++
		}
	}
	return n
}

// nodes returns how many nodes there are: two, unless something is done at the third.
func (p plan) nodes() int {
	if slices.ContainsFunc(p.actions, func(a action) bool { return a.who == "node3" || slices.Contains(a.args, "node3") }) {
		return 3
	}
	return 2
}

// An action is a line of a plan, such as "1.25s alice logs_in node1 node2".
type action struct {
	at   time.Duration
	who  string // a person, or an operator, or a machine
	verb string
	args []string
}

func (a action) String() string {
	return strings.TrimSpace(fmt.Sprintf("%s %s %s %s", a.at, a.who, a.verb, strings.Join(a.args, " ")))
}

// newPlan draws a plan.
func newPlan(seed uint64) plan {
	r := rand.New(rand.NewPCG(seed, 1))
	p := plan{seed: seed, awaited: r.IntN(2) == 0, duration: 3 * time.Second}
	nodes := []string{"node1", "node2", "node3"}[:2+r.IntN(2)]
	one := func() string { return nodes[r.IntN(len(nodes))] }
	several := func() []string { // nodes at which the same is tried, often at once
		some := []string{one()}
		for r.IntN(2) == 0 && len(some) < 3 {
			some = append(some, one())
		}
		return some
	}
	add := func(who, verb string, args ...string) {
		at := between(r, 0, p.duration)
		if n := len(p.actions); n > 0 && r.IntN(2) == 0 { // soon after another action
			at = p.actions[r.IntN(n)].at + between(r, 0, 30*time.Millisecond)
		}
		p.actions = append(p.actions, action{at.Round(time.Millisecond), who, verb, args})
	}
	users := []string{"alice", "bob", "carol", "alba", "brad"}
	for _, user := range users {
		p.actions = append(p.actions, action{between(r, 0, 200*time.Millisecond).Round(time.Millisecond), user, "logs_in", []string{one()}})
	}
	for range 8 + r.IntN(8) {
		user := users[r.IntN(len(users))]
		switch r.IntN(14) {
		case 0, 1, 2:
			add(user, "logs_in", several()...)
		case 3:
			add("bob", "uses_backup_code", several()...)
		case 4:
			add(user, "retries", several()...)
		case 5, 6:
			add(user, "logs_out", several()...)
		case 7:
			add(user, "steps_up", several()...)
		case 8:
			add(user, "recovers", several()...)
		case 9:
			add("operator", "ends_sessions_of", user, one())
		case 10:
			add("operator", "changes_role_of", user, one())
		case 11:
			add("operator", "sets_password_of", user, one())
		case 12:
			add("mallory", []string{"guesses", "floods"}[r.IntN(2)], append(several(), several()...)...)
		case 13:
			if r.IntN(4) == 0 {
				add("operator", "ends_all_sessions_of", []string{"acme", "beta"}[r.IntN(2)], one())
			}
		}
	}
	lasting := func(most time.Duration) string {
		return between(r, 50*time.Millisecond, most).Round(time.Millisecond).String()
	}
	for range 1 + r.IntN(4) {
		server := []string{"redis", "redis", "postgres"}[r.IntN(3)]
		switch r.IntN(12) {
		case 0:
			add(one(), "is_cut_off", server, lasting(2500*time.Millisecond))
		case 1, 2, 3:
			add(one(), "hears_nothing_of", server, lasting(4*time.Second))
		case 4:
			add(one(), "is_slow_to", server, lasting(2*time.Second))
		case 5:
			add(one(), "loses_answers_of", server, lasting(2*time.Second))
		case 6:
			add(one(), "crashes", lasting(time.Second))
		case 7:
			add(one(), "stalls", lasting(1500*time.Millisecond))
		case 8:
			add(one(), "jumps", []string{"-4s", "-1s", "1s", "4s"}[r.IntN(4)])
		case 9, 10:
			add([]string{"redis", "postgres"}[r.IntN(2)], "fails_over", lasting(300*time.Millisecond))
		case 11:
			add([]string{"gateway", "receiver"}[r.IntN(2)], "fails", lasting(2*time.Second))
		}
	}
	slices.SortStableFunc(p.actions, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	for i := range p.actions[1:] { // no two at the same time
		p.actions[i+1].at = max(p.actions[i+1].at, p.actions[i].at+time.Millisecond)
	}
	return p
}

// parse reads a plan as String writes it, up to the first empty line. Lines that begin with #
// are comments.
func parse(text string) (p plan, err error) {
	p.duration = 2 * time.Second
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
			return p, nil
		case strings.HasPrefix(line, "#"):
		case f[0] == "seed":
			_, err = fmt.Sscan(f[1], &p.seed)
			p.awaited = slices.Contains(f, "wait_replicas")
		case f[0] == "planted":
			p.planted = strings.Join(f[1:], " ")
		case len(f) < 3 || verbs[f[2]] == nil:
			err = fmt.Errorf("not an action: %q", line)
		default:
			a := action{who: f[1], verb: f[2], args: f[3:]}
			a.at, err = time.ParseDuration(f[0])
			p.actions, p.duration = append(p.actions, a), max(p.duration, a.at+time.Second)
		}
		if err != nil {
			return p, err
		}
	}
	return p, nil
}

func (p plan) String() string {
	text := fmt.Sprintf("seed %d", p.seed)
	if p.awaited {
		text += " wait_replicas"
	}
	if p.planted != "" {
		text += "\nplanted " + p.planted
	}
	for _, a := range p.actions {
		text += "\n" + a.String()
	}
	return text + "\n"
}

// shortest returns a plan without the actions that it fails without.
func (p plan) shortest(fails func(plan) bool) plan {
	for i := len(p.actions) - 1; i >= 0; i-- {
		without := p
		without.actions = slices.Delete(slices.Clone(p.actions), i, i+1)
		if fails(without) {
			p = without
		}
	}
	return p
}
