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
	s.watched += min(now.Sub(s.looked), renewEvery)
	s.looked = now
	for p, token := range tokens {
		s.tokens[p].observe(token, s.watched)
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

// quota is this worker's even share of the partitions.
func (s *sharing) quota() int {
	dead, alive := s.gone(takeoverAfter), []string{s.worker}
	for worker := range s.workers {
		if worker != s.worker && !slices.Contains(dead, worker) {
			alive = append(alive, worker)
		}
	}
	slices.Sort(alive)
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
