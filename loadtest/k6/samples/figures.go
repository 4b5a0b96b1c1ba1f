package samples

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Figures sum up many requests.
type Figures struct {
	Name               string // the endpoint or the step
	Count              int
	Rate               float64 // per second, over the time that the requests span
	P50, P95, P99, Max time.Duration
	Answers            map[Answer]int // how many were answered what
}

// Answer is a kind of answer, see Request.
type Answer struct {
	Status int
	Failed bool
}

// figures of requests whose name is given; rates are over span.
func figures(name string, requests []Request, span time.Duration) Figures {
	f := Figures{Name: name, Count: len(requests), Answers: map[Answer]int{}}
	took := make([]time.Duration, len(requests))
	for i := range requests {
		took[i] = requests[i].Took()
		f.Answers[Answer{requests[i].Status, requests[i].Failed}]++
	}
	slices.Sort(took)
	f.P50, f.P95, f.P99, f.Max = percentile(took, 50), percentile(took, 95), percentile(took, 99), percentile(took, 100)
	if span > 0 {
		f.Rate = float64(f.Count) / span.Seconds()
	}
	return f
}

// percentile is the smallest of the ascending values that p percent of all do
// not exceed; 0 of none.
func percentile(ascending []time.Duration, p int) time.Duration {
	if len(ascending) == 0 {
		return 0
	}
	return ascending[max(0, (len(ascending)*p+99)/100-1)]
}

// Span is when the first request was sent and the last one answered.
func (run *Run) Span() (from, to time.Time) {
	for i, r := range run.Requests {
		if i == 0 || r.Sent.Before(from) {
			from = r.Sent
		}
		if r.Answered.After(to) {
			to = r.Answered
		}
	}
	return from, to
}

// All are the figures of every request.
func (run *Run) All() Figures {
	from, to := run.Span()
	return figures("", run.Requests, to.Sub(from))
}

// Endpoints are the figures by endpoint, the busiest first.
func (run *Run) Endpoints() []Figures {
	from, to := run.Span()
	var all []Figures
	for name, requests := range run.by(func(r *Request) string { return r.Endpoint }) {
		all = append(all, figures(name, requests, to.Sub(from)))
	}
	slices.SortFunc(all, func(a, b Figures) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Name, b.Name))
	})
	return all
}

// Steps are the figures by step of a ramp, the slowest rate first; none for
// scripts without steps. Each has a time of its own.
func (run *Run) Steps() []Figures {
	var all []Figures
	for name, requests := range run.by(func(r *Request) string { return r.Step }) {
		if name == "" {
			continue
		}
		part := Run{Requests: requests}
		from, to := part.Span()
		all = append(all, figures(name, requests, to.Sub(from)))
	}
	slices.SortFunc(all, func(a, b Figures) int { return cmp.Compare(offered(a.Name), offered(b.Name)) })
	return all
}

// offered is the rate that a step's name tells.
func offered(step string) float64 {
	rate, _ := strconv.ParseFloat(strings.TrimSuffix(step, "/s"), 64) // a name without a rate comes first
	return rate
}

// Offered is the rate per second that a step asked for.
func (f Figures) Offered() float64 { return offered(f.Name) }

func (run *Run) by(name func(*Request) string) map[string][]Request {
	groups := map[string][]Request{}
	for i := range run.Requests {
		r := &run.Requests[i]
		groups[name(r)] = append(groups[name(r)], *r)
	}
	return groups
}

// Moment is one piece of a run's time.
type Moment struct {
	From     time.Duration // since the run's beginning
	Length   time.Duration
	Count    int // requests answered in it
	Refused  int // of which with 429
	Failed   int // of which failed, see Request
	P50, P95 time.Duration
}

// Moments cut the run's time into pieces of whole seconds, at most `most` of
// them. The last one has what remains, too.
func (run *Run) Moments(most int) []Moment {
	from, to := run.Span()
	if len(run.Requests) == 0 || most < 1 {
		return nil
	}
	length := time.Duration(math.Ceil(to.Sub(from).Seconds()/float64(most))) * time.Second
	length = max(length, time.Second)
	moments := make([]Moment, max(1, to.Sub(from)/length))
	took := make([][]time.Duration, len(moments))
	for i := range run.Requests {
		r := &run.Requests[i]
		n := min(int(r.Answered.Sub(from)/length), len(moments)-1)
		took[n] = append(took[n], r.Took())
		moments[n].Count++
		switch {
		case r.Failed:
			moments[n].Failed++
		case r.Status == 429:
			moments[n].Refused++
		}
	}
	for n := range moments {
		slices.Sort(took[n])
		moments[n].From, moments[n].Length = time.Duration(n)*length, length
		if n == len(moments)-1 {
			moments[n].Length = to.Sub(from) - moments[n].From
		}
		moments[n].P50, moments[n].P95 = percentile(took[n], 50), percentile(took[n], 95)
	}
	return moments
}
