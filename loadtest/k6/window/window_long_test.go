//go:build long

package window

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

var start = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// at is a request that took 2 ms.
func at(ms int, o Outcome) Request {
	sent := start.Add(time.Duration(ms) * time.Millisecond)
	return Request{sent, sent.Add(2 * time.Millisecond), o}
}

func volley(n, from, step int, o Outcome) (requests []Request) {
	for i := range n {
		requests = append(requests, at(from+i*step, o))
	}
	return requests
}

func TestJudge(t *testing.T) {
	t.Parallel()
	ten := []Limit{{Count: 10, Span: time.Second}}
	for name, c := range map[string]struct {
		requests []Request
		limits   []Limit
		most     int
		wronged  int
		holds    bool
	}{
		"nothing":                        {nil, ten, 0, 0, true},
		"exactly the limit":              {volley(10, 0, 5, Admitted), ten, 10, 0, true},
		"one more":                       {volley(11, 0, 5, Admitted), ten, 11, 0, false},
		"one more after the span":        {append(volley(10, 0, 5, Admitted), at(1000, Admitted)), ten, 10, 0, true},
		"one more, maybe after the span": {append(volley(10, 0, 5, Admitted), at(998, Admitted)), ten, 10, 0, true},
		"one more, certainly within":     {append(volley(10, 0, 5, Admitted), at(990, Admitted)), ten, 11, 0, false},
		"refused at the limit":           {append(volley(10, 0, 5, Admitted), at(500, Refused)), ten, 10, 0, true},
		"refused below the limit":        {append(volley(9, 0, 5, Admitted), at(500, Refused)), ten, 9, 1, false},
		"refused, an answer was lost":    {append(volley(9, 0, 5, Admitted), at(400, Unknown), at(500, Refused)), ten, 9, 0, true},
		"refused after the span":         {append(volley(10, 0, 0, Admitted), at(1010, Refused)), ten, 10, 1, false},
		"refused, maybe within the span": {append(volley(10, 0, 0, Admitted), at(1001, Refused)), ten, 10, 0, true},
		"refused by another window": {append(volley(5, 0, 10, Admitted), at(60, Refused)),
			[]Limit{{10, time.Second}, {5, 100 * time.Millisecond}}, 5, 0, true},
		"no limit refuses nothing": {volley(3, 0, 1, Refused), nil, 0, 0, true},
	} {
		v := Judge(c.requests, c.limits)
		if len(c.limits) > 0 && v.Most[0] != c.most || v.Wronged != c.wronged || v.Holds(c.limits) != c.holds {
			t.Errorf("%s: %+v, holds %v", name, v, v.Holds(c.limits))
		}
	}
}

// Whatever a service does that counts exactly, each request at some moment
// between its bounds, it is never found guilty.
func TestJudge_IsNeverWrong(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := Limit{Count: rapid.IntRange(1, 8).Draw(t, "count"), Span: 100 * time.Millisecond}
		if v := Judge(serve(t, limit), []Limit{limit}); !v.Holds([]Limit{limit}) {
			t.Fatalf("an exact service is found guilty: %+v", v)
		}
	})
}

// serve plays a service with an exact log, before an outside that knows the
// moments only loosely.
func serve(t *rapid.T, limit Limit) (requests []Request) {
	counted := start
	var log []time.Time
	for range rapid.IntRange(1, 60).Draw(t, "requests") {
		counted = counted.Add(time.Duration(rapid.IntRange(0, 30).Draw(t, "gap")) * time.Millisecond)
		r := Request{
			Sent:     counted.Add(-time.Duration(rapid.IntRange(0, 40).Draw(t, "before")) * time.Millisecond),
			Answered: counted.Add(time.Duration(rapid.IntRange(0, 40).Draw(t, "after")) * time.Millisecond),
			Outcome:  Refused,
		}
		within := 0
		for _, l := range log {
			if counted.Sub(l) < limit.Span {
				within++
			}
		}
		if within < limit.Count {
			log = append(log, counted)
			r.Outcome = Admitted
			if rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
				r.Outcome = Unknown
			}
		}
		requests = append(requests, r)
	}
	return requests
}

// One that allows one more, or one less, is found out when the moments are known
// closely enough.
func TestJudge_FindsOutOneTooManyOrTooFew(t *testing.T) {
	t.Parallel()
	limit := Limit{Count: 5, Span: 100 * time.Millisecond}
	for _, allowed := range []int{limit.Count - 1, limit.Count + 1} {
		requests := hammer(limit, allowed)
		if v := Judge(requests, []Limit{limit}); v.Holds([]Limit{limit}) {
			t.Errorf("a service that allows %d passes: %+v", allowed, v)
		}
	}
}

// hammer asks every 5 ms and is answered within 1 ms.
func hammer(limit Limit, allowed int) (requests []Request) {
	var log []time.Time
	for ms := 0; ms < 500; ms += 5 {
		counted := start.Add(time.Duration(ms) * time.Millisecond)
		r := Request{counted, counted.Add(time.Millisecond), Refused}
		within := 0
		for _, l := range log {
			if counted.Sub(l) < limit.Span {
				within++
			}
		}
		if within < allowed {
			log, r.Outcome = append(log, counted), Admitted
		}
		requests = append(requests, r)
	}
	return requests
}
