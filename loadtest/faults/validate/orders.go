package validate

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"vendorapi/internal/delivery"
)

// checkAcknowledged: every order that a client got an id of exists, once, and is what the client asked for.
func (c *check) checkAcknowledged() {
	for _, id := range slices.Sorted(maps.Keys(c.made)) {
		first, o := c.made[id][0], c.orders[id]
		if o == nil {
			c.about(id, LostOrder, "external id %q was answered %d and is not in Redis", first.External, first.Status)
		}

		for _, op := range c.made[id] {
			switch {
			case op.External != first.External || op.Account != first.Account:
				c.about(id, DuplicateOrder, "one order was answered for the external ids %q and %q", first.External, op.External)
			case o != nil && (o.External != op.External || o.Account != op.Account):
				c.about(id, OrderDiffers, "it was answered for external id %q and has %q", op.External, o.External)
			case o != nil && op.Content != "" && o.Content != "" && o.Content != op.Content:
				c.about(id, OrderDiffers, "the order with external id %q is not what its request said", op.External)
			}
		}
	}

	for external, ops := range c.creates {
		var first *Operation
		accepted := 0
		for _, op := range ops {
			if !op.OK() {
				continue
			}

			if first == nil {
				first = op
			}
			if op.Order != first.Order {
				c.violated(DuplicateOrder, []string{first.Order, op.Order},
					"external id %q was answered with two orders", external.name)
			}

			if !op.Replayed {
				accepted++
			}
		}

		if accepted > 1 {
			c.about(first.Order, DuplicateOrder, "external id %q was accepted %d times", external.name, accepted)
		}
	}
}

// checkKeys checks that an idempotency key has one success only, and that every repetition was answered with the same bytes.
func (c *check) checkKeys() {
	firsts := make(map[name]*Operation)
	for _, op := range c.ops {
		key := name{op.Account, op.Key}
		first := firsts[key]
		switch {
		case op.Kind != Create || !op.OK():
		case op.Key == "" && op.Replayed:
			c.about(op.Order, KeyTwoOutcomes, "a creation without a key was answered as a replay")
		case op.Key == "":
		case first == nil:
			firsts[key] = op
		case op.Order != first.Order:
			c.violated(KeyTwoOutcomes, []string{first.Order, op.Order}, "key %q was answered with two orders", op.Key)
		case op.Body != first.Body:
			c.about(op.Order, KeyTwoOutcomes, "key %q succeeded with two different bodies", op.Key)
		case !op.Replayed && !first.Replayed:
			c.about(op.Order, KeyTwoOutcomes, "key %q was accepted twice", op.Key)
		case op.Answer != first.Answer:
			c.about(op.Order, ReplayDiffers, "key %q was answered with two different texts", op.Key)
		}
	}
}

// checkStored: every order has a request that can have made it, made legal moves only, has dense versions, and ended.
func (c *check) checkStored() {
	cancelled := make(map[string]bool) // by a request
	for _, op := range c.ops {
		if op.Kind == Cancel && (op.OK() || op.Unknown()) {
			cancelled[op.Order] = true
		}
	}

	for _, o := range c.own {
		if !slices.ContainsFunc(c.creates[name{o.Account, o.External}], func(op *Operation) bool {
			return op.OK() && op.Order == o.ID || op.Unknown() && !op.Invalid
		}) {
			c.about(o.ID, UnknownOrder, "no request accounts for the order with external id %q", o.External)
		}

		c.checkMoves(o)
		if o.Status == delivery.Cancelled.String() && !cancelled[o.ID] {
			c.about(o.ID, IllegalMove, "it is Cancelled and no request accounts for that")
		}

		status, err := delivery.ParseStatus(o.Status)
		if err == nil && c.accounts[o.Account].Couriers && !status.Terminal() {
			c.about(o.ID, NotEnded, "no courier moves it any more and it is %s", o.Status)
		}
	}
}

func (c *check) checkMoves(o *Order) {
	from, at, legal := delivery.Searching, o.Created, true
	for i, change := range o.Changes {
		if got := delivery.Sequence(change.Version); int(got) != i+2 {
			c.about(o.ID, VersionGap, "step %d has version %d", i+1, got)
		}

		to, err := delivery.ParseStatus(change.Status)
		stays := change.Between && to == from && !to.Terminal()
		if legal && !stays && (err != nil || change.Between || !isLegal(from, to, change.Failure)) {
			legal = false
			c.about(o.ID, IllegalMove, "it went from %s to %s %s", from, change.Status, change.Failure)
		}

		if change.At.Before(at) {
			c.about(o.ID, IllegalMove, "%s is dated %s before the step before it", to, at.Sub(change.At))
		}

		from, at = to, change.At
	}

	if got, want := int(delivery.Sequence(o.Version)), 1+len(o.Changes); got != want {
		c.about(o.ID, VersionGap, "it has version %d after %d steps", got, want-1)
	}

	if o.Status != from.String() {
		c.about(o.ID, IllegalMove, "it is %s and its last step was to %s", o.Status, from)
	}
}

// isLegal is one step of the table of moves (decisions, "States") once skipped steps are filled in.
func isLegal(from, to delivery.Status, failure string) bool {
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

// checkSeen: what clients were shown of an order is in its history, and never went backwards.
func (c *check) checkSeen() {
	seen := make(map[string][]*Operation)
	for _, op := range c.ops {
		o := c.orders[op.Order]
		if o == nil || op.Kind == Create || o.Account != op.Account {
			continue
		}

		path, cancelled := o.path(), o.Status == delivery.Cancelled.String()
		switch {
		case op.Kind == Cancel && op.OK() && !cancelled:
			c.about(o.ID, StateLost, "a client was answered that it is cancelled, and it is %s", o.Status)
		case op.Kind == Cancel && op.Code == string(delivery.CodeOrderNotCancellable) && cancelled:
			c.about(o.ID, StateLost, "a client was answered that it cannot be cancelled, and it is Cancelled")
		case op.OK() && op.State != "" && !slices.Contains(path, op.State):
			c.about(o.ID, StateLost, "a client was shown %s, which it never was", op.State)
		case op.Kind != Read || len(op.Steps) == 0:
		case len(op.Steps) > len(path) || !slices.Equal(op.Steps, path[:len(op.Steps)]):
			c.about(o.ID, StateLost, "a client was shown the steps %v, it went %v", op.Steps, path)
		case op.Steps[len(op.Steps)-1] != op.State:
			c.about(o.ID, StateLost, "a client was shown %s with the steps %v", op.State, op.Steps)
		}

		if op.OK() && op.State != "" {
			seen[o.ID] = append(seen[o.ID], op)
		}
	}

	for id, ops := range seen {
		c.checkForward(c.orders[id], ops)
	}
}

// checkForward: no answer shows an earlier state than one that came before its request was sent. ops are by start.
func (c *check) checkForward(o *Order, ops []*Operation) {
	path := o.path()
	ended := slices.SortedStableFunc(slices.Values(ops), func(a, b *Operation) int { return a.End.Compare(b.End) })
	latest, next := 0, 0
	for _, op := range ops {
		for next < len(ended) && ended[next].End.Before(op.Start) {
			latest = max(latest, slices.Index(path, ended[next].State))
			next++
		}

		if at := slices.Index(path, op.State); at >= 0 && at < latest {
			c.about(o.ID, StateBackwards, "a client was shown %s after one was shown %s, %s before",
				op.State, path[latest], op.Start.Sub(ended[next-1].End).Round(time.Millisecond))
			return
		}
	}
}

// span is from a request's start to its end, relative to the round's first: it was admitted some time between.
type span struct{ start, end time.Duration }

// checkWindows: no window of any limit admitted more than it allows. Replays and refused bodies count; requests without
// an answer may not have counted and are left out.
func (c *check) checkWindows() {
	byLimit := make(map[name][]span) // by account and endpoint
	polls := make(map[name][]span)   // by account and order
	for _, op := range c.ops {
		if !admitted(op) {
			continue
		}

		s := span{op.Start.Sub(c.ops[0].Start), op.End.Sub(c.ops[0].Start)}
		endpoint := name{op.Account, string(op.Kind)}
		byLimit[endpoint] = append(byLimit[endpoint], s)
		if op.Kind == Read && op.OK() {
			polls[name{op.Account, op.Order}] = append(polls[name{op.Account, op.Order}], s)
		}
	}

	for _, a := range c.facts.Accounts {
		limits := map[Kind]delivery.EndpointLimit{
			Create: a.Limits.Orders,
			Cancel: a.Limits.Cancel,
			Read:   a.Limits.OrderStatus,
		}
		for kind, limit := range limits {
			c.checkLimit(byLimit[name{a.ID, string(kind)}], a.ID, string(kind)+"s", limit.Sustained, limit.Burst)
		}
	}

	for order, spans := range polls {
		c.checkLimit(spans, order.name, "reads of one order", delivery.Window{Count: 1, Seconds: int(delivery.PollInterval / time.Second)})
	}
}

func admitted(op *Operation) bool {
	switch op.Status {
	case 404:
		return op.Code == string(delivery.CodeOrderNotFound)
	case 503:
		return op.Code == string(delivery.CodeFleetUnavailable)
	case 409, 422, 423:
		return true
	}
	return op.OK()
}

func (c *check) checkLimit(spans []span, subject, what string, windows ...delivery.Window) {
	if len(spans) == 0 {
		return
	}

	c.report.Windows++
	slices.SortFunc(spans, func(a, b span) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end))
	})

	for _, w := range windows {
		if w.Count == 0 {
			continue
		}
		if at, n, length := excess(spans, w); n > 0 {
			c.about(subject, OverLimit, "%d %s were admitted within %s from %s on, whenever in between each was; the limit is %d in %d s",
				n, what, length, at.Round(time.Millisecond), w.Count, w.Seconds)
			return
		}
	}
}

// excess finds k windows in a row that hold more than k times the count, of requests that began and ended inside. n is
// 0 when there are none. spans are sorted by start.
func excess(spans []span, w delivery.Window) (at time.Duration, n int, over time.Duration) {
	// The limits use the server's clock, which may run a thousandth faster.
	window := time.Duration(w.Seconds) * time.Second * 999 / 1000
	for k := 1; k*w.Count < len(spans); k++ {
		over = time.Duration(k) * window
		for first, s := range spans {
			n = 0
			for _, inside := range spans[first:] {
				if inside.start >= s.start+over {
					break
				}
				if inside.end < s.start+over {
					n++
				}
			}

			if n > k*w.Count {
				return s.start, n, over
			}
		}
	}

	return 0, 0, 0
}
