package dispatch

import "vendorapi/internal/ledger"

// Write lets the position pass events half a second before they go to the schedule.
func (w *Webhooks) Write(step *ledger.Step) {
	w.WriteOriginal(step)
	s := w.scheduler
	for i := range s.entries.len() {
		e := s.entries.at(i)
		if e.came+spillAfter/2 <= s.seen {
			step.Token.Webhooks = e.ID
		}
	}
}
