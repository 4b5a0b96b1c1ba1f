// Package window judges limits from outside: was more admitted than a limit
// allows, was anything refused that it allows.
//
// A vendor does not know when the service counted a request, only that it was
// between sending it and having the answer. Every request therefore has two
// bounds, and this package owns what can be concluded from them with certainty;
// it refuses to guess. loadtest/lib/window.js says the same to a single script.
//
//	sent ──────── counted somewhere here ──────── answered
package window

import (
	"slices"
	"time"
)

// skew is the part by which the vendor's clock and the service's may run apart:
// NTP slews each by at most 500 ppm.
const skew = 0.001

// Limit is "at most Count in any Span". An account's limits hold together: a
// request is admitted when all of them allow it.
type Limit struct {
	Count int
	Span  time.Duration
}

// Request is one request of one account to one endpoint.
type Request struct {
	Sent, Answered time.Time
	Outcome        Outcome
}

// Outcome is what is known of whether a request was counted.
type Outcome uint8

// The outcomes. Unknown is for a request whose answer was lost or says nothing
// about it: it counts as admitted where that speaks for the service, and not
// where it speaks against it.
const (
	Unknown Outcome = iota
	Admitted
	Refused
)

// Verdict is what is certain.
type Verdict struct {
	Admitted, Refused int
	// Most is, limit by limit, the most that was certainly admitted within its
	// span; more than its Count is a violation.
	Most []int
	// Wronged is how many were refused although every limit had room.
	Wronged int
}

// Judge looks at all requests of one account to one endpoint, in any order.
func Judge(requests []Request, limits []Limit) Verdict {
	v := Verdict{Most: make([]int, len(limits))}
	var certain, possible bounds
	for _, r := range requests {
		switch r.Outcome {
		case Admitted:
			v.Admitted++
			certain.add(r)
			possible.add(r)
		case Unknown:
			possible.add(r)
		case Refused:
			v.Refused++
		}
	}
	certain.sort()
	possible.sort()
	for i, l := range limits {
		v.Most[i] = certain.most(shorter(l.Span))
	}
	for _, r := range requests {
		if r.Outcome == Refused && possible.hadRoom(r, limits) {
			v.Wronged++
		}
	}
	return v
}

// Holds reports whether the limits were kept, and nothing within them refused.
func (v Verdict) Holds(limits []Limit) bool {
	for i, l := range limits {
		if v.Most[i] > l.Count {
			return false
		}
	}
	return v.Wronged == 0
}

// bounds are the two moments of many requests, each ascending.
type bounds struct{ sent, answered []time.Time }

func (b *bounds) add(r Request) {
	b.sent = append(b.sent, r.Sent)
	b.answered = append(b.answered, r.Answered)
}

func (b *bounds) sort() {
	slices.SortFunc(b.sent, time.Time.Compare)
	slices.SortFunc(b.answered, time.Time.Compare)
}

// most is the largest number that was certainly counted within less than span:
// those answered by some moment, less all that were sent before the span that
// ends there.
func (b *bounds) most(span time.Duration) int {
	most := 0
	for i, end := range b.answered {
		most = max(most, i+1-upTo(b.sent, end.Add(-span)))
	}
	return most
}

// hadRoom reports whether, at whatever moment r was refused, fewer than allowed
// can have been counted in every limit's window before it.
func (b *bounds) hadRoom(r Request, limits []Limit) bool {
	for _, l := range limits {
		if upTo(b.sent, r.Answered)-upTo(b.answered, r.Sent.Add(-longer(l.Span))) >= l.Count {
			return false
		}
	}
	return len(limits) > 0
}

// upTo is how many of the ascending moments are not after t.
func upTo(moments []time.Time, t time.Time) int {
	n, _ := slices.BinarySearchFunc(moments, t, func(m, t time.Time) int {
		if m.After(t) {
			return 1
		}
		return -1
	})
	return n
}

func shorter(d time.Duration) time.Duration { return time.Duration(float64(d) * (1 - skew)) }
func longer(d time.Duration) time.Duration  { return time.Duration(float64(d) * (1 + skew)) }
