package dispatch

import (
	"context"
	"time"

	"vendorapi/internal/ledger"
)

const (
	// leaseBatch is the most that one script hands out.
	leaseBatch = 64
	// leaseTimeout bounds the script. A shutdown does not cancel it: a lease whose answer nobody
	// reads delays its events.
	leaseTimeout = 5 * time.Second
	// maxPause is after when a dead replica's events are found.
	maxPause = time.Second
	// minPause prevents a busy loop while clocks differ.
	minPause     = 10 * time.Millisecond
	failurePause = 250 * time.Millisecond
	// poolShare is which part of the free slots one endpoint may take: with T slots and n slow
	// endpoints about T/(1+n/poolShare) stay free (dynamic thresholds, Choudhury and Hahne, 1998).
	poolShare = 16
)

// dispatch hands out what is due in one partition until leasing ends. In between it sleeps until it
// is woken or something is due.
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

// lease sends as many due deliveries as it has slots, and gives the others back. pause: when to
// look again.
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

// grant is what this process can take with these slots. One endpoint's share shrinks as the pool
// fills.
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
