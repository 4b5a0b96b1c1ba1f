package main

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"time"

	"vendorapi/internal/stack"
)

// The client that behaves: orders at a rate that disturbs nobody, before, during
// and after the overload.
const (
	steadyRate        = 100
	steadyConnections = 32
)

// overload is the case load.
func (r *run) overload(ctx context.Context) error {
	f := r.form
	var o stack.Options
	if f.inFlight != "" {
		o.Env = []string{"MAX_IN_FLIGHT=" + f.inFlight}
	}
	// One more, for the client that behaves.
	s, err := r.start(ctx, "load", o, f.wide+1, f.ordinary)
	if err != nil {
		return err
	}
	defer s.Stop()
	sustainable, orders := r.sustainable(ctx, s)
	before := r.steadily(ctx, s, 4*time.Second)
	calm := p99(before.accepted)
	r.sheet.tell("an ordinary request before, p99", "%s", milliseconds(calm))

	w := watch{pids: map[string]func() int{"gateway": s.Gateway.PID, "worker": s.Worker.PID, "redis": s.redis.PID}}
	pids := []int{s.Gateway.PID(), s.Worker.PID(), s.redis.PID()}
	w.begin(ctx, f.load)
	var during *tally
	var steady sync.WaitGroup
	steady.Go(func() { during = r.steadily(ctx, s, f.load) })
	began := time.Now()
	load := newTally()
	v := s.ordering(append(upTo(0, f.wide), upTo(f.wide+1, f.wide+1+f.ordinary)...), f.connections, f.times*sustainable, f.load)
	v.fire(ctx, load)
	lasted := time.Since(began)
	back, after := r.recover(ctx, s, began.Add(f.load), calm)
	traces := w.end()
	steady.Wait()

	r.judgeLoad(load, sustainable, lasted)
	r.sheet.tell("a client with 100 orders a second meanwhile", "%d of %d accepted at the first try", len(during.orders), during.arrived)
	r.judgeMemory(traces, f.connections, len(load.orders)+len(during.orders)+len(after))
	ended := "none"
	if !slices.Equal(pids, []int{s.Gateway.PID(), s.Worker.PID(), s.redis.PID()}) || !s.alive(ctx) {
		ended = "some"
	}
	r.sheet.demand(ended == "none", "programs that ended", "none", "%s", ended)
	r.sheet.demand(back >= 0 && back <= f.recovery, "back to normal", "within "+f.recovery.String()+" of the last arrival",
		"%s, p99 at most %s", back.Round(time.Millisecond), milliseconds(max(4*calm, f.normal)))
	s.judgeOrdinary(load, f.wide+1, lasted)
	s.proveKept(ctx, slices.Concat(orders, before.orders, load.orders, during.orders, after))
	return nil
}

// recover answers how long after the end of the overload a second began in which
// the client that behaves was served as before: every order accepted, 99 % of
// them nearly as soon. -1: it has not been seen. It also answers what was
// accepted meanwhile.
func (r *run) recover(ctx context.Context, s *system, end time.Time, calm time.Duration) (time.Duration, []placed) {
	var orders []placed
	for time.Since(end) <= r.form.recovery && ctx.Err() == nil {
		began := time.Since(end)
		t := r.steadily(ctx, s, time.Second)
		orders = append(orders, t.orders...)
		if len(t.orders) == t.arrived && p99(t.accepted) <= max(4*calm, r.form.normal) {
			return began, orders
		}
	}
	return -1, orders
}

// alive reports whether the gateway and the worker say that they are ready.
func (s *system) alive(ctx context.Context) bool {
	return s.Gateway.AwaitReady(ctx) == nil && s.Worker.AwaitReady(ctx) == nil
}

// sustainable measures how many orders a second are accepted when every client
// waits for its answer.
func (r *run) sustainable(ctx context.Context, s *system) (float64, []placed) {
	const clients = 64
	t := newTally()
	d := min(4*time.Second, r.form.load/2)
	v := s.ordering(upTo(0, r.form.wide), clients, 0, d)
	v.fire(ctx, t)
	rate := float64(len(t.orders)) / time.Since(t.began).Seconds()
	r.sheet.demand(t.served(t.accepted.TotalCount(), r.form.share), "sustainable, orders/s", "no error",
		"%.0f (%d clients, each waiting for its answer)%s", rate, clients, t.oddity())
	return max(rate, 1), t.orders
}

// steadily lets the client that behaves order for a while.
func (r *run) steadily(ctx context.Context, s *system, d time.Duration) *tally {
	t := newTally()
	v := s.ordering([]int{r.form.wide}, steadyConnections, steadyRate, d)
	v.fire(ctx, t)
	return t
}

func (r *run) judgeLoad(t *tally, sustainable float64, lasted time.Duration) {
	seconds := r.form.load.Seconds()
	answers := t.accepted.TotalCount() + t.limited.TotalCount() + t.busy.TotalCount() + int64(t.wrong)
	r.sheet.tell("orders that arrived, a second", "%.0f for %.0f s, on %d connections; %.0f %% found one free", float64(t.arrived)/seconds, seconds,
		r.form.connections, 100*float64(t.sent())/float64(t.arrived))
	r.sheet.tell("answered, a second", "%.0f: %.0f accepted, %.0f 429, %.0f 503", float64(answers)/lasted.Seconds(),
		float64(t.accepted.TotalCount())/lasted.Seconds(), float64(t.limited.TotalCount())/lasted.Seconds(), float64(t.busy.TotalCount())/lasted.Seconds())
	share := float64(t.accepted.TotalCount()) / lasted.Seconds() / sustainable
	r.sheet.demand(share >= 0.1, "accepted under the overload, of the sustainable rate", "10 % or more", "%.0f %%", 100*share)
	r.sheet.tell("accepted orders took", "p50 %s, p99 %s", milliseconds(time.Duration(t.accepted.ValueAtQuantile(50))*time.Microsecond), milliseconds(p99(t.accepted)))
	r.sheet.demand(t.wrong == 0, "answers that are neither 201, nor 429 or 503 with Retry-After and the same in the body", "none", "%d%s", t.wrong, t.oddity())
	r.sheet.demand(float64(len(t.unknown)) <= (1-r.form.share)*float64(t.sent()), "requests without an answer", "none", "%d", len(t.unknown))
	r.sheet.demand(p99(t.limited) <= r.form.quick, "429 took, p99", "at most "+r.form.quick.String(), "%s", milliseconds(p99(t.limited)))
	r.sheet.demand(p99(t.busy) <= r.form.quick, "503 took, p99", "at most "+r.form.quick.String(), "%s", milliseconds(p99(t.busy)))
}

// judgeMemory bounds what the programs hold: the gateway what its connections
// need, Redis what the orders need, the worker nothing that grows with the load.
func (r *run) judgeMemory(traces map[string]*trace, connections, orders int) {
	const spare, perConnection, perOrder = 96 << 20, 64 << 10, 4 << 10
	bound := func(name string, most uint64, why string) {
		t := traces[name]
		r.sheet.demand(t.grown() <= most, "resident memory of "+name, "at most "+mebibytes(most)+" more: "+why, "%s", t)
	}
	bound("gateway", spare+uint64(connections)*perConnection, "96 MiB and 64 KiB a connection")
	bound("worker", spare, "96 MiB")
	bound("redis", spare+uint64(orders)*perOrder, "96 MiB and 4 KiB an order")
}

// judgeOrdinary checks that no vendor at its ordinary limits got more than they
// allow, in the coarse way that counts over the whole run permit: 120 in any 10 s
// and 600 in any 60 s.
func (s *system) judgeOrdinary(t *tally, first int, lasted time.Duration) {
	accepted := make([]int, len(s.vendors))
	for _, o := range t.orders {
		accepted[o.vendor]++
	}
	windows := func(span time.Duration) int { return int((lasted + span - 1) / span) }
	most := min(120*windows(10*time.Second), 600*windows(time.Minute))
	s.sheet.demand(slices.Max(accepted[first:]) <= most, "accepted for a vendor at its ordinary limits", "at most "+strconv.Itoa(most), "%d to %d",
		slices.Min(accepted[first:]), slices.Max(accepted[first:]))
}
