package status

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// maxRounds bounds how often a batch decides again. A conflict needs a cancellation or timer in the
// same millisecond; what still conflicts stays pending.
const maxRounds = 4

// Reasons of a refused update, shown to operators.
const (
	reasonIllegalMove  = "illegal_move"
	reasonLateDelivery = "late_delivery"
	reasonUnknownOrder = "unknown_order"
)

// handle indexes new orders and decides couriers' updates. What it leaves is handed out again.
func (r *Role) handle(ctx context.Context, batch []ledger.Entry) error {
	events, updates := split(batch)
	return r.protect(func() error {
		if len(events) > 0 {
			if err := r.ledger.Lifecycle.IndexJobs(ctx, batch[0].Partition, events); err != nil {
				return fmt.Errorf("index %d new orders: %w", len(events), err)
			}
			r.count(resultIndexed, len(events))
		}
		return r.settle(ctx, groupByOrder(updates))
	})
}

func split(batch []ledger.Entry) (events, updates []ledger.Entry) {
	for _, e := range batch {
		if e.Update == nil {
			events = append(events, e)
		} else {
			updates = append(updates, e)
		}
	}
	return events, updates
}

// reports are the updates of one order in stream order.
type reports struct {
	order   delivery.OrderID
	entries []ledger.Entry
}

func groupByOrder(updates []ledger.Entry) []reports {
	index := make(map[delivery.OrderID]int, len(updates))
	var groups []reports
	for _, e := range updates {
		i, known := index[e.Update.Order]
		if !known {
			i = len(groups)
			index[e.Update.Order] = i
			groups = append(groups, reports{order: e.Update.Order})
		}
		groups[i].entries = append(groups[i].entries, e)
	}
	return groups
}

// settle decides again where somebody else changed the order. The error names what stays pending.
func (r *Role) settle(ctx context.Context, groups []reports) error {
	var left []error
	for round := 0; len(groups) > 0 && round < maxRounds; round++ {
		orders, err := r.ledger.Orders.GetAll(ctx, orderIDs(groups))
		if err != nil {
			return fmt.Errorf("read %d orders: %w", len(groups), err)
		}
		outcomes, defects := r.decideAll(groups, orders, time.Now())
		left = append(left, defects)
		groups, err = r.commit(ctx, outcomes)
		if err != nil {
			return errors.Join(append(left, err)...)
		}
	}
	if len(groups) > 0 {
		left = append(left, fmt.Errorf("%d orders kept changing, their updates stay pending: %w", len(groups), ledger.ErrConflict))
	}
	return errors.Join(left...)
}

func orderIDs(groups []reports) []delivery.OrderID {
	ids := make([]delivery.OrderID, len(groups))
	for i, g := range groups {
		ids[i] = g.order
	}
	return ids
}

type outcome struct {
	reports
	commit  ledger.Commit // nothing to commit when it has no change and no swap
	results []string      // per entry
	refused []refusal
	began   time.Time
}

type refusal struct {
	entry  ledger.Entry
	status delivery.Status
	reason string
}

func (v *outcome) commits() bool { return len(v.commit.Changes) > 0 || v.commit.Swap != nil }

// decideAll leaves out an order whose decision panics, and names it in defects.
func (r *Role) decideAll(groups []reports, orders []*delivery.Order, now time.Time) (outcomes []outcome, defects error) {
	outcomes = make([]outcome, 0, len(groups))
	for i, g := range groups {
		err := r.protect(func() error {
			outcomes = append(outcomes, r.decideGroup(g, orders[i], now))
			return nil
		})
		if err != nil {
			defects = errors.Join(defects, fmt.Errorf("updates of order %s: %w", g.order, err))
			r.count(resultFailed, len(g.entries))
		}
	}
	return outcomes, defects
}

func (r *Role) decideGroup(g reports, order *delivery.Order, now time.Time) outcome {
	v := outcome{reports: g, results: make([]string, len(g.entries)), began: now}
	if order == nil {
		for i, e := range g.entries {
			v.refuse(i, e, 0, reasonUnknownOrder)
		}
		return v
	}
	v.commit.Order = order
	state := *order
	for i, e := range g.entries {
		decision := r.decide(&state, *e.Update, now)
		switch decision.Action {
		case delivery.Move:
			v.results[i] = resultMoved
			v.commit.Changes = append(v.commit.Changes, decision.Changes...)
			advance(&state, decision.Changes)
		case delivery.Swap:
			v.results[i] = resultSwapped
			v.commit.Swap = &e.Update.Courier
			state.Courier = e.Update.Courier
		case delivery.Drop:
			v.results[i] = resultDropped
		default:
			reason := reasonIllegalMove
			if delivery.LateDelivery(&state, *e.Update) {
				reason = reasonLateDelivery
			}
			v.refuse(i, e, state.Status, reason)
			continue
		}
		v.commit.Settles = append(v.commit.Settles, e)
	}
	return v
}

func (v *outcome) refuse(i int, e ledger.Entry, status delivery.Status, reason string) {
	v.results[i] = resultRefused
	v.refused = append(v.refused, refusal{entry: e, status: status, reason: reason})
}

// advance applies changes to a copy: the commit compares the order as read.
func advance(state *delivery.Order, changes []delivery.Change) {
	last := changes[len(changes)-1]
	state.Changes = append(slices.Clip(state.Changes), changes...)
	state.Version += uint64(len(changes))
	state.Status = last.Status
	state.Courier = last.Courier
	state.Location = last.Location
}

// commit returns the orders that must be decided again. Refusals and drops are settled only after
// the commit they rest on.
func (r *Role) commit(ctx context.Context, outcomes []outcome) (again []reports, err error) {
	var commits []ledger.Commit
	var committed []int // index into outcomes
	for i := range outcomes {
		if outcomes[i].commits() {
			commits = append(commits, outcomes[i].commit)
			committed = append(committed, i)
		}
	}
	var results []error
	if len(commits) > 0 {
		if results, err = r.ledger.Lifecycle.Commit(ctx, commits); err != nil {
			return nil, fmt.Errorf("commit %d orders: %w", len(commits), err)
		}
	}
	unsettled := map[int]bool{}
	var failures []error
	for n, result := range results {
		v := &outcomes[committed[n]]
		switch {
		case result == nil:
			continue
		case errors.Is(result, ledger.ErrConflict), delivery.CodeOf(result) == delivery.CodeOrderNotFound:
			// Deciding again settles both: an order that is gone reads as nil.
			again = append(again, v.reports)
			r.count(resultConflict, len(v.entries))
		default:
			failures = append(failures, fmt.Errorf("commit order %s: %w", v.order, result))
			r.count(resultFailed, len(v.entries))
		}
		unsettled[committed[n]] = true
	}
	for i := range outcomes {
		if unsettled[i] {
			continue
		}
		if err := r.conclude(ctx, &outcomes[i]); err != nil {
			failures = append(failures, err)
		}
	}
	return again, errors.Join(failures...)
}

func (r *Role) conclude(ctx context.Context, v *outcome) error {
	if !v.commits() && len(v.commit.Settles) > 0 {
		if err := r.ledger.Streams.Ack(ctx, ledger.RoleStatus, v.commit.Settles...); err != nil {
			return fmt.Errorf("acknowledge %d dropped updates: %w", len(v.commit.Settles), err)
		}
	}
	for _, f := range v.refused {
		if err := r.ledger.Lifecycle.RefuseUpdate(ctx, f.entry, f.status, f.reason, f.reason == reasonLateDelivery); err != nil {
			return fmt.Errorf("refuse an update of order %s: %w", v.order, err)
		}
		r.metrics.refused.WithLabelValues(f.reason).Inc()
		r.log.Info("update refused", r.about(v, "status", f.status, "reported", f.entry.Update.Status, "reason", f.reason)...)
	}
	now := time.Now()
	for i, result := range v.results {
		r.count(result, 1)
		if result == resultMoved {
			r.metrics.decision.Observe(now.Sub(v.entries[i].Update.At).Seconds())
		}
	}
	r.trace(v, now)
	return nil
}

func (r *Role) count(result string, n int) {
	r.metrics.entries.WithLabelValues(result).Add(float64(n))
}
