package status

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/service"
)

// Reasons of a refused update, shown to operators.
const (
	reasonIllegalMove  = "illegal_move"
	reasonLateDelivery = "late_delivery"
	reasonUnknownOrder = "unknown_order"
)

// Batch is one step of a partition in the making: what has come in, the orders that it is about,
// and what was decided of them.
type Batch struct {
	partitions.Wanted
	inbox     *partitions.Inbox
	groups    []reports
	decisions []decision
	dead      []partitions.Unreadable // to the dead letters
}

// reports are the updates of one order in stream order.
type reports struct {
	order   delivery.OrderID
	updates []*delivery.Update
}

type decision struct {
	reports
	read    *delivery.Order
	changes []delivery.Change
	results []string // per update
	refused []refusal
	began   time.Time
}

type refusal struct {
	update *delivery.Update
	status delivery.Status
	reason string
}

// NewBatch names the orders that must be read to decide what has come in.
func NewBatch(in *partitions.Inbox) *Batch {
	b := &Batch{inbox: in, Wanted: partitions.Wanted{Partition: in.Partition}}
	index := make(map[delivery.OrderID]int)
	for _, e := range in.Entries {
		for _, event := range e.Events {
			if delivery.Sequence(event.Version) == 1 {
				b.New = append(b.New, event.Order)
			}
		}

		if e.Update == nil {
			continue
		}

		i, known := index[e.Update.Order]
		if !known {
			i = len(b.groups)
			index[e.Update.Order] = i
			b.groups = append(b.groups, reports{order: e.Update.Order})
			b.Reported = append(b.Reported, e.Update.Order)
		}

		b.groups[i].updates = append(b.groups[i].updates, e.Update)
	}

	return b
}

// Decide adds to the step what becomes of the batch, whose orders have been read: new orders are
// listed, updates move their orders or are refused. It may be repeated with orders read again.
func (r *Role) Decide(b *Batch, step *partitions.Step, now time.Time) {
	for _, o := range b.News {
		if o != nil {
			step.List(o)
		}
	}

	b.decisions = b.decisions[:0]
	b.dead = b.inbox.Unreadable
	for i, g := range b.groups {
		err := b.Unreadable[g.order]
		if err == nil {
			err = service.Protect(r.metrics.panics, func() error {
				b.decisions = append(b.decisions, r.decideGroup(g, b.Orders[i], now))
				return nil
			})
		}

		if err != nil {
			b.dead = append(slices.Clip(b.dead), b.undecided(g, err)...)
		}
	}

	for i := range b.decisions {
		d := &b.decisions[i]
		if len(d.changes) > 0 {
			step.Change(d.read, d.changes)
		}
		for _, f := range d.refused {
			step.Refuse(f.update, f.status, f.reason, f.reason == reasonLateDelivery)
		}
	}

	for _, e := range b.dead {
		step.DeadLetter(e, ledger.RoleStatus)
	}
}

// undecided are the entries of an order whose record is damaged, or whose decision panics.
func (b *Batch) undecided(g reports, err error) (entries []partitions.Unreadable) {
	for _, e := range b.inbox.Entries {
		if e.Update != nil && slices.Contains(g.updates, e.Update) {
			entries = append(entries, e.Undecided(fmt.Sprintf("updates of order %s: %v", g.order, err)))
		}
	}
	return entries
}

func (r *Role) decideGroup(g reports, order *delivery.Order, now time.Time) decision {
	d := decision{reports: g, read: order, results: make([]string, len(g.updates)), began: now}
	if order == nil {
		for i, u := range g.updates {
			d.refuse(i, u, 0, reasonUnknownOrder)
		}
		return d
	}

	state := *order
	for i, u := range g.updates {
		decided := r.decide(&state, *u, now)
		switch decided.Action {
		case delivery.Move:
			d.results[i] = resultMoved
		case delivery.Swap:
			d.results[i] = resultSwapped
		case delivery.Revise:
			d.results[i] = resultRevised
		case delivery.Drop:
			d.results[i] = resultDropped
		default:
			reason := reasonIllegalMove
			if delivery.LateDelivery(&state, *u) {
				reason = reasonLateDelivery
			}
			d.refuse(i, u, state.Status, reason)
		}

		if len(decided.Changes) > 0 {
			d.changes = append(d.changes, decided.Changes...)
			apply(&state, decided.Changes)
		}
	}

	return d
}

func (d *decision) refuse(i int, u *delivery.Update, status delivery.Status, reason string) {
	d.results[i] = resultRefused
	d.refused = append(d.refused, refusal{u, status, reason})
}

// apply changes a copy: the step compares the order as it was read.
func apply(state *delivery.Order, changes []delivery.Change) {
	last := changes[len(changes)-1]
	state.Changes = append(slices.Clip(state.Changes), changes...)
	state.Version += uint64(len(changes))
	state.Status = last.Status
	state.Courier = last.Courier
	state.Location = last.Location
}

// Written counts and logs a batch whose step was written.
func (r *Role) Written(b *Batch) {
	now := time.Now()
	r.count(resultIndexed, len(b.New))
	r.count(resultFailed, len(b.dead))
	for _, e := range b.dead {
		r.log.Error("entry moved to the dead letters", "partition", b.Partition, "entry", e.ID, "reason", e.Reason)
	}

	for i := range b.decisions {
		d := &b.decisions[i]
		for _, f := range d.refused {
			r.metrics.refused.WithLabelValues(f.reason).Inc()
			r.log.Info("update refused", r.about(d, "status", f.status, "reported", f.update.Status, "reason", f.reason)...)
		}

		for n, result := range d.results {
			r.count(result, 1)
			if result == resultMoved {
				r.metrics.decision.Observe(now.Sub(d.updates[n].At).Seconds())
			}
		}

		r.trace(d, now)
	}
}

// Conflicted counts what is decided again, because the order was changed in between.
func (r *Role) Conflicted(orders []delivery.OrderID) { r.count(resultConflict, len(orders)) }

func (r *Role) count(result string, n int) {
	r.metrics.entries.WithLabelValues(result).Add(float64(n))
}
