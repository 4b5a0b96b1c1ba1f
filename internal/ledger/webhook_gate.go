package ledger

import (
	"math"
	"time"
)

// readGate reads what keeps an endpoint's queue back; lua/gate.lua writes it.
func (e *WebhookEndpoint) readGate(gate string) {
	if gate == "" {
		return
	}
	f := fields{rest: gate}
	e.HeldUntil = timeOf(int64(f.uint64()))
	e.BreakerOpen = f.byte() == 1
	f.take(4) // failures, probes
	e.Pace = math.Round(f.float()*10) / 10
	f.take(16) // calm, forward
	if since := timeOf(int64(f.uint64())); e.BreakerOpen {
		e.BreakerSince = since
	}
}

// readTally reads an endpoint's figures; lua/attempts.lua writes them. Attempts
// of hours that are over by now are not recent.
func (e *WebhookEndpoint) readTally(tally string, now time.Time) {
	if tally == "" {
		return
	}
	f := fields{rest: tally}
	hour := int64(f.uint32())
	ok, failed := int64(f.uint32()), int64(f.uint32())
	previousOK, previousFailed := int64(f.uint32()), int64(f.uint32())
	f.take(4) // bytes of the log
	e.Delivered, e.Retried = int64(f.uint64()), int64(f.uint64())
	e.Undelivered, e.NotSent = int64(f.uint64()), int64(f.uint64())
	switch now.UnixMilli()/time.Hour.Milliseconds() - hour {
	case 0:
		e.RecentOK, e.RecentFailed = ok+previousOK, failed+previousFailed
	case 1:
		e.RecentOK, e.RecentFailed = ok, failed
	}
}
