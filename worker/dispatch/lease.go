package dispatch

import (
	"context"
	"time"

	"vendorapi/internal/ledger"
)

const (
	// leaseBatch is how many deliveries one script hands out at most.
	leaseBatch = 64
	// leaseTimeout bounds the script; it is not cancelled by a shutdown,
	// because a lease whose answer nobody reads delays its events.
	leaseTimeout = 5 * time.Second
	// maxPause is the longest a partition goes unlooked at: what a dead
	// replica had queued or leased is found after that.
	maxPause = time.Second
	// minPause keeps a `next` that has already passed while nothing is handed
	// out, as when the clocks differ, from becoming a busy loop.
	minPause = 10 * time.Millisecond
	// failurePause is the pause after Redis did not answer.
	failurePause = 250 * time.Millisecond
	// poolShare is which part of the free slots one endpoint may take. With T slots and n endpoints
	// that are slow and have a backlog, about T/(1+n/poolShare) slots stay free for all others, so
	// slow endpoints never fill the pool whatever their number up to T; the rule is that of dynamic
	// thresholds in shared-memory switches (Choudhury and Hahne, 1998).
	poolShare = 16
)

// dispatch hands out what is due in one partition until leasing ends. Between
// two looks it sleeps until woken (something was queued or recorded here) or
// until the ledger expects something to be due.
func (r *Role) dispatch(leasing, sending context.Context, partition int) error {
	failing := false
	for r.takeSlot(leasing) {
		slots := 1 + r.takeMoreSlots(leaseBatch-1)
		pause, err := r.lease(leasing, sending, partition, slots)
		if err != nil && !failing && leasing.Err() == nil {
			r.log.Warn("leasing fails, going on", "partition", partition, "error", err)
		}
		if err == nil && failing {
			r.log.Info("leasing works again", "partition", partition)
		}
		failing = err != nil
		r.sleep(leasing, partition, pause)
	}
	return nil
}

// lease takes at most so many deliveries as it was given slots and starts to send each; unused
// slots are given back. pause is how long nothing more is expected; zero: look again at once.
func (r *Role) lease(leasing, sending context.Context, partition, slots int) (pause time.Duration, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(leasing), leaseTimeout)
	defer cancel()
	until := r.now().Add(r.settings.Lease)
	var (
		due  []*ledger.Delivery
		next time.Time
	)
	err = r.protect(func() (failure error) {
		due, next, failure = r.ledger.Queue.Lease(ctx, partition, r.grant(slots))
		return failure
	})
	r.start(sending, partition, due, until)
	r.freeSlots(slots - len(due))
	wait := next.Sub(r.now())
	switch {
	case err != nil:
		return failurePause, err
	case next.IsZero():
		return maxPause, nil
	case wait <= 0 && len(due) > 0:
		return 0, nil // more is due, and slots bound how long this goes on
	}
	return min(max(wait, minPause), maxPause), nil
}

// grant is what this process can take on with the slots it has just taken. One endpoint's share is
// its limit while the pool is empty, and less and less as it fills (see poolShare).
func (r *Role) grant(taken int) ledger.Grant {
	free := cap(r.slots) - len(r.slots) + taken
	return ledger.Grant{Limit: taken, Share: max(free/poolShare, 1), InFlight: r.settings.PerEndpoint,
		Lease: r.settings.Lease, Holder: r.consumer}
}

func (r *Role) sleep(ctx context.Context, partition int, pause time.Duration) {
	if pause == 0 {
		return
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	case <-r.wake[partition]:
	}
}

// takeSlot waits for a slot; false when ctx has ended.
func (r *Role) takeSlot(ctx context.Context) bool {
	if ctx.Err() != nil {
		return false
	}
	select {
	case r.slots <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// takeMoreSlots takes up to n slots that are free right now.
func (r *Role) takeMoreSlots(n int) (taken int) {
	for ; taken < n; taken++ {
		select {
		case r.slots <- struct{}{}:
		default:
			return taken
		}
	}
	return taken
}

func (r *Role) freeSlots(n int) {
	for range n {
		<-r.slots
	}
}
