package judge

import "fmt"

// checkRemains: what consumers were handed is settled, nobody holds a lease, and
// what still waits for a webhook waits for a receiver that is not well, within
// sight of the workers.
func (c *courtCase) checkRemains() {
	for _, u := range c.facts.Unsettled {
		c.violated(PendingLeft, fmt.Sprintf("%d entries are unread and %d pending", u.Unread, u.Pending), u.Stream, u.Group)
	}
	for i := range c.facts.Accounts {
		a := &c.facts.Accounts[i]
		w := c.remains[a.ID]
		if w == nil {
			continue
		}
		waits := len(w.Queued) + len(w.Waiting) + len(w.Leased)
		if waits > 0 && !w.Scheduled {
			c.violated(ScheduleLeft, fmt.Sprintf("%d events wait and no worker will look at them", waits), a.ID)
		}
		if a.Receiver == Dead {
			continue
		}
		if len(w.Leased) > 0 {
			c.violated(LeaseLeft, fmt.Sprintf("%d events are leased: %v", len(w.Leased), some(w.Leased)), a.ID)
		}
		if len(w.Queued) > 0 {
			c.violated(ScheduleLeft, fmt.Sprintf("%d events were never attempted: %v", len(w.Queued), some(w.Queued)), a.ID)
		}
		if len(w.Waiting) > 0 && a.Receiver != Disturbed {
			c.violated(ScheduleLeft, fmt.Sprintf("%d events wait for another attempt: %v", len(w.Waiting), some(w.Waiting)), a.ID)
		}
		if len(w.Waiting) == 0 && w.Counts > 0 {
			c.violated(ScheduleLeft, fmt.Sprintf("%d counts of attempts are kept for events that do not wait", w.Counts), a.ID)
		}
	}
	c.report.DeadLetters = len(c.facts.DeadLetters)
	for _, d := range c.facts.DeadLetters {
		c.violated(DeadLettered, fmt.Sprintf("an entry of %s was given up by %s: %s", d.Stream, d.Role, d.Reason), d.Order)
	}
}

// some are the first few, for a sentence.
func some(names []string) []string { return names[:min(len(names), 3)] }
