package dashboard

import (
	"cmp"
	"html/template"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/reporting/panel/layout"
)

// Bounds of what an order's page shows of its webhooks.
const (
	attemptsOfEvent = 40
	answersOfPage   = 24 << 10       // bytes, the newest first; of those beyond only the beginning is shown
	shortAnswer     = 80             // bytes of such a beginning
	retriedFor      = 24 * time.Hour // how long an event is tried (design section 7)
)

// eventIDs are those of all steps but the creation, which sends no webhook.
func eventIDs(id delivery.OrderID, steps []delivery.Change) (events []string) {
	for _, s := range steps {
		if delivery.Sequence(s.Version) > 1 {
			events = append(events, delivery.EventID(id, s.Version))
		}
	}
	return events
}

type stepView struct {
	delivery.Change
	After    string // since the creation
	EventID  string // empty: the step sends no event
	Attempts []ledger.AttemptRecord
	Omitted  int       // older ones that are not shown
	State    string    // the last attempt's; without one: new, or none when the event is old
	NextAt   time.Time // zero: nothing is planned, as far as is known
	// Due: the time is past, and the breaker or another event of the queue comes first.
	Due bool
}

// mergeAttempts are the attempts of an order's events from Redis and ClickHouse,
// each once, oldest first. Those of Redis have the answers.
func mergeAttempts(id delivery.OrderID, live, past []ledger.AttemptRecord) (all []ledger.AttemptRecord) {
	type key struct {
		event         string
		attempt       int
		at            int64 // ms
		replay, probe bool
	}
	order, seen := id.String(), map[key]bool{}
	for _, a := range slices.Concat(live, past) {
		k := key{a.EventID, a.Attempt, a.At.UnixMilli(), a.Replay, a.Probe}
		if a.OrderID == order && !seen[k] {
			seen[k] = true
			all = append(all, a)
		}
	}
	slices.SortStableFunc(all, func(a, b ledger.AttemptRecord) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Attempt, b.Attempt))
	})
	return all
}

// timeline puts the attempts beside their steps; those of lost steps are omitted.
func timeline(id delivery.OrderID, steps []delivery.Change, attempts []ledger.AttemptRecord, now time.Time) (views []stepView, omitted int) {
	byEvent := map[string][]ledger.AttemptRecord{}
	for _, a := range attempts {
		byEvent[a.EventID] = append(byEvent[a.EventID], a)
	}
	views, omitted = make([]stepView, len(steps)), len(attempts)
	for i, s := range steps {
		v := &views[i]
		v.Change = s
		if i > 0 {
			v.After = layout.Span(max(s.At.Sub(steps[0].At), 0))
		}
		if delivery.Sequence(s.Version) > 1 {
			v.EventID = delivery.EventID(id, s.Version)
			v.take(byEvent[v.EventID], now)
			omitted -= len(byEvent[v.EventID])
		}
	}
	cutAnswers(views)
	return views, omitted
}

func (s *stepView) take(attempts []ledger.AttemptRecord, now time.Time) {
	s.Omitted = max(len(attempts)-attemptsOfEvent, 0)
	s.Attempts = attempts[s.Omitted:]
	switch {
	case len(attempts) > 0:
	case now.Sub(s.At) < refreshedAfterEnd:
		s.State = "new"
		return
	default:
		s.State = "none"
		return
	}
	last := attempts[len(attempts)-1]
	s.State = last.State
	if late := now.Sub(last.NextAt); last.State == "retrying" && !last.NextAt.IsZero() {
		s.Due = late >= 0 && late < retriedFor
		if late < 0 {
			s.NextAt = last.NextAt
		}
	}
}

func waiting(steps []stepView) bool {
	return slices.ContainsFunc(steps, func(s stepView) bool {
		return s.State == "new" || s.State == "none" || s.State == "retrying"
	})
}

func cutAnswers(steps []stepView) {
	left := answersOfPage
	for _, s := range slices.Backward(steps) {
		for j := len(s.Attempts) - 1; j >= 0; j-- {
			a := &s.Attempts[j]
			size := len(template.HTMLEscapeString(a.Answer))
			if size > left && len(a.Answer) > shortAnswer {
				a.Answer = strings.ToValidUTF8(a.Answer[:shortAnswer], "") + "…"
				continue
			}
			left = max(left-size, 0)
		}
	}
}
