package dashboard

import (
	"cmp"
	"fmt"
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
	// answersOfPage is how many bytes the answers of a page may take, the newest
	// first; of those beyond only the beginning is shown.
	answersOfPage = 24 << 10
	shortAnswer   = 80
	// retriedFor is how long an event is tried (design section 7).
	retriedFor = 24 * time.Hour
)

type step struct {
	Version uint64
	Status  delivery.Status
	At      time.Time
	Failure delivery.FailureReason
	Cancel  delivery.CancelReason
	Note    string
	Courier delivery.Courier // zero: nobody, or not known any more
}

// event reports whether the step sent a webhook: all but the creation.
func (s *step) event() bool { return delivery.Sequence(s.Version) > 1 }

func stepsOf(o *delivery.Order) []step {
	steps := []step{{Version: 1, Status: delivery.Searching, At: o.CreatedAt}}
	for _, c := range o.Changes {
		steps = append(steps, step{Version: c.Version, Status: c.Status, At: c.At, Failure: c.Failure,
			Cancel: c.Cancel, Note: c.Note, Courier: c.Courier})
	}
	return steps
}

func eventIDs(id delivery.OrderID, steps []step) (events []string) {
	for _, s := range steps {
		if s.event() {
			events = append(events, delivery.EventID(id, s.Version))
		}
	}
	return events
}

type stepView struct {
	step
	After    string // since the creation
	EventID  string // empty: the step sends no event
	Attempts []attemptView
	Omitted  int // older ones that are not shown
	State    string
	Tone     string
	NextAt   time.Time // zero: nothing is planned, as far as is known
	// Due: the time is past, and the breaker or another event of the queue comes first.
	Due bool
}

type attemptView struct {
	ledger.AttemptRecord
	ID string // on the page
}

func (a *attemptView) StateName() string {
	switch a.State {
	case "retrying":
		return "failed"
	case "undelivered":
		return "given up"
	case "notSent":
		return "not sent"
	}
	return a.State
}

// Sent reports whether anything went out at all.
func (a *attemptView) Sent() bool { return a.State != "notSent" }

// Result is the answer's status, and what else went wrong.
func (a *attemptView) Result() string {
	status := ""
	if a.HTTPStatus != 0 {
		status = fmt.Sprintf("HTTP %d", a.HTTPStatus)
	}
	if a.Error == "" || a.Error == fmt.Sprintf("status: %d", a.HTTPStatus) {
		return status
	}
	return strings.TrimSpace(status + " " + a.Error)
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
func timeline(id delivery.OrderID, steps []step, attempts []ledger.AttemptRecord, now time.Time) (views []stepView, omitted int) {
	byEvent := map[string][]ledger.AttemptRecord{}
	for _, a := range attempts {
		byEvent[a.EventID] = append(byEvent[a.EventID], a)
	}
	views, omitted = make([]stepView, len(steps)), len(attempts)
	for i, s := range steps {
		v := &views[i]
		v.step = s
		if i > 0 {
			v.After = layout.Span(max(s.At.Sub(steps[0].At), 0))
		}
		if s.event() {
			v.EventID = delivery.EventID(id, s.Version)
			v.take(byEvent[v.EventID], i, now)
			omitted -= len(byEvent[v.EventID])
		}
	}
	cutAnswers(views)
	return views, omitted
}

func (s *stepView) take(attempts []ledger.AttemptRecord, number int, now time.Time) {
	if n := len(attempts) - attemptsOfEvent; n > 0 {
		attempts, s.Omitted = attempts[n:], n
	}
	for i, a := range attempts {
		s.Attempts = append(s.Attempts, attemptView{a, fmt.Sprintf("answer-%d-%d", number, i+s.Omitted)})
	}
	if len(attempts) == 0 {
		s.State, s.Tone = "without a recorded attempt", "quiet"
		if now.Sub(s.At) < refreshedAfterEnd {
			s.State = "not sent yet"
		}
		return
	}
	last := &s.Attempts[len(attempts)-1]
	s.State, s.Tone = last.StateName(), layout.Tone(last.State)
	if last.State == "retrying" {
		s.State = "to be tried again"
		switch late := now.Sub(last.NextAt); {
		case last.NextAt.IsZero():
		case late < 0:
			s.NextAt = last.NextAt
		case late < retriedFor:
			s.Due = true
		}
	}
}

// waiting reports whether an event is still to be delivered.
func waiting(steps []stepView) bool {
	return slices.ContainsFunc(steps, func(s stepView) bool {
		return s.EventID != "" && (len(s.Attempts) == 0 || s.Attempts[len(s.Attempts)-1].State == "retrying")
	})
}

// cutAnswers keeps the page small, whatever receivers answer.
func cutAnswers(steps []stepView) {
	left := answersOfPage
	for i := len(steps) - 1; i >= 0; i-- {
		for j := len(steps[i].Attempts) - 1; j >= 0; j-- {
			a := &steps[i].Attempts[j]
			size := len(template.HTMLEscapeString(a.Answer))
			if size > left && len(a.Answer) > shortAnswer {
				a.Answer = strings.ToValidUTF8(a.Answer[:shortAnswer], "") + "…"
				continue
			}
			left = max(left-size, 0)
		}
	}
}
