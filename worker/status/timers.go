package status

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/partitions"
)

const (
	// TimersAtOnce is how many orders one step ends or postpones.
	TimersAtOnce = 64
	timerPage    = 256
	// unreadablePause is until a damaged order with a timer is looked at again.
	unreadablePause = time.Minute
)

// Timers are orders of a partition whose timers have run out.
type Timers struct {
	partitions.Wanted
	ended []timeout
}

type timeout struct {
	order  *delivery.Order
	change delivery.Change
}

// NewTimers is of the orders that are due. The updates up to decided have been.
func NewTimers(partition int, due []delivery.OrderID, decided string) *Timers {
	return &Timers{Wanted: partitions.Wanted{Partition: partition, Reported: due, After: decided}}
}

// Fire adds to the step what becomes of the orders. One of which something was reported that is not
// decided yet stays as it is: what was acknowledged to a fleet before the time-out wins. The step
// fails if anything has been reported since the orders were read.
func (r *Role) Fire(t *Timers, step *partitions.Step, now time.Time) {
	if t.Undecided == nil {
		return
	}

	for i, id := range t.Reported {
		if t.Undecided[id] {
			continue
		}

		order := t.Orders[i]
		if t.Unreadable[id] != nil {
			step.Postpone(id, now.Add(unreadablePause))
			continue
		}

		change, due, next := delivery.Change{}, false, time.Time{}
		if order != nil {
			change, due, next = delivery.DecideTimeout(order, now)
		}

		if due {
			step.TimeOut(order, change)
			t.ended = append(t.ended, timeout{order, change})
		} else {
			step.Postpone(id, next)
		}
	}
}

// Fired counts what a step has ended that was written.
func (r *Role) Fired(t *Timers, began time.Time) {
	for i := range t.ended {
		r.traceTimeout(t.ended[i].order, &t.ended[i].change, began)
		r.metrics.timers.WithLabelValues(string(t.ended[i].change.Failure)).Inc()
	}
}

// closeStores ends migrations, also after a store for which it fails. The script that writes the store
// publishes the notice, once. Its error is the first failure.
func (r *Role) closeStores(ctx context.Context, partition int, now time.Time) error {
	stores, err := r.ledger.Stores.Due(ctx, partition, now, timerPage)
	if err != nil {
		return fmt.Errorf("due stores: %w", err)
	}

	var failure error
	for _, s := range stores {
		err := r.closeStore(ctx, s, now)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		failure = cmp.Or(failure, err)
	}

	return failure
}

func (r *Role) closeStore(ctx context.Context, s *delivery.Store, now time.Time) error {
	if !s.ClosingOver(now) {
		return nil
	}
	if err := delivery.DeactivateStore(s, now); err != nil {
		return fmt.Errorf("close store %s: %w", s.ExternalID, err)
	}

	data := delivery.AppendStoreDeactivated(nil, s.ExternalID, delivery.MigratedToHizliyo)
	err := r.ledger.Stores.Write(ctx, s, accounts.StoreNotice(s, delivery.StoreDeactivated, now, data))
	if errors.Is(err, ledger.ErrConflict) {
		return nil // changed since it was read: the next visit decides again
	}

	if err != nil {
		return fmt.Errorf("close store %s: %w", s.ExternalID, err)
	}

	r.metrics.stores.Inc()
	r.log.Info("store deactivated at the end of its closing day", "account", s.Account, "store", s.ExternalID)

	return nil
}
