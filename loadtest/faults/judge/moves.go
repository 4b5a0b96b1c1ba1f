package judge

import (
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// checkMoves: every order went only where the table of moves allows, step by
// step, its versions are dense, and it ended if somebody should have ended it.
func (c *courtCase) checkMoves() {
	asked := make(map[string]bool)
	for i := range c.ops {
		if op := &c.ops[i]; op.Kind == history.Cancel && (op.OK() || op.Unknown()) {
			asked[op.Order] = true
		}
	}
	c.eachOrder(func(o *Order) {
		c.checkPath(o)
		c.checkVersions(o)
		if o.Status == delivery.Cancelled.String() && !asked[o.ID] {
			c.violated(IllegalMove, "it is Cancelled and no request accounts for that", o.ID)
		}
		status, err := delivery.ParseStatus(o.Status)
		if err == nil && c.accounts[o.Account].Couriers && !status.Terminal() {
			c.violated(NotEnded, "nobody moves it any more and it is "+o.Status, o.ID)
		}
	})
	for _, a := range c.facts.Astray {
		c.violated(IndexAstray, a.Index+" "+a.Says, a.Order)
	}
}

func (c *courtCase) checkPath(o *Order) {
	from, at := delivery.Searching, o.Created
	for _, change := range o.Changes {
		to, err := delivery.ParseStatus(change.Status)
		if err != nil || !legal(from, to, change.Failure) {
			c.violated(IllegalMove, fmt.Sprintf("it went from %s to %s %s", from, change.Status, change.Failure), o.ID)
			return
		}
		if change.At.Before(at) {
			c.violated(IllegalMove, fmt.Sprintf("%s is dated %s before the step before it", to, at.Sub(change.At)), o.ID)
		}
		from, at = to, change.At
	}
	if o.Status != from.String() {
		c.violated(IllegalMove, fmt.Sprintf("it is %s and its last step was to %s", o.Status, from), o.ID)
	}
}

// legal is one step of the table of moves (design section 6), as every order has
// them once skipped steps are filled in.
func legal(from, to delivery.Status, failure string) bool {
	switch {
	case from.Terminal():
		return false
	case to == delivery.Failed:
		return delivery.FailureReason(failure).LegalFrom(from)
	case failure != "":
		return false
	case to == delivery.Cancelled:
		return from.Cancellable()
	}
	return to == from+1 && to <= delivery.Delivered
}

func (c *courtCase) checkVersions(o *Order) {
	if got, want := int(delivery.Sequence(o.Version)), 1+len(o.Changes); got != want {
		c.violated(VersionGap, fmt.Sprintf("it has version %d after %d steps", got, want-1), o.ID)
	}
	for i, change := range o.Changes {
		if got := int(delivery.Sequence(change.Version)); got != i+2 {
			c.violated(VersionGap, fmt.Sprintf("step %d has version %d", i+1, got), o.ID)
		}
	}
}

// checkSeen: what clients were shown of an order is in its history, and never ran
// back.
func (c *courtCase) checkSeen() {
	seen := make(map[string][]*history.Op)
	for i := range c.ops {
		op := &c.ops[i]
		o := c.orders[op.Order]
		if o == nil || op.Kind == history.Create || o.Account != op.Account {
			continue
		}
		c.checkShown(o, op)
		if op.OK() && op.State != "" {
			seen[o.ID] = append(seen[o.ID], op)
		}
	}
	for id, ops := range seen {
		c.checkForward(id, ops)
	}
}

func (c *courtCase) checkShown(o *Order, op *history.Op) {
	path := o.path()
	switch {
	case op.Kind == history.Cancel && op.OK() && o.Status != delivery.Cancelled.String():
		c.violated(StateLost, "a client was told that it is cancelled, and it is "+o.Status, o.ID)
	case op.Kind == history.Cancel && op.Code == notCancellable && o.Status == delivery.Cancelled.String():
		c.violated(StateLost, "a client was told that it cannot be cancelled, and it is Cancelled", o.ID)
	case op.OK() && op.State != "" && !slices.Contains(path, op.State):
		c.violated(StateLost, fmt.Sprintf("a client was shown %s, which it never was", op.State), o.ID)
	case op.Kind == history.Read && len(op.Steps) > 0:
		if len(op.Steps) > len(path) || !slices.Equal(op.Steps, path[:len(op.Steps)]) {
			c.violated(StateLost, fmt.Sprintf("a client was shown the steps %v, it went %v", op.Steps, path), o.ID)
		} else if last := op.Steps[len(op.Steps)-1]; last != op.State {
			c.violated(StateLost, fmt.Sprintf("a client was shown %s with steps that end in %s", op.State, last), o.ID)
		}
	}
}

const notCancellable = string(delivery.CodeOrderNotCancellable)

// checkForward: an answer that came before a request was sent shows no later
// state than the request's answer.
func (c *courtCase) checkForward(id string, ops []*history.Op) {
	path := c.orders[id].path()
	ended := slices.Clone(ops)
	slices.SortStableFunc(ended, func(a, b *history.Op) int { return a.End.Compare(b.End) })
	latest, next := 0, 0
	for _, op := range ops { // by start
		for next < len(ended) && ended[next].End.Before(op.Start) {
			latest = max(latest, slices.Index(path, ended[next].State))
			next++
		}
		if at := slices.Index(path, op.State); at >= 0 && at < latest {
			c.violated(StateBackwards, fmt.Sprintf("a client was shown %s after one was shown %s, %s before",
				op.State, path[latest], op.Start.Sub(ended[next-1].End).Round(time.Millisecond)), id)
			return
		}
	}
}
