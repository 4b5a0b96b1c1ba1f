package dispatch

import (
	"context"
	"time"

	"vendorapi/internal/ledger"
)

const (
	// recordBatch is how many results one call records at most.
	recordBatch = 128
	// recordPatience is how long a shutdown waits for the records of attempts
	// while Redis is away; what is not recorded is sent again.
	recordPatience = 5 * time.Second
)

// recorder writes the results of one partition's attempts. What ends while it
// writes goes into the next batch, so that under load Redis settles many with
// one script, and at rest each at once.
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

// run records until the channel is closed. sending is the context of the sends:
// once it has been aborted, a Redis that is away is waited for no longer than
// recordPatience.
func (c *recorder) run(sending context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(sending))
	defer cancel()
	stop := context.AfterFunc(sending, func() { time.AfterFunc(recordPatience, cancel) })
	defer stop()
	for first := range c.results {
		batch := c.gather(first)
		c.record(ctx, batch)
		c.role.settled(c.partition, len(batch))
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

// record writes a batch, and tries again while Redis is away and leases last.
func (c *recorder) record(ctx context.Context, batch []result) {
	for pause := 20 * time.Millisecond; len(batch) > 0; pause = min(2*pause, time.Second) {
		err := c.role.protect(func() error { return c.recordOnce(ctx, batch) })
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			c.giveUp(batch, err)
			return
		case <-time.After(pause):
		}
		batch = c.stillOurs(batch, err)
	}
}

func (c *recorder) recordOnce(ctx context.Context, batch []result) error {
	results := make([]ledger.Result, len(batch))
	for i := range batch {
		results[i] = batch[i].Result
	}
	recorded, err := c.role.ledger.RecordAttempts(ctx, results)
	for _, ok := range recorded {
		if !ok {
			c.role.metrics.leasesLost.Inc()
		}
	}
	return err
}

// stillOurs drops results whose lease has ended.
func (c *recorder) stillOurs(batch []result, err error) []result {
	kept := batch[:0]
	for i := range batch {
		if time.Now().Before(batch[i].until) {
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
		c.role.log.Error("an attempt was not recorded, its event will be sent again",
			"event", d.EventID, "attempt", d.Attempt, "error", err)
	}
}
