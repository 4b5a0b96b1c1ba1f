package owner

import (
	"slices"
	"time"

	"vendorapi/internal/ledger"
)

const (
	// takeoverAfter is how long a token must have stood still, by this process's own monotonic
	// clock, before its owner counts as gone. Owners renew theirs every renewEvery, and begin no
	// send later than sendWithin after the last write that was confirmed.
	takeoverAfter = 3 * time.Second
	renewEvery    = 700 * time.Millisecond

	// renewTogether is how old a token must be to be renewed along with one that is due.
	renewTogether = renewEvery / 2

	// lookEvery is how often the tokens are read while nothing has changed among the workers.
	lookEvery = time.Second
	// watchedAtOnce bounds the time that one look counts as watched. It is a little more than
	// lookEvery, so that all time counts while looks succeed.
	watchedAtOnce = lookEvery + 2*pollEvery
	// suspectAfter is how long an owner's count stands still until the tokens are read at every
	// poll: two missed heartbeats. It only makes this worker look more often; takeoverAfter decides.
	suspectAfter = 2 * beatEvery
)

// sharing is what a worker knows of the others, and of the partitions that they own. No clock but
// the process's own decides: one that jumps orphans no partition, and takes none away. Nor does time
// count in which it could not look: while Redis is silent, nobody can renew.
type sharing struct {
	worker  string
	tokens  []observed[ledger.Stored] // by partition
	workers map[string]*observed[string]
	looked  time.Time     // the last time
	watched time.Duration // for so long it has looked

	// These say when the tokens are read the next time.
	lookAgain bool                 // at the next poll
	lastLook  time.Time            // zero: never
	released  string               // the count of releases at the last poll
	beats     map[string]beatsSeen // by worker, at the last poll
	owners    map[string]bool      // the other workers that had partitions at the last look
}

// beatsSeen is a worker's count and when this process has first seen it.
type beatsSeen struct {
	count string
	since time.Time
}

// shouldLook takes note of the list of workers, and reports whether the tokens must be read now: when a
// worker has come, gone or given something up, while an owner may be dead, and every lookEvery.
func (s *sharing) shouldLook(workers map[string]string, released string, now time.Time) bool {
	changed := released != s.released || len(workers) != len(s.beats)
	beats := make(map[string]beatsSeen, len(workers))
	for worker, count := range workers {
		seen, known := s.beats[worker]
		changed = changed || !known
		if !known || seen.count != count {
			seen = beatsSeen{count: count, since: now}
		}
		beats[worker] = seen
	}
	s.released, s.beats = released, beats

	suspected := false
	for owner := range s.owners {
		seen, known := beats[owner]
		if !known || now.Sub(seen.since) >= suspectAfter {
			suspected = true
		}
	}

	due := s.lookAgain || changed || suspected || s.lastLook.IsZero() || now.Sub(s.lastLook) >= lookEvery
	if due {
		s.lastLook = now
	}
	return due
}

type observed[T comparable] struct {
	value T
	since time.Duration // as watched
}

func (o *observed[T]) observe(value T, now time.Duration) {
	if o.value != value {
		*o = observed[T]{value, now}
	}
}

// observe takes note of what is stored now.
func (s *sharing) observe(tokens []ledger.Stored, workers map[string]string, now time.Time) {
	if s.tokens == nil {
		s.tokens, s.workers, s.looked = make([]observed[ledger.Stored], len(tokens)), make(map[string]*observed[string]), now
	}
	s.watched += min(now.Sub(s.looked), watchedAtOnce)
	s.looked = now
	for p, token := range tokens {
		s.tokens[p].observe(token, s.watched)
	}
	s.owners = make(map[string]bool)
	for _, seen := range tokens {
		token, err := seen.Token()
		if err == nil && token.Owner != "" && token.Owner != s.worker {
			s.owners[token.Owner] = true
		}
	}
	for worker, count := range workers {
		if s.workers[worker] == nil {
			s.workers[worker] = new(observed[string])
		}
		s.workers[worker].observe(count, s.watched)
	}
	for worker := range s.workers {
		if _, there := workers[worker]; !there {
			delete(s.workers, worker)
		}
	}
}

// gone are the workers whose counts have stood still for so long.
func (s *sharing) gone(after time.Duration) (workers []string) {
	for worker, seen := range s.workers {
		if s.watched-seen.since >= after && worker != s.worker {
			workers = append(workers, worker)
		}
	}
	return workers
}

// alive lists the workers that share the partitions, this one among them, in their order.
func (s *sharing) alive() []string {
	dead, alive := s.gone(takeoverAfter), []string{s.worker}
	for worker := range s.workers {
		if worker != s.worker && !slices.Contains(dead, worker) {
			alive = append(alive, worker)
		}
	}
	slices.Sort(alive)
	return alive
}

// isFirst reports whether this worker is the first, by name, of those that it sees alive. While
// workers come and go, two may see themselves as the first, or none.
func (s *sharing) isFirst() bool { return s.alive()[0] == s.worker }

// quota is this worker's even share of the partitions.
func (s *sharing) quota() int {
	alive := s.alive()
	quota := len(s.tokens) / len(alive)
	if slices.Index(alive, s.worker) < len(s.tokens)%len(alive) {
		quota++
	}
	return quota
}

// plan says which partitions to take, and how many of those held to give up. What an owner that is
// gone has left is taken at once, and spread evenly after that.
func (s *sharing) plan(held map[int]bool) (take []int, giveUp int) {
	quota := s.quota()
	var free []int
	for p := range s.tokens {
		seen := &s.tokens[p]
		token, err := seen.value.Token()
		switch {
		case err != nil || held[p]:
		case token.Owner == s.worker, token.Owner != "" && s.watched-seen.since >= takeoverAfter:
			take = append(take, p)
		case token.Owner == "":
			free = append(free, p)
		}
	}
	more := max(quota-len(held)-len(take), 0)
	take = append(take, free[:min(more, len(free))]...)
	return take, max(len(held)-quota, 0)
}
