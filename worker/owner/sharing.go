package owner

import (
	"maps"
	"slices"
	"time"

	"vendorapi/internal/ledger/partitions"
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

	// leftAloneAfter is how long a partition stays free until whoever can takes it beyond its share. The
	// worker that it is meant for has then left it alone, although it beats.
	leftAloneAfter = 2 * takeoverAfter
	// firstKept and longestKept bound how long a partition that others have left alone is not given up to
	// them again. The time doubles each time.
	firstKept   = 30 * time.Second
	longestKept = 15 * time.Minute
)

// A standing is what a worker may claim.
type standing int

const (
	// ready is a worker with an even share.
	ready standing = iota
	// standsBack is a worker that has failed at several partitions a short time ago. It keeps what it can work
	// on and takes only what nobody else has taken for long.
	standsBack
	// unfit is a worker that lacks rights: it takes nothing and gives everything up.
	unfit
)

// sharing is what a worker knows of the others, and of the partitions that they own. No clock but
// the process's own decides: one that jumps orphans no partition, and takes none away. Nor does time
// count in which it could not look: while Redis is silent, nobody can renew.
type sharing struct {
	worker  string
	tokens  []seenToken // by partition
	workers map[string]*observed[string]
	looked  time.Time     // the last time
	watched time.Duration // for so long it has looked

	// kept are the partitions that others have left alone.
	kept map[int]keeping

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

// seenToken is a partition's token as this worker has seen it.
type seenToken struct {
	value partitions.Stored
	// known is false when the last look did not read it: its master did not answer.
	known bool
	// still is for how long it has been watched without a change. No time counts during which its master did
	// not answer: nobody could renew it.
	still    time.Duration
	lookedAt time.Time
}

// watch takes note of what a look has read.
func (t *seenToken) watch(value partitions.Stored, known bool, now time.Time) {
	switch {
	case !known:
	case t.lookedAt.IsZero() || t.value != value:
		t.still = 0
	case t.known:
		t.still += min(now.Sub(t.lookedAt), watchedAtOnce)
	}

	if known {
		t.value, t.lookedAt = value, now
	}

	t.known = known
}

// keeping says until when a partition is not given up, and for how long that was meant.
type keeping struct {
	until time.Duration // as watched
	time  time.Duration
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

// observe takes note of what is stored now. tokens has those that could be read.
func (s *sharing) observe(partitions int, tokens map[int]partitions.Stored, workers map[string]string, now time.Time) {
	if s.tokens == nil {
		s.tokens, s.workers, s.looked = make([]seenToken, partitions), make(map[string]*observed[string]), now
		s.kept = make(map[int]keeping)
	}

	s.watched += min(now.Sub(s.looked), watchedAtOnce)
	s.looked = now

	s.owners = make(map[string]bool)
	for p := range s.tokens {
		value, known := tokens[p]
		s.tokens[p].watch(value, known, now)
		token, err := value.Token()
		if err == nil && token.Owner != "" && token.Owner != s.worker {
			s.owners[token.Owner] = true
		}
	}

	for worker := range workers {
		if s.workers[worker] == nil && worker != s.worker {
			clear(s.kept) // a new worker may be able to work on what others have left alone
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

// plan says which partitions to take, and which of those held to give up. What an owner that is gone has left
// is taken at once, and spread evenly after that. What has stayed free for long is taken by whoever is
// first, whatever its share. The partitions to avoid are treated as by a worker that stands back. A worker that is
// alone does what it can.
func (s *sharing) plan(held map[int]bool, can standing, avoid map[int]bool) (take, giveUp []int) {
	if len(s.alive()) == 1 {
		can, avoid = ready, nil
	}

	if can == unfit {
		return nil, slices.Sorted(maps.Keys(held))
	}

	var free, leftAlone []int
	for p := range s.tokens {
		seen := &s.tokens[p]
		token, err := seen.value.Token()
		mayClaim := can == ready && !avoid[p]
		patience, freePatience := takeoverAfter, leftAloneAfter
		if !mayClaim {
			patience, freePatience = 2*takeoverAfter, leftAloneAfter+takeoverAfter/2
		}

		switch {
		case err != nil || held[p] || !seen.known:
		case token.Owner == s.worker && mayClaim, token.Owner != "" && seen.still >= patience:
			take = append(take, p)
		case token.Owner == "" && seen.still >= freePatience:
			leftAlone = append(leftAlone, p)
		case token.Owner == "" && mayClaim:
			free = append(free, p)
		}
	}

	quota := s.quota()
	if can == ready {
		more := max(quota-len(held)-len(take)-len(leftAlone), 0)
		giveUp = s.beyond(held, len(held)-quota)
		take = append(take, free[:min(more, len(free))]...)
	}

	for _, p := range leftAlone {
		if s.watched >= s.kept[p].until {
			s.keep(p)
		}
	}

	return append(take, leftAlone...), giveUp
}

// keep notes that others have left a partition alone.
func (s *sharing) keep(partition int) {
	longer := min(max(2*s.kept[partition].time, firstKept), longestKept)
	s.kept[partition] = keeping{until: s.watched + longer, time: longer}
}

// beyond chooses so many of the partitions held, none of which others have left alone a short time ago.
func (s *sharing) beyond(held map[int]bool, count int) (chosen []int) {
	for _, p := range slices.Sorted(maps.Keys(held)) {
		if len(chosen) < count && s.watched >= s.kept[p].until {
			chosen = append(chosen, p)
		}
	}
	return chosen
}
