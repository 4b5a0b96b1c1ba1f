package testenv

import (
	"cmp"
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
)

// Step writes what f adds to a step, in the place of the partition's owner, who then takes the
// partition again. f is repeated when an order was changed since it was read.
func (e *Env) Step(partition int, f func(*partitions.Step)) {
	e.T.Helper()
	Must(e.T, Step(e.T.Context(), e.Ledger, partition, f))
}

// stepping is held by one step at a time: the tokens of two would be the same, and the later one taken for a repetition.
var stepping sync.Mutex

// Step is Env.Step for any ledger.
func Step(ctx context.Context, l *ledger.Ledger, partition int, f func(*partitions.Step)) error {
	stepping.Lock()
	defer stepping.Unlock()
	for {
		tokens, err := l.Ownership.Tokens(ctx)
		if err != nil {
			return err
		}
		token, err := tokens[partition].Token()
		if err != nil {
			return err
		}

		step := l.Ownership.Step(partition, token)
		step.Token.Epoch++
		f(step)
		err = l.Ownership.Advance(ctx, []*partitions.Step{step})[0]
		if !errors.Is(err, partitions.ErrNotOwner) && !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
}

// Change appends changes to an order as it stands.
func (e *Env) Change(id delivery.OrderID, changes ...delivery.Change) {
	e.T.Helper()
	e.Step(id.Partition(), func(step *partitions.Step) { step.Change(e.Read(id), changes) })
}

// Owner does one after the other what the owner of a ledger's partitions does in a worker, for tests of what
// follows. It must be the only one.
type Owner struct {
	ledger    *ledger.Ledger
	owned     []*partitions.Owned
	scheduled int64 // webhooks that were put into schedules
}

// NewOwner takes all partitions.
func NewOwner(ctx context.Context, l *ledger.Ledger) (*Owner, error) {
	o := &Owner{ledger: l}
	tokens, err := l.Ownership.Tokens(ctx)
	for p := range l.Partitions() {
		owned, failure := l.Ownership.Take(ctx, p, tokens[p], "testenv")
		o.owned, err = append(o.owned, owned), errors.Join(err, failure)
	}
	return o, err
}

// Decide takes the next of what has come, or comes before the time has passed, and reports whether there was
// anything: new orders are listed, updates decided, and webhooks scheduled.
func (o *Owner) Decide(ctx context.Context, block time.Duration) (some bool, err error) {
	inboxes, err := o.ledger.Ownership.Read(ctx, o.owned, 1, block)
	for _, in := range inboxes {
		err = errors.Join(err, o.take(ctx, in))
	}
	return len(inboxes) > 0, err
}

// take decides an entry of each stream: no two updates are about the same order.
func (o *Owner) take(ctx context.Context, in *partitions.Inbox) error {
	owned, w := o.owned[in.Partition], &partitions.Wanted{Partition: in.Partition}
	var update *delivery.Update
	for _, e := range in.Entries {
		for _, event := range e.Events {
			if delivery.Sequence(event.Version) == 1 {
				w.New = append(w.New, event.Order)
			}
		}
		if e.Update != nil {
			update, w.Reported = e.Update, []delivery.OrderID{e.Update.Order}
		}
	}

	for _, e := range in.Published {
		w.Events = append(w.Events, e.Events...)
	}

	owned.From, owned.Notes = cmp.Or(in.Events, owned.From), cmp.Or(in.Note, owned.Notes)
	var unread error
	err := Step(ctx, o.ledger, in.Partition, func(step *partitions.Step) {
		unread = o.ledger.Ownership.ReadOrders(ctx, []*partitions.Wanted{w})
		if unread != nil {
			return
		}
		o.write(step, in, w, update)
		owned.Token = step.Token
	})

	return errors.Join(err, unread)
}

func (o *Owner) write(step *partitions.Step, in *partitions.Inbox, w *partitions.Wanted, u *delivery.Update) {
	for _, order := range w.News {
		if order != nil {
			step.List(order)
		}
	}

	for _, order := range w.Orders {
		decision := delivery.Decide(order, *u, time.Now())
		switch decision.Action {
		case delivery.Move, delivery.Swap, delivery.Revise:
			step.Change(order, decision.Changes)
		case delivery.Illegal:
			step.Refuse(u, order.Status, "illegal_move", delivery.LateDelivery(order, *u))
		default:
		}
	}

	for _, d := range w.Deliveries {
		if d != nil && d.Type != "" && (d.Order == nil || delivery.Sequence(d.Version) > 1) {
			o.scheduled++
			due := time.Now().Add(-oldest).UnixMilli() + o.scheduled
			step.Schedule(d.Account, true, []partitions.Scheduled{{Key: d.Key, Due: due}})
		}
	}

	if partitions.Later(in.Events, step.Token.Events) {
		step.Token.Events = in.Events
	}

	step.Token.Updates = cmp.Or(in.Updates, step.Token.Updates)
	step.Token.Webhooks = cmp.Or(in.Events, step.Token.Webhooks)
	step.Positions(partitions.Counts{Events: -1, Updates: -1, Webhooks: -1}) // how many entries that were is not known
}

// drain decides until nothing comes any more.
func (o *Owner) drain(ctx context.Context) (err error) {
	for some := true; some && err == nil; {
		some, err = o.Decide(ctx, -1)
	}
	return err
}

// Decide decides everything that has come in.
func (e *Env) Decide() { e.T.Helper(); e.own((*Owner).drain) }

// Send decides everything that has come in, and sends all webhooks that are due.
func (e *Env) Send(outcome Outcome) (sent []*partitions.Scheduled) {
	e.T.Helper()
	e.own(func(o *Owner, ctx context.Context) (err error) {
		sent, err = o.Send(ctx, math.MaxInt, outcome)
		return err
	})
	return sent
}

// own takes all partitions while the owner does something, and gives them up.
func (e *Env) own(do func(*Owner, context.Context) error) {
	e.T.Helper()
	ctx := e.T.Context()
	o, err := NewOwner(ctx, e.Ledger)
	Must(e.T, err)
	Must(e.T, do(o, ctx))
	for p := range o.owned {
		e.Step(p, func(step *partitions.Step) { step.Token.Owner = "" })
	}
}
