package judge

import (
	"cmp"
	"container/heap"
	"fmt"
	"slices"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/loadtest/faults/history"
)

// span is when a request can have been admitted, as far as its client knows: at
// some moment from its start to its end.
type span struct{ start, end time.Duration }

// clockSlack is how much shorter a window is taken to be than it is: the limits
// go by the server's clock, which may run by so much faster than the clients'.
const clockSlack = 1000 // one in so many

// checkWindows: no window of any limit ever admitted more than it allows. Every
// request with an answer other than 429 counts, replays and refused bodies
// included; one without an answer may not have counted, so it is left out.
func (c *courtCase) checkWindows() {
	byLimit := make(map[named][]span) // by account and endpoint
	polls := make(map[named][]span)   // by account and order
	for i := range c.ops {
		op := &c.ops[i]
		if !admitted(op) {
			continue
		}
		s := span{op.Start.Sub(c.ops[0].Start), op.End.Sub(c.ops[0].Start)}
		name := named{op.Account, string(op.Kind)}
		byLimit[name] = append(byLimit[name], s)
		if op.Kind == history.Read && op.OK() {
			order := named{op.Account, op.Order}
			polls[order] = append(polls[order], s)
		}
	}
	for i := range c.facts.Accounts {
		a := &c.facts.Accounts[i]
		for kind, limit := range map[history.Kind]delivery.EndpointLimit{
			history.Create: a.Limits.Orders, history.Cancel: a.Limits.Cancel, history.Read: a.Limits.OrderStatus} {
			c.checkLimit(byLimit[named{a.ID, string(kind)}], []delivery.Window{limit.Sustained, limit.Burst}, a.ID, string(kind)+"s")
		}
	}
	one := []delivery.Window{{Count: 1, Seconds: int(delivery.PollInterval / time.Second)}}
	for order, spans := range polls {
		c.checkLimit(spans, one, order.name, "reads of one order")
	}
}

// admitted reports whether a request certainly counted.
func admitted(op *history.Op) bool {
	switch {
	case op.OK():
		return true
	case op.Status == 503:
		return op.Code == string(delivery.CodeFleetUnavailable)
	case op.Status == 404:
		return op.Code == string(delivery.CodeOrderNotFound)
	}
	return op.Status == 409 || op.Status == 422 || op.Status == 423
}

func (c *courtCase) checkLimit(spans []span, windows []delivery.Window, subject, what string) {
	windows = slices.DeleteFunc(slices.Clone(windows), func(w delivery.Window) bool { return w.Count == 0 })
	if len(windows) == 0 || len(spans) == 0 {
		return
	}
	c.report.Windows++
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	for _, w := range windows {
		if at, n, length := excess(spans, w); n > 0 {
			c.violated(OverLimit, fmt.Sprintf("%d %s were admitted within %s from %s on, whenever in between each was; the limit is %d in %d s",
				n, what, length, at.Round(time.Millisecond), w.Count, w.Seconds), subject)
			return
		}
	}
	if !explained(spans, windows) {
		c.report.UndecidedWindows++
	}
}

func length(w delivery.Window) time.Duration {
	whole := time.Duration(w.Seconds) * time.Second
	return whole - whole/clockSlack
}

// excess finds k windows in a row that hold more than k times the count, whatever
// the moments at which requests were admitted: only those are counted that began
// and ended inside. n is 0 when there are none. spans are sorted by start.
func excess(spans []span, w delivery.Window) (at time.Duration, n int, over time.Duration) {
	ends := slices.Clone(spans)
	slices.SortFunc(ends, func(a, b span) int { return cmp.Compare(a.end, b.end) })
	all := ends[len(ends)-1].end - spans[0].start
	for k := 1; ; k++ {
		over = time.Duration(k) * length(w)
		var long []span // those that fit into none
		for _, s := range spans {
			if s.end-s.start >= over {
				long = append(long, s)
			}
		}
		ended, before, from := 0, 0, 0
		for i, s := range spans {
			if i > 0 && s.start == spans[i-1].start {
				continue
			}
			for before < len(spans) && spans[before].start < s.start {
				before++
			}
			for ended < len(ends) && ends[ended].end < s.start+over {
				ended++
			}
			// Of those that began earlier, some end later; they are not in ended.
			reach := 0
			for from < len(long) && long[from].end < s.start+over && long[from].start < s.start {
				from++
			}
			for _, l := range long[from:] {
				if l.start < s.start && l.end >= s.start+over {
					reach++
				}
			}
			if n = ended - before + reach; n > k*w.Count {
				return s.start, n, over
			}
		}
		if over > all || k*w.Count >= len(spans) {
			return 0, 0, 0
		}
	}
}

// explained looks for moments within the spans at which all requests can have
// been admitted: always the one whose end is nearest, as early as the windows
// allow. That finds one in all but contrived cases; false says nothing.
func explained(spans []span, windows []delivery.Window) bool {
	moments := make([]time.Duration, 0, len(spans))
	var waiting byEnd
	var now time.Duration
	for next := 0; next < len(spans) || len(waiting) > 0; {
		for _, w := range windows {
			if k := len(moments) - w.Count; k >= 0 {
				now = max(now, moments[k]+length(w))
			}
		}
		if len(waiting) == 0 {
			now = max(now, spans[next].start)
		}
		for next < len(spans) && spans[next].start <= now {
			heap.Push(&waiting, spans[next])
			next++
		}
		s := heap.Pop(&waiting).(span)
		if s.end < now {
			return false
		}
		moments = append(moments, now)
	}
	return true
}

// byEnd is a heap of spans, that with the nearest end first.
type byEnd []span

func (h byEnd) Len() int           { return len(h) }
func (h byEnd) Less(i, j int) bool { return h[i].end < h[j].end }
func (h byEnd) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byEnd) Push(s any)        { *h = append(*h, s.(span)) }
func (h *byEnd) Pop() any {
	last := (*h)[len(*h)-1]
	*h = (*h)[:len(*h)-1]
	return last
}
