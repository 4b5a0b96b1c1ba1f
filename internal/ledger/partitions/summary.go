package partitions

import (
	"time"

	"vendorapi/internal/ledger/core"
)

// summaryStates are the states of a summary, in their order there.
var summaryStates = []EndpointState{EndpointHealthy, EndpointFailing, EndpointUnreachable, EndpointGone}

// summary writes figures by state, or adds them.
func CodeSummary(c *core.Codec, all map[EndpointState]QueueStats) {
	for _, state := range summaryStates {
		sum := all[state]
		endpoints, events, open, oldest := int(sum.Endpoints), int(sum.Events), int(sum.BreakersOpen), sum.Oldest
		c.All(&endpoints, &events, &open, &oldest)
		if c.Writing {
			continue
		}

		sum.Endpoints, sum.Events, sum.BreakersOpen = sum.Endpoints+int64(endpoints), sum.Events+int64(events), sum.BreakersOpen+int64(open)
		if !oldest.IsZero() && (sum.Oldest.IsZero() || oldest.Before(sum.Oldest)) {
			sum.Oldest = oldest
		}

		all[state] = sum
	}
}

const (
	// SummaryLifetime is for how long a summary counts after its owner wrote it.
	SummaryLifetime = 90 * time.Second
	// SummaryEvery is how often an owner writes a summary that has not changed. It leaves
	// time for a takeover before the summary's end.
	SummaryEvery = time.Minute
)

// Summary tells operators what waits for the webhooks of the partition.
func (s *Step) Summary(all map[EndpointState]QueueStats) {
	s.Command("SET", s.Partition.Key(core.KindSummary), core.Encode(func(c *core.Codec) { CodeSummary(c, all) }), "PX", SummaryLifetime.Milliseconds())
}

// QueueStats are the queues of all endpoints in one state.
type QueueStats struct {
	Endpoints    int64 // with something waiting or being sent
	Events       int64
	BreakersOpen int64
	Oldest       time.Time // when the oldest of the next events happened; zero: nothing waits
}
