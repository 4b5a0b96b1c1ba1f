package ledger

import (
	"fmt"
	"testing"

	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// The protocol by which workers own a partition, as a model that is searched whole: three workers look
// at the token, take the partition over, write and leave, at any time, however long one has been
// paused. A call is answered, its answer is lost, or it arrives after its worker has given up waiting.
//
//	idle --look--> hasSeen --take--> owns --write--> owns
//	  ^               |                |---release--> idle
//	  '---- lost, or without an answer '
//
// Time is left out: whoever has seen a token may take the partition over at once, which is more than
// workers allow themselves.

// modelPhase is what a worker knows of a partition.
type modelPhase uint8

const (
	idle modelPhase = iota
	hasSeen
	owns
)

const (
	modelWorkers = 3
	modelWrites  = 3 // the search ends with so many tokens written
)

// modelToken is a Token without positions. Owner 0 is nobody, and the zero token none.
type modelToken struct{ owner, epoch, sequence uint8 }

// token returns what a worker would write.
func (m modelToken) token() partitions.Token {
	token := partitions.Token{Epoch: uint64(m.epoch), Sequence: uint64(m.sequence)}
	if m.owner > 0 {
		token.Owner = fmt.Sprint("worker-", m.owner)
	}
	return token
}

// isLaterThan reports whether a token was written after another one.
func (m modelToken) isLaterThan(other modelToken) bool {
	if m.epoch != other.epoch {
		return m.epoch > other.epoch
	}
	return m.sequence > other.sequence
}

// modelWorker is a worker of the model, with the token that it has seen or written.
type modelWorker struct {
	phase modelPhase
	token modelToken
}

// compareAndReplace is a call of the scripts advance and renew_tokens.
type compareAndReplace struct{ was, next modelToken }

// ownership is a state of the model: what Redis holds, what each worker knows, and a call that its
// worker no longer waits for.
type ownership struct {
	stored   modelToken
	workers  [modelWorkers]modelWorker
	late     compareAndReplace
	hasLate  bool
	releases int // at most one, which keeps the search small
}

// apply is what the scripts do with a call.
func (o ownership) apply(c compareAndReplace) (after ownership, reply string) {
	switch o.stored {
	case c.was:
		o.stored = c.next
		return o, "done"
	case c.next:
		return o, "repeated"
	default:
		return o, "lost"
	}
}

// calls returns what a worker may ask of Redis now, by what it does.
func (o ownership) calls(w int) map[string]compareAndReplace {
	known := o.workers[w]
	next := known.token
	next.sequence++
	switch known.phase {
	case hasSeen:
		next.owner, next.epoch = uint8(w+1), known.token.epoch+1
		return map[string]compareAndReplace{"take": {known.token, next}}
	case owns:
		calls := map[string]compareAndReplace{"write": {known.token, next}}
		if o.releases == 0 {
			next.owner = 0
			calls["release"] = compareAndReplace{known.token, next}
		}
		return calls
	default:
		return nil
	}
}

// knows returns the state in which a worker knows something else.
func (o ownership) knows(w int, phase modelPhase, token modelToken) ownership {
	if phase == idle {
		token = modelToken{}
	}
	o.workers[w] = modelWorker{phase: phase, token: token}
	return o
}

// edge is a step of the model.
type edge struct {
	name  string
	after ownership
	call  compareAndReplace // the zero call: Redis was not asked
	reply string
}

// edges returns every step from a state.
func (o ownership) edges() (all []edge) {
	for w := range modelWorkers {
		name := fmt.Sprint("worker-", w+1)
		look := o.knows(w, hasSeen, o.stored)
		all = append(all, edge{name: name + " looks", after: look})
		if o.workers[w].phase != idle {
			all = append(all, edge{name: name + " ends", after: o.knows(w, idle, modelToken{})})
		}

		for what, call := range o.calls(w) {
			if call.next.sequence > modelWrites {
				continue
			}

			counted := o
			if what == "release" {
				counted.releases++
			}

			after, reply := counted.apply(call)
			answered := after.knows(w, idle, modelToken{})
			if reply == "done" && what != "release" {
				answered = after.knows(w, owns, call.next)
			}

			all = append(all,
				edge{name + " " + what, answered, call, reply},
				edge{name + " " + what + ", and its answer is lost", after.knows(w, idle, modelToken{}), call, reply},
			)

			if !o.hasLate {
				waits := counted.knows(w, idle, modelToken{})
				waits.late, waits.hasLate = call, true
				all = append(all, edge{name: name + " " + what + ", late", after: waits})
			}
		}
	}

	if o.hasLate {
		after, reply := o.apply(o.late)
		after.late, after.hasLate = compareAndReplace{}, false
		all = append(all, edge{"the late call arrives", after, o.late, reply})
	}

	return all
}

// check returns what is wrong with a state, or nothing.
func (o ownership) check() string {
	owners := 0
	for _, worker := range o.workers {
		if worker.phase == owns && worker.token == o.stored {
			owners++
		}
		if worker.phase == owns && worker.token.isLaterThan(o.stored) {
			return "a worker has written what Redis does not hold"
		}
	}

	if owners > 1 {
		return "two workers may write"
	}

	// Whatever has happened, a worker that looks and takes is the owner.
	const anyone = modelWorkers - 1
	seen := o.knows(anyone, hasSeen, o.stored)
	_, reply := seen.apply(seen.calls(anyone)["take"])
	if reply != "done" {
		return "nobody can take the partition over: " + reply
	}

	return ""
}

// No state of the ownership of a partition that three workers can reach has two owners, lets a former
// one write, or keeps out all. Each call of the model is made of real Redis once, by both scripts,
// which must store and answer what the model does.
func TestOwnership_HasOneOwnerInEveryState(t *testing.T) {
	visited := map[ownership]bool{{}: true}
	calls := make(map[compareAndReplace]map[modelToken]string) // the reply by what was stored
	for queue := []ownership{{}}; len(queue) > 0; queue = queue[1:] {
		state := queue[0]
		if wrong := state.check(); wrong != "" {
			t.Fatalf("%s: %+v", wrong, state)
		}

		for _, e := range state.edges() {
			if e.reply == "done" && !e.after.stored.isLaterThan(state.stored) {
				t.Fatalf("%s: a token comes back: %+v to %+v", e.name, state.stored, e.after.stored)
			}

			if e.reply != "" {
				if calls[e.call] == nil {
					calls[e.call] = make(map[modelToken]string)
				}
				calls[e.call][state.stored] = e.reply
			}

			if !visited[e.after] {
				visited[e.after] = true
				queue = append(queue, e.after)
			}
		}
	}

	l := openTest(t)
	made := 0
	for call, replies := range calls {
		for stored, reply := range replies {
			for _, script := range []string{partitions.RenewTokens, partitions.Advance} {
				compareWithRedis(t, l, script, stored, call, reply)
				made++
			}
		}
	}

	t.Logf("%d states, %d calls", len(visited), made)
	check(t, len(visited) > 1000 && made > 100, "%d states and %d calls were tried", len(visited), made)
}

// compareWithRedis makes a call of a script while Redis holds a token, and compares the answer, the
// token and whether the step was written with what the model says.
func compareWithRedis(t *testing.T, l *Ledger, script string, stored modelToken, c compareAndReplace, want string) {
	t.Helper()
	r := l.core.Partitions[0]
	owner, written := r.Key(core.KindOwner), r.Prefix+"written"
	must(t, l.core.Redis.Del(t.Context(), owner, written).Err())
	before := stored.token()
	if stored != (modelToken{}) {
		must(t, l.core.Redis.Set(t.Context(), owner, string(before.Stored()), 0).Err())
	}

	step := l.Ownership.Step(0, c.was.token())
	step.Token = c.next.token()
	if script == partitions.Advance {
		step.Command("INCR", written)
	}

	calls, _ := l.Ownership.Advances([]*partitions.Step{step})
	replies, _ := l.core.RunAll(t.Context(), partitions.Advance, calls)
	values, err := replies[0].Slice()
	must(t, err)

	expected, wantWrites := before, int64(0)
	if want == "done" {
		expected = c.next.token()
		if script == partitions.Advance {
			wantWrites = 1
		}
	}

	after := partitions.Stored(l.core.Redis.Get(t.Context(), owner).Val())
	writes := core.ParseNumber(l.core.Redis.Get(t.Context(), written).Val())
	if core.Text(values[0]) != want || after != expected.Stored() || writes != wantWrites {
		t.Errorf("%s of %+v while %+v is stored: %v, %d writes, and %q is stored; want %s", script, c, stored, values, writes, after, want)
	}
}
