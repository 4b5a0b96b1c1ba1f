package status

import (
	"context"
	"errors"
	"fmt"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

const (
	timerPage = 256
	// maxTimerPages bounds one visit, so that one partition's flood does not delay others.
	maxTimerPages = 32
	// housekeepingPage is how many orders one script retires.
	housekeepingPage = 200
	// maxHousekeepingPages bounds one visit to a partition.
	maxHousekeepingPages = 500
)

func (r *Role) fireTimers(ctx context.Context, partition int, now time.Time) error {
	for range maxTimerPages {
		full, err := r.fireOrders(ctx, partition, now)
		if err != nil {
			return err
		}
		if !full {
			break
		}
	}
	return r.closeStores(ctx, partition, now)
}

// fireOrders handles one page; full: there may be more. A page that settled nothing is not full:
// the same orders would come again.
//
// An order with an undecided update is left alone: what was acknowledged to a fleet before the
// time-out wins. The commit compares what comes later.
func (r *Role) fireOrders(ctx context.Context, partition int, now time.Time) (full bool, err error) {
	ids, err := r.ledger.Lifecycle.DueOrders(ctx, partition, now, timerPage)
	if err != nil {
		return false, fmt.Errorf("due orders: %w", err)
	}
	if len(ids) == 0 {
		return false, nil
	}
	orders, err := r.ledger.Orders.GetAll(ctx, ids)
	if err != nil {
		return false, fmt.Errorf("read %d due orders: %w", len(ids), err)
	}
	reported, known, err := r.ledger.Lifecycle.UnsettledUpdates(ctx, partition)
	if err != nil || !known {
		return false, err
	}
	var commits []ledger.Commit
	settled := 0
	for i, order := range orders {
		if reported[ids[i]] {
			continue
		}
		change, due, next := delivery.Change{}, false, time.Time{}
		if order != nil {
			change, due, next = delivery.DecideTimeout(order, now)
		}
		if due {
			commits = append(commits, ledger.Commit{Order: order, Changes: []delivery.Change{change}, Silent: true})
			continue
		}
		if err := r.ledger.Lifecycle.Postpone(ctx, ids[i], next); err != nil {
			return false, fmt.Errorf("postpone order %s: %w", ids[i], err)
		}
		settled++
	}
	ended, err := r.commitTimeouts(ctx, commits)
	return len(ids) == timerPage && settled+ended > 0, err
}

// commitTimeouts counts the orders it ended. The next visit looks at conflicts.
func (r *Role) commitTimeouts(ctx context.Context, commits []ledger.Commit) (ended int, err error) {
	if len(commits) == 0 {
		return 0, nil
	}
	began := time.Now()
	results, err := r.ledger.Lifecycle.Commit(ctx, commits)
	if err != nil {
		return 0, fmt.Errorf("commit %d timeouts: %w", len(commits), err)
	}
	var failures []error
	for i, result := range results {
		switch {
		case result == nil:
			ended++
			r.traceTimeout(commits[i].Order, &commits[i].Changes[0], began)
			r.metrics.timers.WithLabelValues(string(commits[i].Changes[0].Failure)).Inc()
		case errors.Is(result, ledger.ErrConflict), delivery.CodeOf(result) == delivery.CodeOrderNotFound:
		default:
			failures = append(failures, fmt.Errorf("time out order %s: %w", commits[i].Order.ID, result))
		}
	}
	return ended, errors.Join(failures...)
}

// closeStores ends migrations. The script that writes the store publishes the notice, once.
func (r *Role) closeStores(ctx context.Context, partition int, now time.Time) error {
	stores, err := r.ledger.Lifecycle.DueStores(ctx, partition, now, timerPage)
	if err != nil {
		return fmt.Errorf("due stores: %w", err)
	}
	for _, s := range stores {
		if !s.ClosingOver(now) {
			continue
		}
		if err := delivery.DeactivateStore(s, now); err != nil {
			return fmt.Errorf("close store %s: %w", s.ExternalID, err)
		}
		err := r.ledger.Stores.Write(ctx, s, ledger.Notice{
			Account:    s.Account,
			Type:       delivery.StoreDeactivated,
			OccurredAt: now,
			Data:       delivery.AppendStoreDeactivated(nil, s.ExternalID, delivery.MigratedToHizliyo),
		})
		switch {
		case errors.Is(err, ledger.ErrConflict): // changed meanwhile: the next visit decides again
		case err != nil:
			return fmt.Errorf("close store %s: %w", s.ExternalID, err)
		default:
			r.metrics.stores.Inc()
			r.log.Info("store deactivated at the end of its closing day", "account", s.Account, "store", s.ExternalID)
		}
	}
	return nil
}

// tidy retires ended orders past their retention and trims what every group has settled.
func (r *Role) tidy(ctx context.Context, partition int, now time.Time) error {
	endedBefore := now.Add(-r.settings.Retention)
	for range maxHousekeepingPages {
		retired, err := r.ledger.Lifecycle.Retire(ctx, partition, endedBefore, housekeepingPage)
		if err != nil {
			return fmt.Errorf("retire: %w", err)
		}
		r.metrics.retired.Add(float64(retired))
		if retired < housekeepingPage {
			break
		}
	}
	trimmed, err := r.ledger.Lifecycle.Trim(ctx, partition, r.settings.StreamRetention)
	if err != nil {
		return fmt.Errorf("trim: %w", err)
	}
	r.metrics.trimmed.Add(float64(trimmed))
	return nil
}
