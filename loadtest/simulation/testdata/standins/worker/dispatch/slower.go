package dispatch

import (
	"time"

	"vendorapi/loadtest/simulation/chance"
)

// A worker's loop wakes up to look for what is due. When nothing is due soon it sleeps for as long as the other
// intervals of the simulation.
func (w *Webhooks) Wake() time.Duration {
	wait := w.WakeOriginal()
	if wait < time.Second {
		return wait
	}
	now := w.now().UnixMilli()
	milliseconds := min(w.scheduler.Wake(now)-now, chance.Slower*1000)
	return time.Duration(milliseconds) * time.Millisecond
}

const (
	sendWithin     = chance.Slower * sendWithinOriginal
	refreshEvery   = chance.Slower * refreshEveryOriginal
	summarizeEvery = chance.Slower * summarizeEveryOriginal
)
