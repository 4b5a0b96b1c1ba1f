package validate

import (
	"cmp"
	"slices"
	"time"

	"vendorapi/internal/delivery"
)

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
		for kind, limit := range map[Kind]delivery.EndpointLimit{Create: a.Limits.Orders, Cancel: a.Limits.Cancel, Read: a.Limits.OrderStatus} {
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
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
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
	latest := slices.MaxFunc(spans, func(a, b span) int { return cmp.Compare(a.end, b.end) }).end
	for k := 1; k*w.Count < len(spans); k++ {
		over = time.Duration(k) * window
		for first, s := range spans {
			if first > 0 && s.start == spans[first-1].start {
				continue
			}
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
		if over > latest-spans[0].start {
			break
		}
	}
	return 0, 0, 0
}
