package closing

import (
	"cmp"
	"regexp"
	"slices"
	"time"
)

const (
	// failuresAtOnce ends a look: a target that is away is not asked for each of its sets.
	failuresAtOnce = 3

	// permanentPause is how long a set waits after an error that will not pass by itself. Each attempt may
	// read all files of the set that are at the target.
	permanentPause = time.Hour
)

// attempts decides which work of a queue is tried next, and which of its failures are news. Work that
// fails each time takes no turn from other work: what was tried longest ago comes first.
//
// It is kept in memory: after a restart everything is tried at once.
type attempts struct {
	count   int // of all attempts
	last    map[string]int
	paused  map[string]time.Time // since when
	reasons map[string][]string
}

func newAttempts() *attempts {
	return &attempts{last: map[string]int{}, paused: map[string]time.Time{}, reasons: map[string][]string{}}
}

// order returns the keys that may be tried now: those that never were in the given order, then the others,
// the longest untried first.
func (a *attempts) order(keys []string, now time.Time) []string {
	var next []string
	for _, key := range keys {
		if !a.isPaused(key, now) {
			next = append(next, key)
		}
	}

	slices.SortStableFunc(next, func(x, y string) int { return cmp.Compare(a.last[x], a.last[y]) })
	return next
}

// begin counts an attempt.
func (a *attempts) begin(key string) {
	a.count++
	a.last[key] = a.count
}

// succeeded forgets what was known of finished work.
func (a *attempts) succeeded(key string) {
	delete(a.last, key)
	delete(a.paused, key)
	delete(a.reasons, key)
}

// pause keeps work from being tried for permanentPause.
func (a *attempts) pause(key string, now time.Time) { a.paused[key] = now }

// isPaused does not count pauses that begin later than now: the clock was changed.
func (a *attempts) isPaused(key string, now time.Time) bool {
	since, hasPause := a.paused[key]
	elapsed := now.Sub(since)
	return hasPause && elapsed >= 0 && elapsed < permanentPause
}

// isNews reports whether work has not failed for this reason before. recorded is the reason that was
// recorded of it, perhaps by another process; empty: none was.
func (a *attempts) isNews(key, reason, recorded string) bool {
	reason = withoutDetails(reason)
	isKnown := slices.Contains(a.reasons[key], reason)
	if !isKnown {
		a.reasons[key] = append(a.reasons[key], reason)
	}
	return !isKnown && reason != withoutDetails(recorded)
}

// details are what differs between two failures for the same reason: ports, sizes, times, and the random
// names of unfinished files.
var details = regexp.MustCompile(`\.part-[A-Z2-7]+|[0-9]+`)

func withoutDetails(reason string) string { return details.ReplaceAllString(reason, "0") }
