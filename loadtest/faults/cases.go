package main

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// The rates of the clients beside which things happen.
const (
	steadyRate        = 100 // orders a second, which the system hardly notices
	steadyConnections = 32
	calmOrders        = 50 // orders a second, where the load is not the subject
	calmReads         = 20
	calmConnections   = 16
)

func (s *overloaded) tenfoldLoad(ctx context.Context) error {
	f := &s.form
	steadily := func(d time.Duration) *tally {
		return s.order(ctx, []*loadVendor{s.steady}, load{connections: steadyConnections, rate: steadyRate, duration: d})
	}
	const clients = 64
	began := time.Now()
	closed := s.order(ctx, s.wide, load{connections: clients, duration: min(4*time.Second, f.load/2)})
	sustainable := max(1, float64(len(closed.orders))/time.Since(began).Seconds())
	s.check(closed.served(closed.accepted, f.share), "sustainable, orders/s", "no error",
		"%.0f (%d clients, each waiting for its answer)%s", sustainable, clients, closed.problems())
	before := steadily(4 * time.Second)
	normal := max(4*p99(before.accepted), f.normal)
	s.figure("an ordinary request before, p99", "%s", milliseconds(p99(before.accepted)))

	pids := s.processes()
	watched := watch(ctx, pids...)
	var during *tally
	var steady sync.WaitGroup
	steady.Go(func() { during = steadily(f.load) })
	began = time.Now()
	t := s.order(ctx, slices.Concat(s.wide, s.ordinary),
		load{connections: f.connections, rate: f.times * sustainable, duration: f.load})
	lasted := time.Since(began)
	// Back to normal: the steady client gets every order of a second accepted, 99 % nearly as soon as before.
	var after []placed
	back := time.Duration(-1)
	for end := began.Add(f.load); back < 0 && time.Since(end) <= f.recovery && ctx.Err() == nil; {
		since := time.Since(end)
		second := steadily(time.Second)
		after = append(after, second.orders...)
		if len(second.orders) == second.arrived && p99(second.accepted) <= normal {
			back = since
		}
	}
	used := watched()
	steady.Wait()

	s.checkLoad(t, sustainable, lasted)
	s.figure("a client with 100 orders a second meanwhile", "%d of %d accepted at the first try",
		len(during.orders), during.arrived)
	s.checkMemory(used, len(t.orders)+len(during.orders)+len(after))
	s.check(slices.Equal(pids, s.processes()), "programs that ended", "none", "%v, at first %v", s.processes(), pids)
	s.checkReady(ctx, s.Gateway, s.Worker)
	s.check(back >= 0 && back <= f.recovery, "back to normal", "within "+f.recovery.String()+" of the last arrival",
		"%s, p99 at most %s", back.Round(time.Millisecond), milliseconds(normal))
	s.checkOrdinary(t, lasted)
	s.checkKept(ctx, closed.orders, before.orders, t.orders, during.orders, after)
	return nil
}

func (s *overloaded) checkLoad(t *tally, sustainable float64, lasted time.Duration) {
	perSecond := func(n int64) float64 { return float64(n) / lasted.Seconds() }
	accepted := perSecond(t.accepted.TotalCount())
	limited, busy := perSecond(t.limited.TotalCount()), perSecond(t.busy.TotalCount())
	s.figure("orders that arrived, a second", "%.0f for %.0f s, on %d connections; %.0f %% found one free",
		float64(t.arrived)/s.form.load.Seconds(), s.form.load.Seconds(), s.form.connections,
		100*float64(t.sent)/float64(t.arrived))
	s.figure("answered, a second", "%.0f: %.0f accepted, %.0f 429, %.0f 503",
		accepted+limited+busy+perSecond(int64(t.wrong)), accepted, limited, busy)
	share := accepted / sustainable
	s.check(share >= 0.1, "accepted under the overload, of the sustainable rate", "10 % or more", "%.0f %%", 100*share)
	s.figure("accepted orders took", "p50 %s, p99 %s",
		milliseconds(time.Duration(t.accepted.ValueAtQuantile(50))*time.Microsecond), milliseconds(p99(t.accepted)))
	s.check(t.wrong == 0, "answers that are neither 201, nor 429 or 503 with Retry-After and the same in the body",
		"none", "%d%s", t.wrong, t.problems())
	s.check(float64(t.unknown) <= (1-s.form.share)*float64(t.sent), "requests without an answer", "none", "%d", t.unknown)
	s.checkP99(t.limited, s.form.quick, "429 took")
	s.checkP99(t.busy, s.form.quick, "503 took")
}

// checkMemory: a gateway needs memory for connections, Redis for orders; the worker's does not grow with the load.
func (s *overloaded) checkMemory(used map[string]used, orders int) {
	const MiB, spare, perConnection, perOrder = 1 << 20, 96 << 20, 64 << 10, 4 << 10
	for _, bound := range []struct {
		name string
		most int
		why  string
	}{
		{"gateway", spare + s.form.connections*perConnection, "96 MiB and 64 KiB a connection"},
		{"worker", spare, "96 MiB"},
		{"redis", spare + orders*perOrder, "96 MiB and 4 KiB an order"},
	} {
		w := used[bound.name]
		s.check(w.Peak <= w.Begin+uint64(bound.most), "resident memory of "+bound.name,
			fmt.Sprintf("at most %d MiB more: %s", bound.most/MiB, bound.why),
			"%d MiB before, at most %d, in the end %d", w.Begin/MiB, w.Peak/MiB, w.Now/MiB)
	}
}

// checkOrdinary: vendors with ordinary limits got at most 120 in any 10 s and 600 in any 60 s.
func (s *overloaded) checkOrdinary(t *tally, lasted time.Duration) {
	accepted := make([]int, len(s.ordinary))
	for _, o := range t.orders {
		if i := slices.Index(s.ordinary, o.vendor); i >= 0 {
			accepted[i]++
		}
	}
	windows := func(span time.Duration) int { return int((lasted + span - 1) / span) }
	most := min(120*windows(10*time.Second), 600*windows(time.Minute))
	s.check(slices.Max(accepted) <= most, "accepted for a vendor at its ordinary limits", "at most "+strconv.Itoa(most),
		"%d to %d", slices.Min(accepted), slices.Max(accepted))
}

// phase lets the wide vendors order, and read what was accepted before, for a while.
func (s *overloaded) phase(ctx context.Context, d time.Duration, known []placed) (orders, reads *tally) {
	var both sync.WaitGroup
	both.Go(func() {
		orders = s.order(ctx, s.wide, load{connections: calmConnections, rate: calmOrders, duration: d})
	})
	if len(known) > 0 {
		both.Go(func() { reads = s.read(ctx, known, load{connections: calmConnections, rate: calmReads, duration: d}) })
	}
	both.Wait()
	return orders, reads
}

func (s *overloaded) before(ctx context.Context) *tally {
	t, _ := s.phase(ctx, s.form.phase, nil)
	s.checkServed(t, "orders before")
	return t
}

func (s *overloaded) checkAccepted(ctx context.Context, limit time.Duration, what string) (first []placed) {
	s.checkBecomes(ctx, limit, what, "", func() (bool, string) {
		first = s.order(ctx, s.wide, load{connections: 1, duration: time.Second, most: 1}).orders
		return len(first) == 1, strconv.Itoa(len(first))
	})
	return first
}

func (s *overloaded) checkReady(ctx context.Context, programs ...*stack.Program) {
	for _, p := range programs {
		err := p.AwaitReady(ctx)
		s.check(err == nil, p.Name+" afterwards", "ready", "error %v", err)
	}
}

func (s *overloaded) fullMemory(ctx context.Context) error {
	before := s.before(ctx)
	if err := limitMemory(ctx, s.redis, "1"); err != nil {
		return err
	}
	watched := watch(ctx, s.processes()...)
	full, reads := s.phase(ctx, s.form.phase, before.orders)
	v := s.wide[0]
	_, login := s.apis.Vendor.Login(ctx, "/token", v.ClientID, v.ClientSecret)
	cores := watched()["worker"].cores
	s.check(len(full.orders) == 0 && full.served(full.busy, s.form.share), "orders at maxmemory",
		"all 503 with Retry-After", "%d of %d%s", full.busy.TotalCount(), full.sent, full.problems())
	s.checkServed(reads, "reads at maxmemory")
	s.check(login == nil, "a login at maxmemory", "200", "error %v", login)
	s.check(cores <= 0.5, "CPU of the worker, which waits", "at most half a core", "%.2f cores", cores)
	s.checkReady(ctx, s.Worker)

	if err := limitMemory(ctx, s.redis, "0"); err != nil {
		return err
	}
	first := s.checkAccepted(ctx, s.form.timeout, "orders accepted again")
	again := s.checkResent(ctx, full, "refused orders")
	s.checkSettled(ctx, "the worker has caught up")
	s.checkKept(ctx, before.orders, first, again)
	return nil
}

// fullDisk: Redis cannot go on without its log and ends itself.
func (s *overloaded) fullDisk(ctx context.Context) error {
	before := s.before(ctx)
	// What the log may still grow by: about two hundred orders.
	if err := s.disk.LeaveRoom(256<<10, "appendonlydir"); err != nil {
		return err
	}
	var filling *tally
	var filler sync.WaitGroup
	ordering, stop := context.WithCancel(ctx)
	filler.Go(func() {
		filling = s.order(ordering, s.wide, load{connections: calmConnections, rate: 4 * calmOrders, duration: s.form.timeout})
	})
	s.checkBecomes(ctx, s.form.timeout, "Redis, when its log cannot be written, has ended itself", "", func() (bool, string) {
		_, err := s.redis.Command(ctx, "PING")
		return err != nil && unix.Kill(s.redis.PID(), 0) != nil, fmt.Sprintf("error %v", err)
	})
	stop()
	filler.Wait()
	s.figure("orders until then", "%d accepted, %d without an answer, %d refused",
		len(filling.orders), filling.unknown, len(filling.again)-filling.unknown)
	full, reads := s.phase(ctx, s.form.phase, before.orders)
	s.check(full.served(full.busy, s.form.share) && reads.served(reads.busy, s.form.share),
		"orders and reads without Redis", "all 503 with Retry-After", "%d of %d%s%s",
		full.busy.TotalCount()+reads.busy.TotalCount(), full.sent+reads.sent, full.problems(), reads.problems())
	s.checkP99(full.busy, s.form.quick, "503 took")

	if err := s.disk.FreeRoom(); err != nil {
		return err
	}
	if err := s.redis.Start(ctx); err != nil {
		return fmt.Errorf("start Redis again: %w", err)
	}
	first := s.checkAccepted(ctx, s.form.recovery, "orders accepted after Redis's start")
	again := slices.Concat(s.checkResent(ctx, filling, "orders refused or not answered while it ended"),
		s.checkResent(ctx, full, "orders refused without it"))
	s.checkReady(ctx, s.Gateway, s.Worker)
	s.checkSettled(ctx, "the worker has caught up")
	s.checkKept(ctx, before.orders, filling.orders, first, again)
	return nil
}

func (s *overloaded) withoutClickHouse(ctx context.Context) error {
	with := s.before(ctx)
	s.ClickHouse.Kill()
	watched := watch(ctx, harness.Process{Name: "reporting", PID: s.Reporting.PID()})
	without, reads := s.phase(ctx, 3*s.form.phase, with.orders) // several tries of the exporter
	cores := watched()["reporting"].cores
	s.checkServed(without, "orders without ClickHouse")
	s.checkServed(reads, "reads without ClickHouse")
	s.figure("an accepted order took, p99", "%s with, %s without",
		milliseconds(p99(with.accepted)), milliseconds(p99(without.accepted)))
	s.check(cores <= 0.5, "CPU of the exporter, which waits", "at most half a core", "%.2f cores", cores)

	if err := s.ClickHouse.Start(ctx); err != nil {
		return fmt.Errorf("start ClickHouse again: %w", err)
	}
	want := strconv.Itoa(len(with.orders) + len(without.orders))
	s.checkBecomes(ctx, s.form.timeout, "the export has caught up", "all orders, with their end, ", func() (bool, string) {
		exported, err := harness.Query(ctx, s.Demo.ClickHouseURL+"/", "SELECT count() FROM delivery.orders FINAL WHERE status = 'Delivered'")
		if err != nil {
			return false, err.Error()
		}
		return exported == want, exported + " of " + want
	})
	s.checkKept(ctx, with.orders, without.orders)
	return nil
}

// The clock's burst limit: shorter than the ordinary one, so that a slow machine reaches it, too.
const (
	burst       = 12
	burstWindow = 10 * time.Second
	slack       = 3 * time.Second // for rounding up to seconds and a busy machine
)

type clockTest struct {
	*overloaded
	busy, limited *loadVendor // with a limit out of reach and a webhook; with the clock's burst limit
	inbox         *validate.Inbox
	granted       []time.Time // orders of the limited vendor
	orders        []placed    // of the busy vendor, each with five webhooks
}

// jumpingClock: only Redis's clock is wrong, as when the time of its machine is lost.
func (s *overloaded) jumpingClock(ctx context.Context) error {
	c := &clockTest{overloaded: s, busy: s.wide[0], limited: s.ordinary[0], inbox: validate.NewInbox()}
	s.ends = append(s.ends, c.inbox.Close)
	secret, err := c.busy.SetWebhook(ctx, c.inbox.URL+"/")
	if err != nil {
		return err
	}
	c.inbox.Serve(c.busy.AccountID, secret)
	orders := stack.Limit(600, 60, burst, int(burstWindow/time.Second))
	few := map[string]any{"limits": map[string]any{"orders": orders}}
	if err := s.apis.Admin.Call(ctx, http.MethodPatch, "/accounts/"+c.limited.AccountID, few, nil); err != nil {
		return err
	}
	if err := c.play(ctx, "before", 1, burstWindow); err != nil {
		return err
	}
	c.checkDelivered(ctx, "webhooks before")

	if err := s.disk.ShiftClock(time.Hour); err != nil {
		return err
	}
	c.inbox.Behave(http.StatusInternalServerError, 0)
	earlier := len(c.inbox.Arrivals())
	if err := c.play(ctx, "an hour ahead", 1, burstWindow); err != nil {
		return err
	}
	if _, err := c.guess(ctx); err != nil {
		return err
	}
	// Until the breaker has been opened and probed ahead of time.
	_ = harness.Await(ctx, "the breaker", s.form.timeout, pollInterval, func() (bool, error) { // webhooks are checked later
		return len(c.inbox.Arrivals())-earlier >= 8, nil
	})

	if err := s.disk.ShiftClock(0); err != nil {
		return err
	}
	c.inbox.Behave(0, 0)
	return c.back(ctx)
}

// play orders, reads, repeats, and orders up to the limit, which must then ask for a wait within its window.
func (c *clockTest) play(ctx context.Context, when string, least int, most time.Duration) error {
	const n = 20
	t := c.order(ctx, []*loadVendor{c.busy}, load{connections: 4, duration: time.Minute, most: n})
	late, problems := c.resend(ctx, t.again)
	orders := slices.Concat(t.orders, late)
	c.check(t.served(t.accepted, c.form.share) && len(orders) == n, "orders of a vendor within its limits, "+when,
		"all accepted", "%d of %d%s", len(orders), n, t.problems()+problems)
	c.orders = append(c.orders, orders...)
	if len(c.orders) == 0 {
		return fmt.Errorf("no order was accepted %s", when)
	}
	c.checkBecomes(ctx, delivery.PollInterval+slack, "the order that was read just before, read "+when, "", func() (bool, string) {
		a, err := c.busy.Do(ctx, http.MethodGet, "/orders/"+c.orders[0].id, nil)
		return answered(a, err, http.StatusOK)
	})
	c.checkSame(ctx, c.orders[:min(n, len(c.orders))], "idempotency keys "+when)
	before, wait := len(c.granted), time.Duration(0)
	for try := 0; wait == 0 && try < 10*burst; try++ {
		a, err := c.tryOrder(ctx)
		switch {
		case err != nil:
			return err
		case a.Status == http.StatusTooManyRequests:
			wait = a.RetryAfter()
		case a.Status != http.StatusCreated && a.Status != http.StatusServiceUnavailable: // 503: the machine is too busy
			return fmt.Errorf("an order was answered %d", a.Status)
		}
	}
	granted := len(c.granted) - before
	c.check(granted >= least && wait > 0 && wait <= most, "limits "+when+": granted until 429, Retry-After",
		"at most "+burstWindow.String(), "%d, %s", granted, wait)
	return nil
}

func (c *clockTest) back(ctx context.Context) error {
	const when = "after the jump back"
	if err := c.play(ctx, when, 0, burstWindow+slack); err != nil {
		return err
	}
	c.checkBecomes(ctx, burstWindow+slack, "limits after the jump back: granted again", "", func() (bool, string) {
		a, err := c.tryOrder(ctx)
		return answered(a, err, http.StatusCreated)
	})
	// Each jump can open a window that is over by the clock.
	most := mostWithin(c.granted, burstWindow)
	c.check(most <= 3*burst, "most granted within 10 s over both jumps",
		fmt.Sprintf("at most %d, once the limit for each jump more", 3*burst), "%d", most)
	wait, err := c.guess(ctx)
	if err != nil {
		return err
	}
	c.check(wait <= time.Minute, "wrong credentials after the jump back: Retry-After",
		"at most the minute of that guard", "%s", wait)
	c.checkDelivered(ctx, "webhooks after the jump back, those of a receiver that failed meanwhile")
	c.checkSettled(ctx, "streams: the worker has read and settled everything")
	c.checkKept(ctx, c.orders)
	return nil
}

func answered(a *client.Answer, err error, want int) (ok bool, figure string) {
	if err != nil {
		return false, err.Error()
	}
	return a.Status == want, strconv.Itoa(a.Status)
}

func (c *clockTest) tryOrder(ctx context.Context) (*client.Answer, error) {
	a, err := c.limited.Do(ctx, http.MethodPost, "/orders", c.limited.Order(nil))
	if err == nil && a.Status == http.StatusCreated {
		c.granted = append(c.granted, time.Now())
	}
	return a, err
}

// mostWithin is the largest number of times, in ascending order, within any span.
func mostWithin(times []time.Time, span time.Duration) (most int) {
	first := 0
	for last, at := range times {
		for at.Sub(times[first]) >= span {
			first++
		}
		most = max(most, last-first+1)
	}
	return most
}

func (c *clockTest) guess(ctx context.Context) (longest time.Duration, err error) {
	wrong := map[string]string{"clientId": c.ordinary[1].ClientID, "clientSecret": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}
	for range 12 {
		a, err := c.apis.Vendor.Do(ctx, http.MethodPost, "/token", wrong)
		if err != nil {
			return 0, err
		}
		longest = max(longest, a.RetryAfter())
	}
	return longest, nil
}

func (c *clockTest) checkDelivered(ctx context.Context, what string) {
	events, want := make(map[string]bool), 5*len(c.orders)
	c.checkBecomes(ctx, c.form.timeout, what, "all delivered ", func() (bool, string) {
		for _, a := range c.inbox.Arrivals() {
			if a.Answered == http.StatusNoContent && a.Order != "" {
				events[a.EventID] = true
			}
		}
		return len(events) >= want, fmt.Sprintf("%d of %d", len(events), want)
	})
}
