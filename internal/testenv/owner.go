package testenv

import (
	"cmp"
	"context"
	"errors"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Step writes what f adds to a step, in the place of the partition's owner, who then takes the
// partition again. f is repeated when an order was changed since it was read.
func (e *Env) Step(partition int, f func(*ledger.Step)) {
	e.T.Helper()
	Must(e.T, Step(e.T.Context(), e.Ledger, partition, f))
}

// Step is Env.Step for any ledger.
func Step(ctx context.Context, l *ledger.Ledger, partition int, f func(*ledger.Step)) error {
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
		if err = l.Ownership.Advance(ctx, []*ledger.Step{step})[0]; !errors.Is(err, ledger.ErrNotOwner) && !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
}

// Change appends changes to an order as it stands.
func (e *Env) Change(id delivery.OrderID, changes ...delivery.Change) {
	e.T.Helper()
	e.Step(id.Partition(), func(step *ledger.Step) { step.Change(e.Read(id), changes, nil) })
}

// Owner decides what comes into a ledger's partitions as the status role does, one entry after the
// other, for tests of what follows. It must be the only one.
type Owner struct {
	// Refuse replaces the decision: every update is refused. nil: the table of moves decides.
	Refuse func(*ledger.Step, *delivery.Update)
	// NotSent: webhooks are recorded as not sent; otherwise they wait for another owner.
	NotSent bool

	ledger    *ledger.Ledger
	owned     []*ledger.Owned
	scheduled bool  // webhooks are put into schedules
	taken     int64 // webhooks that were
}

// NewOwner takes all partitions.
func NewOwner(ctx context.Context, l *ledger.Ledger) (*Owner, error) {
	o := &Owner{ledger: l}
	tokens, err := l.Ownership.Tokens(ctx)
	for p := range tokens {
		owned, failure := l.Ownership.Take(ctx, p, tokens[p], "testenv")
		o.owned, err = append(o.owned, owned), errors.Join(err, failure)
	}
	return o, err
}

// Decide takes what has come, or comes before the time has passed, and reports whether there was
// anything.
func (o *Owner) Decide(ctx context.Context, block time.Duration) (some bool, err error) {
	inboxes, err := o.ledger.Ownership.Read(ctx, o.owned, 64, block)
	for _, in := range inboxes {
		owned := o.owned[in.Partition]
		for _, e := range in.Entries {
			if err := o.decide(ctx, owned, e); err != nil {
				return true, err
			}
		}
		var failure error
		written := o.advance(ctx, owned, func(step *ledger.Step) {
			if ledger.Later(in.Events, step.Token.Events) {
				step.Token.Events, owned.Read.Events = in.Events, plus(owned.ReadFrom, in.ReadEvents)
			}
			step.Token.Updates, owned.Read.Updates = cmp.Or(in.Updates, step.Token.Updates), plus(owned.Read.Updates, in.ReadUpdates)
			if o.NotSent {
				o.notSent(ctx, step, in)
			} else if o.scheduled {
				failure = o.schedule(ctx, step, in)
			}
			owned.From, owned.ReadFrom, owned.Notes = cmp.Or(in.Events, owned.From), plus(owned.ReadFrom, in.ReadEvents), cmp.Or(in.Note, owned.Notes)
			if step.Token.Webhooks == owned.From {
				owned.Read.Webhooks = owned.ReadFrom
			}
			step.Positions(owned.Read)
		})
		err = errors.Join(err, written, failure)
	}
	return len(inboxes) > 0, err
}

// plus counts on, unless the count is not known.
func plus(known, more int64) int64 {
	if known < 0 {
		return known
	}
	return known + more
}

func (o *Owner) notSent(ctx context.Context, step *ledger.Step, in *ledger.Inbox) {
	for _, d := range o.published(ctx, in) {
		record := ledger.AttemptRecord{At: time.Now(), State: ledger.StateNotSent, Error: ledger.NoEndpointError}
		line, _ := record.Lines(d, false)
		step.Publish(d.Account, line, true)
		step.Log(d.Account, [][]byte{line}, 200, false)
	}
	step.Token.Webhooks = cmp.Or(in.Events, step.Token.Webhooks)
}

func (o *Owner) decide(ctx context.Context, owned *ledger.Owned, e ledger.Entry) error {
	w := &ledger.Wanted{Partition: owned.Partition}
	for _, event := range e.Events {
		if delivery.Sequence(event.Version) == 1 {
			w.New = append(w.New, event.Order)
		}
	}
	if e.Update != nil {
		w.Reported = append(w.Reported, e.Update.Order)
	}
	for {
		if err := o.ledger.Ownership.ReadOrders(ctx, []*ledger.Wanted{w}); err != nil {
			return err
		}
		err := o.advance(ctx, owned, func(step *ledger.Step) {
			for _, order := range w.News {
				if order != nil {
					step.List(order)
				}
			}
			for _, order := range w.Orders {
				o.move(step, order, e.Update)
			}
		})
		if !errors.Is(err, ledger.ErrConflict) {
			return err
		}
	}
}

func (o *Owner) move(step *ledger.Step, order *delivery.Order, u *delivery.Update) {
	if o.Refuse != nil {
		o.Refuse(step, u)
		return
	}
	switch decision := delivery.Decide(order, *u, time.Now()); decision.Action {
	case delivery.Move:
		step.Change(order, decision.Changes, nil)
	case delivery.Swap:
		step.Change(order, nil, &u.Courier)
	case delivery.Illegal:
		step.Refuse(u, order.Status, "illegal_move", delivery.LateDelivery(order, *u))
	default:
	}
}

func (o *Owner) advance(ctx context.Context, owned *ledger.Owned, f func(*ledger.Step)) error {
	step := o.ledger.Ownership.Step(owned.Partition, owned.Token)
	f(step)
	err := o.ledger.Ownership.Advance(ctx, []*ledger.Step{step})[0]
	if err == nil {
		owned.Token = step.Token
	}
	return err
}

// Leave gives the partitions up.
func (o *Owner) Leave(ctx context.Context) (err error) {
	for _, owned := range o.owned {
		err = errors.Join(err, o.advance(ctx, owned, func(step *ledger.Step) { step.Token.Owner = "" }))
	}
	return err
}

// Decide decides everything that has come in.
func (e *Env) Decide() { e.T.Helper(); e.decide(func(*Owner) {}) }

// DecideAll is Decide, and records what webhooks there are as not sent.
func (e *Env) DecideAll() { e.T.Helper(); e.decide(func(o *Owner) { o.NotSent = true }) }

// RefuseUpdates takes everything that has come in, and refuses every update.
func (e *Env) RefuseUpdates(status delivery.Status, reason string, late bool) {
	e.T.Helper()
	e.decide(func(o *Owner) {
		o.Refuse = func(step *ledger.Step, u *delivery.Update) { step.Refuse(u, status, reason, late) }
	})
}

func (e *Env) decide(change func(*Owner)) {
	e.T.Helper()
	ctx := e.T.Context()
	o, err := NewOwner(ctx, e.Ledger)
	Must(e.T, err)
	change(o)
	for some := true; some; {
		some, err = o.Decide(ctx, -1)
		Must(e.T, err)
	}
	Must(e.T, o.Leave(ctx))
}
