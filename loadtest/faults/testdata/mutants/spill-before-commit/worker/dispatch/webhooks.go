package dispatch

import (
	"vendorapi/internal/ledger/partitions"
)

// Plan lets the position pass events half a second before they go to the schedule.
func (t *Turn) Plan(step *partitions.Step) *Plan {
	p := t.PlanOriginal(step)
	s := t.webhooks.scheduler
	for i := range s.tail.entries.len() {
		e := s.tail.entries.at(i)
		if e.queuedAt+spillAfter/2 <= s.now {
			step.Token.Webhooks = e.id
		}
	}
	return p
}
