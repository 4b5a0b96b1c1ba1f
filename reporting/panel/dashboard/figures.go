package dashboard

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// tile is one figure of the overview.
type tile struct {
	Name, Value, Note string
	Tone              string // good, warn, bad or empty
	Link              string
}

// unknown stands for a figure that could not be read.
const unknown = "–"

func (s *seen) tiles() []tile {
	return slices.Concat(s.orderTiles(), s.webhookTiles(), s.lagTiles(), s.traceTiles())
}

// hour sums up the minutes that are over.
type hour struct {
	orders, ended, refused int64
	byCode                 map[delivery.Code]int64
	last                   ledger.MinuteActivity // the last full minute
	running                ledger.MinuteActivity
}

// past is the hour that the activity covers; false when it could not be read.
func (s *seen) past() (h hour, ok bool) {
	if len(s.activity) < 2 {
		return h, false
	}
	full := s.activity[:len(s.activity)-1]
	h.running, h.last = s.activity[len(s.activity)-1], full[len(full)-1]
	h.byCode = map[delivery.Code]int64{}
	for _, m := range full {
		h.orders += m.Created
		h.ended += m.Delivered + m.Failed + m.Cancelled
		for code, n := range m.Refused {
			h.byCode[code] += n
			h.refused += n
		}
	}
	return h, true
}

func (s *seen) orderTiles() []tile {
	minute, orders := tile{Name: "Orders a minute", Value: unknown}, tile{Name: "Orders an hour", Value: unknown}
	// No share of anything: most kinds of requests are only counted when they are
	// refused.
	refused := tile{Name: "Requests refused", Value: unknown}
	if h, ok := s.past(); ok {
		minute.Value, minute.Note = layout.Count(h.last.Created), layout.Count(h.running.Created)+" so far in this one"
		orders.Value, orders.Note = layout.Count(h.orders), layout.Count(h.ended)+" ended"
		refused.Value, refused.Note = layout.Count(h.refused), "in the hour"
		if codes := h.ranked(); len(codes) > 0 {
			refused.Note += ", most often " + strings.ToLower(strings.ReplaceAll(string(codes[0]), "_", " "))
		}
	}
	return []tile{minute, orders, refused, s.inFlight()}
}

func (s *seen) inFlight() tile {
	t := tile{Name: "In progress", Value: unknown, Link: "/orders?status=" + openStatus}
	if s.stats != nil {
		t.Value = layout.Count(s.stats.InFlight)
	}
	if !s.history {
		t.Link, t.Note = "", "a list needs ClickHouse"
	}
	return t
}

func (s *seen) webhookTiles() []tile {
	waiting := tile{Name: "Webhooks waiting", Value: unknown, Link: "/webhooks"}
	breakers := tile{Name: "Breakers open", Value: unknown, Link: "/webhooks"}
	if s.queues != nil {
		var sum ledger.QueueStats
		for _, q := range s.queues {
			sum.Events += q.Events
			sum.BreakersOpen += q.BreakersOpen
			sum.Oldest = earlier(sum.Oldest, q.Oldest)
		}
		waiting.Value, waiting.Note = layout.Count(sum.Events), "nothing waits"
		if sum.Events > 0 {
			waiting.Note = "oldest " + s.age(sum.Oldest)
			if !sum.Oldest.IsZero() && s.at.Sub(sum.Oldest) > 10*time.Minute {
				waiting.Tone = "warn"
			}
		}
		breakers.Value = layout.Count(sum.BreakersOpen)
		breakers.Tone = toneIf(sum.BreakersOpen > 0, "warn")
	}
	unreachable := tile{Name: "Unreachable", Value: unknown, Link: "/webhooks"}
	if s.readEndpoints {
		var n int64
		for _, e := range s.endpoints {
			if e.State == ledger.EndpointUnreachable || e.State == ledger.EndpointGone {
				n++
			}
		}
		unreachable.Value, unreachable.Note = layout.Count(n), fmt.Sprintf("of %s", plural(int64(len(s.endpoints)), "endpoint", "endpoints"))
		unreachable.Tone = toneIf(n > 0, "bad")
	}
	return []tile{waiting, breakers, unreachable}
}

// lagTiles say how far the workers are behind.
func (s *seen) lagTiles() []tile {
	tiles := make([]tile, len(roleNames))
	for i, role := range roleNames {
		t := tile{Name: role.name + " lag", Value: unknown}
		if lag, ok := s.lags[role.role]; ok {
			t.Value, t.Note = layout.Count(lag.Entries), "up to date"
			if lag.Entries > 0 {
				t.Note = "oldest " + s.age(lag.Oldest)
			}
			t.Tone = toneIf(s.late(lag, role.patience), "warn")
		}
		tiles[i] = t
	}
	return tiles
}

func (s *seen) late(lag ledger.Lag, patience time.Duration) bool {
	return !lag.Oldest.IsZero() && s.at.Sub(lag.Oldest) > patience
}

func (s *seen) traceTiles() []tile {
	refused := tile{Name: "Refused updates", Value: unknown, Link: "/refused-updates"}
	dead := tile{Name: "Dead letters", Value: unknown, Link: "/dead-letters"}
	if s.stats != nil {
		refused.Value, refused.Note = layout.Count(s.stats.RefusedUpdates), "of couriers, on record"
		dead.Value, dead.Tone = layout.Count(s.stats.DeadLetters), toneIf(s.stats.DeadLetters > 0, "bad")
	}
	return []tile{refused, dead}
}

// age is how long ago a time is, without the "ago".
func (s *seen) age(t time.Time) string {
	if t.IsZero() {
		return "not known"
	}
	return layout.Span(max(s.at.Sub(t), 0))
}

// rankedCodes is how many error codes the chart of refusals names.
const rankedCodes = 8

// charts are those of the hour, by minute and by code. Without activity, or when
// nothing was refused, there are none.
func (s *seen) charts() (orders, outcomes, byCode *layout.Chart) {
	h, ok := s.past()
	if !ok {
		return nil, nil, nil
	}
	full := s.activity[:len(s.activity)-1]
	labels := make([]string, len(full))
	var created, delivered, failed, cancelled []float64
	for i, m := range full {
		labels[i] = layout.Minute(m.At)
		created = append(created, float64(m.Created))
		delivered = append(delivered, float64(m.Delivered))
		failed = append(failed, float64(m.Failed))
		cancelled = append(cancelled, float64(m.Cancelled))
	}
	orders = &layout.Chart{ID: "orders-by-minute", Title: "Orders accepted per minute", Unit: "orders", Labels: labels,
		Series: []layout.Series{{Name: "Accepted", Tone: "accent", Values: created}}}
	outcomes = &layout.Chart{ID: "outcomes-by-minute", Title: "Orders ended per minute", Unit: "orders", Stacked: true, Labels: labels,
		Series: []layout.Series{{Name: "Delivered", Tone: "good", Values: delivered}, {Name: "Failed", Tone: "bad", Values: failed},
			{Name: "Cancelled", Tone: "quiet", Values: cancelled}}}
	return orders, outcomes, h.refusals()
}

// ranked are the error codes of the refusals, the most frequent first.
func (h *hour) ranked() []delivery.Code {
	return slices.SortedFunc(maps.Keys(h.byCode), func(a, b delivery.Code) int {
		return cmp.Or(cmp.Compare(h.byCode[b], h.byCode[a]), cmp.Compare(a, b))
	})
}

func (h *hour) refusals() *layout.Chart {
	if h.refused == 0 {
		return nil
	}
	c := &layout.Chart{ID: "refusals-by-code", Title: "Requests refused in these 60 minutes, by error code", Unit: "requests", Across: true}
	values, rest := []float64(nil), 0.0
	for i, code := range h.ranked() {
		if n := float64(h.byCode[code]); i < rankedCodes {
			c.Labels, values = append(c.Labels, string(code)), append(values, n)
		} else {
			rest += n
		}
	}
	if rest > 0 {
		c.Labels, values = append(c.Labels, "all others"), append(values, rest)
	}
	c.Series = []layout.Series{{Name: "Refused", Tone: "warn", Values: values}}
	return c
}

func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func toneIf(is bool, tone string) string {
	if is {
		return tone
	}
	return ""
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return layout.Count(n) + " " + many
}
