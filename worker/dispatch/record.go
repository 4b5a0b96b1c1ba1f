package dispatch

import (
	"context"
	"slices"
	"time"

	"vendorapi/internal/ledger"
)

const (
	// recordBatch is how many results one call records at most.
	recordBatch = 128
	// recordTimeout is how long a shutdown waits for an unavailable Redis.
	recordTimeout = 5 * time.Second
)

// recorder writes the results of a partition's attempts: what ends while it writes goes into the
// next batch.
type recorder struct {
	role      *Role
	partition int
	results   chan result
}

// result waits to be recorded; after until its lease may be somebody else's.
type result struct {
	ledger.Result
	until time.Time
}

func newRecorder(r *Role, partition int) *recorder {
	return &recorder{role: r, partition: partition, results: make(chan result, recordBatch)}
}

// run records until the channel is closed, and starts what each record hands out next until leasing
// ends. After sending it waits for Redis for recordTimeout only.
func (c *recorder) run(leasing, sending context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(sending))
	defer cancel()
	stop := context.AfterFunc(sending, func() { time.AfterFunc(recordTimeout, cancel) })
	defer stop()
	r := c.role
	for first := range c.results {
		batch := c.gather(first)
		limit := len(batch)
		if leasing.Err() != nil {
			limit = 0
		}
		until := r.now().Add(r.settings.Lease)
		leased := c.record(ctx, batch, limit)
		r.start(sending, c.partition, leased.Deliveries, until)
		r.freeSlots(len(batch) - len(leased.Deliveries))
		if leased.More || slices.ContainsFunc(batch, func(done result) bool { return !done.Outcome.OK }) {
			r.wakeUp(c.partition) // something may have been put off to a new time
		}
		r.sends.Add(-len(batch))
	}
}

func (c *recorder) gather(first result) []result {
	batch := []result{first}
	for len(batch) < recordBatch {
		select {
		case next, open := <-c.results:
			if !open {
				return batch
			}
			batch = append(batch, next)
		default:
			return batch
		}
	}
	return batch
}

// record tries again while Redis is unavailable and leases last.
func (c *recorder) record(ctx context.Context, batch []result, limit int) (leased ledger.Leased) {
	batch = slices.Clone(batch)
	for pause := 20 * time.Millisecond; len(batch) > 0; pause = min(2*pause, time.Second) {
		err := c.role.protect(func() (failure error) {
			leased, failure = c.recordOnce(ctx, batch, limit)
			return failure
		})
		if err == nil {
			return leased
		}
		limit = 0 // the slots of what it drops are free again soon enough
		select {
		case <-ctx.Done():
			c.giveUp(batch, err)
			return leased
		case <-time.After(pause):
		}
		batch = c.stillLeased(batch, err)
	}
	return leased
}

func (c *recorder) recordOnce(ctx context.Context, batch []result, limit int) (ledger.Leased, error) {
	results := make([]ledger.Result, len(batch))
	for i := range batch {
		results[i] = batch[i].Result
	}
	grant := c.role.grant(len(batch))
	grant.Limit = limit
	recorded, err := c.role.ledger.Queue.Record(ctx, results, grant, c.role.settings.BreakerFailures)
	for _, ok := range recorded.OK {
		if !ok {
			c.role.metrics.leasesLost.Inc()
		}
	}
	return recorded.Leased, err
}

func (c *recorder) stillLeased(batch []result, err error) []result {
	kept := batch[:0]
	for i := range batch {
		if c.role.now().Before(batch[i].until) {
			kept = append(kept, batch[i])
		} else {
			c.giveUp(batch[i:i+1], err)
		}
	}
	return kept
}

func (c *recorder) giveUp(batch []result, err error) {
	for i := range batch {
		d := batch[i].Delivery
		c.role.log.Error("an attempt was not recorded, its event will be sent again", c.role.about(d, "error", err)...)
	}
}
