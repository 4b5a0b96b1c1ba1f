package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"vendorapi/loadtest/harness"
)

// The client that goes on through the overload, which the system hardly notices without it.
const (
	steadyRate        = 100 // orders a second
	steadyConnections = 32
)

// steadily lets the steady vendor order for a while.
func (s *ownSystem) steadily(ctx context.Context, d time.Duration) *tally {
	return s.order(ctx, []*loadVendor{s.steady}, load{connections: steadyConnections, rate: steadyRate, duration: d})
}

// tenfoldLoad measures the rate of orders that can be sustained, then offers ten times as many.
func (s *ownSystem) tenfoldLoad(ctx context.Context) {
	closed, sustainable := s.measureSustainable(ctx)
	before := s.steadily(ctx, 4*time.Second)
	normal := max(4*p99(before.accepted), s.form.normal)
	s.figure("an ordinary request before, p99", "%s", milliseconds(p99(before.accepted)))

	processes := s.processes()
	watched := watch(ctx, processes...)
	var during *tally
	var steady sync.WaitGroup
	steady.Go(func() { during = s.steadily(ctx, s.form.load) })
	began := time.Now()
	overload := s.order(ctx, slices.Concat(s.wide, s.ordinary), load{
		connections: s.form.connections,
		rate:        s.form.times * sustainable,
		duration:    s.form.load,
	})

	lasted := time.Since(began)
	after, normalAfter := s.awaitNormal(ctx, began.Add(s.form.load), normal)
	used := watched()
	steady.Wait()

	s.checkAnswers(overload, sustainable, lasted)
	s.figure("a client with 100 orders a second beside it", "%d of %d accepted at the first try",
		len(during.orders), during.arrived)
	s.checkMemory(used, len(overload.orders)+len(during.orders)+len(after))
	s.check(expectation{
		what:  "programs that ended",
		want:  "none",
		got:   fmt.Sprintf("%v, at first %v", s.processes(), processes),
		holds: slices.Equal(processes, s.processes()),
	})

	s.checkReady(ctx, s.Gateway, s.Worker)
	s.check(expectation{
		what:  "back to normal",
		want:  "within " + s.form.recovery.String() + " of the last arrival",
		got:   fmt.Sprintf("%s, p99 at most %s", normalAfter.Round(time.Millisecond), milliseconds(normal)),
		holds: normalAfter >= 0 && normalAfter <= s.form.recovery,
	})

	s.checkOrdinary(overload, lasted)
	s.checkKept(ctx, closed.orders, before.orders, overload.orders, during.orders, after)
}

// measureSustainable returns how many orders a second the system takes from clients who wait for their answers.
func (s *ownSystem) measureSustainable(ctx context.Context) (t *tally, rate float64) {
	const clients = 64
	began := time.Now()
	t = s.order(ctx, s.wide, load{connections: clients, duration: min(4*time.Second, s.form.load/2)})
	rate = max(1, float64(len(t.orders))/time.Since(began).Seconds())
	s.check(expectation{
		what:  "sustainable, orders/s",
		want:  "no error",
		got:   fmt.Sprintf("%.0f (%d clients, each waiting for its answer)%s", rate, clients, t.problems()),
		holds: t.served(t.accepted, s.form.share),
	})

	return t, rate
}

// awaitNormal lets the steady vendor order second by second, until every order of a second is accepted and 99 % take
// no longer than is normal. It returns the orders, and how long after the end that second began; negative: none did
// in time.
func (s *ownSystem) awaitNormal(ctx context.Context, end time.Time, normal time.Duration) (orders []placed, after time.Duration) {
	for time.Since(end) <= s.form.recovery && ctx.Err() == nil {
		began := time.Since(end)
		second := s.steadily(ctx, time.Second)
		orders = append(orders, second.orders...)
		if len(second.orders) == second.arrived && p99(second.accepted) <= normal {
			return orders, began
		}
	}
	return orders, -1
}

// checkAnswers checks how the overload was answered: soon, and as it should be.
func (s *ownSystem) checkAnswers(t *tally, sustainable float64, lasted time.Duration) {
	perSecond := func(n int64) float64 { return float64(n) / lasted.Seconds() }
	accepted := perSecond(t.accepted.TotalCount())
	limited, busy := perSecond(t.limited.TotalCount()), perSecond(t.busy.TotalCount())
	share := accepted / sustainable

	s.figure("orders that arrived, a second", "%.0f for %.0f s, on %d connections; %.0f %% found one free",
		float64(t.arrived)/s.form.load.Seconds(), s.form.load.Seconds(), s.form.connections,
		100*float64(t.sent)/float64(t.arrived))
	s.figure("answered, a second", "%.0f: %.0f accepted, %.0f 429, %.0f 503",
		accepted+limited+busy+perSecond(int64(t.wrong)), accepted, limited, busy)
	s.check(expectation{
		what:  "accepted under the overload, of the sustainable rate",
		want:  "10 % or more",
		got:   fmt.Sprintf("%.0f %%", 100*share),
		holds: share >= 0.1,
	})

	s.figure("accepted orders took", "p50 %s, p99 %s",
		milliseconds(time.Duration(t.accepted.ValueAtQuantile(50))*time.Microsecond), milliseconds(p99(t.accepted)))
	s.check(expectation{
		what:  "answers that are neither 201, nor 429 or 503 with Retry-After and the same in the body",
		want:  "none",
		got:   fmt.Sprintf("%d%s", t.wrong, t.problems()),
		holds: t.wrong == 0,
	})

	s.check(expectation{
		what:  "requests without an answer",
		want:  "none",
		got:   strconv.Itoa(t.unknown),
		holds: float64(t.unknown) <= (1-s.form.share)*float64(t.sent),
	})

	s.checkP99(t.limited, s.form.quick, "429 took")
	s.checkP99(t.busy, s.form.quick, "503 took")
}

// checkMemory checks that a gateway needs memory for connections and Redis for orders, and that the worker's does not
// grow with the load.
func (s *ownSystem) checkMemory(used map[string]harness.Watched, orders int) {
	const (
		MiB           = 1 << 20
		spare         = 96 * MiB
		perConnection = 64 << 10
		perOrder      = 4 << 10
	)

	check := func(name string, most int, why string) {
		w := used[name]
		s.check(expectation{
			what:  "resident memory of " + name,
			want:  fmt.Sprintf("at most %d MiB more: %s", most/MiB, why),
			got:   fmt.Sprintf("%d MiB before, at most %d, in the end %d", w.Begin/MiB, w.Peak/MiB, w.Now/MiB),
			holds: w.Peak <= w.Begin+uint64(most),
		})
	}

	check("gateway", spare+s.form.connections*perConnection, "96 MiB and 64 KiB a connection")
	check("worker", spare, "96 MiB")
	check("redis", spare+orders*perOrder, "96 MiB and 4 KiB an order")
}

// checkOrdinary checks that vendors with ordinary limits got at most 120 orders in any 10 s and 600 in any 60 s.
func (s *ownSystem) checkOrdinary(t *tally, lasted time.Duration) {
	accepted := make([]int, len(s.ordinary))
	for _, o := range t.orders {
		if i := slices.Index(s.ordinary, o.vendor); i >= 0 {
			accepted[i]++
		}
	}

	windows := func(span time.Duration) int { return int((lasted + span - 1) / span) }
	most := min(120*windows(10*time.Second), 600*windows(time.Minute))
	s.check(expectation{
		what:  "accepted for a vendor at its ordinary limits",
		want:  "at most " + strconv.Itoa(most),
		got:   fmt.Sprintf("%d to %d", slices.Min(accepted), slices.Max(accepted)),
		holds: slices.Max(accepted) <= most,
	})
}
