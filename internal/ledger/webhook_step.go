package ledger

import (
	"encoding/binary"
	"slices"

	"vendorapi/internal/delivery"
)

// Breaker is an endpoint's circuit breaker as it is stored; times in ms.
type Breaker struct {
	Hold             int64
	Open             bool
	Failures, Probes uint16
	Rate, Calm       float64
	Forward, Since   int64
}

func (c *codec) breaker(b *Breaker) {
	open := byte(0)
	if b.Open {
		open = 1
	}
	hold, forward, since := uint64(b.Hold), uint64(b.Forward), uint64(b.Since)
	c.all(&hold, &open, &b.Failures, &b.Probes, &b.Rate, &b.Calm, &forward, &since)
	b.Hold, b.Open, b.Forward, b.Since = int64(hold), open == 1, int64(forward), int64(since)
}

// Tally counts an endpoint's attempts by the hour, and its events by how they ended.
type Tally struct {
	Hour                                     uint32 // since 1970
	OK, Failed, PreviousOK, PreviousFailed   uint32 // attempts in it and in the one before
	Delivered, Retried, Undelivered, NotSent uint64
}

func (c *codec) tally(t *Tally) {
	var logged uint32 // earlier releases kept the length of the log
	c.all(&t.Hour, &t.OK, &t.Failed, &t.PreviousOK, &t.PreviousFailed, &logged, &t.Delivered, &t.Retried, &t.Undelivered, &t.NotSent)
}

// unpack reads what is stored without a byte for its format; zero if nothing is.
func unpack(stored string, format func(*codec)) {
	if stored != "" {
		format(&codec{fields: fields{rest: stored}})
	}
}

func pack(format func(*codec)) []byte {
	c := codec{writing: true}
	format(&c)
	return c.out
}

// Schedule puts events into an endpoint's schedule: due at Due, with their attempts. spill leaves
// one that is there as it is.
func (s *Step) Schedule(account delivery.AccountID, spill bool, events []Scheduled) {
	for page := range slices.Chunk(events, wordsAtOnce/2) {
		words := []any{"ZADD", s.partition.keyOf(kindRetries, account[:])}
		if spill {
			words = append(words, "NX")
		}
		attempts := []any{"HSET", s.partition.keyOf(kindAttempts, account[:])}
		for _, e := range page {
			words = append(words, e.Due, e.Key)
			if e.Attempts > 0 || e.ReplayedAt > 0 {
				attempts = append(attempts, e.Key, attemptsText(e.Attempts, e.ReplayedAt))
			}
		}
		s.command(words...)
		if len(attempts) > 2 {
			s.command(attempts...)
		}
	}
}

// Unschedule removes events from an endpoint's schedule.
func (s *Step) Unschedule(account delivery.AccountID, keys []string) {
	for page := range slices.Chunk(keys, wordsAtOnce) {
		scheduled, attempts := []any{"ZREM", s.partition.keyOf(kindRetries, account[:])}, []any{"HDEL", s.partition.keyOf(kindAttempts, account[:])}
		for _, key := range page {
			scheduled, attempts = append(scheduled, key), append(attempts, key)
		}
		s.command(scheduled...)
		s.command(attempts...)
	}
}

// EndpointChange is what an owner writes of an endpoint.
type EndpointChange struct {
	Breaker    *Breaker // nil: as it was; the zero value: nothing is held back
	Tally      *Tally   // nil: as it was
	State      EndpointState
	StateSince int64 // ms
	Proven     bool  // a test event signed with the newest secret was accepted
	Probed     bool  // what asked for a probe has been seen
	Waiting    int   // events in memory only; with Tally
}

// Endpoint writes what has changed of an endpoint.
func (s *Step) Endpoint(account delivery.AccountID, c *EndpointChange) {
	key := s.partition.keyOf(kindEndpoint, account[:])
	set, unset := []any{"HSET", key}, []any{"HDEL", key}
	if c.Breaker != nil {
		if *c.Breaker == (Breaker{}) {
			unset = append(unset, "gate")
		} else {
			set = append(set, "gate", pack(func(p *codec) { p.breaker(c.Breaker) }))
		}
	}
	if c.Tally != nil {
		set = append(set, "tally", pack(func(p *codec) { p.tally(c.Tally) }), "waiting", c.Waiting)
	}
	if c.State != "" {
		set = append(set, "state", string(c.State), "since", c.StateSince)
	}
	if c.Proven {
		set = append(set, "proven", "1")
		s.command("HINCRBY", key, "version", 1)
	}
	if c.Probed {
		unset = append(unset, "probe")
	}
	for _, words := range [][]any{set, unset} {
		if len(words) > 2 {
			s.command(words...)
		}
	}
}

// Publish tells the export, and replays, how an event ended (final) or that an attempt has failed.
func (s *Step) Publish(account delivery.AccountID, line []byte, final bool) {
	to := &s.tries
	if final {
		to = &s.outcomes
	}
	*to = append(binary.AppendUvarint(append(*to, account[:]...), uint64(len(line))), line...)
}

// publish writes what has gathered. The exporter makes the stream of tries when it first runs: where
// there is none nobody would ever take them.
func (s *Step) publish() {
	if len(s.outcomes) > 0 {
		s.command("XADD", s.partition.key(kindOutcomes), "*", "o", s.outcomes)
	}
	if len(s.tries) > 0 {
		s.command("XADD", s.partition.key(kindTries), "NOMKSTREAM", "*", "o", s.tries)
	}
}

// Log adds lines to an endpoint's log, the oldest first. kept: how many entries of the log are
// kept. again: the last entry, a failed probe's, is replaced by the line.
func (s *Step) Log(account delivery.AccountID, lines [][]byte, kept int, again bool) {
	key := s.partition.keyOf(kindAttemptLog, account[:])
	if again {
		s.command("LPOP", key) // LSET would fail where somebody has removed the log
		s.command("LPUSH", key, lines[0])
		return
	}
	chunk := lines[0]
	if len(lines) > 1 {
		chunk = []byte{lineChunk}
		for _, line := range lines {
			chunk = append(binary.AppendUvarint(chunk, uint64(len(line))), line...)
		}
	}
	s.command("LPUSH", key, chunk)
	s.command("LTRIM", key, 0, kept-1)
}
