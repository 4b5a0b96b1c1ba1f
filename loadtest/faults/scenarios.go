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

	"vendorapi/internal/stack"
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

// courier lets the sandbox courier deliver an order within a second.
var courier = stack.Options{Courier: "auto", CourierStep: 200 * time.Millisecond}

// tenfoldLoad is the scenario load.
func (r *overloadRun) tenfoldLoad(ctx context.Context) error {
	f := &r.form
	var o stack.Options
	if f.inFlight != "" {
		o.Env = []string{"MAX_IN_FLIGHT=" + f.inFlight}
	}
	// One more wide vendor is the client that sends steadily.
	s, err := r.open(ctx, o, f.wide+1, f.ordinary, false)
	if err != nil {
		return err
	}
	defer s.stop()
	steadily := func(d time.Duration) *tally {
		return s.order(ctx, []int{f.wide}, steadyConnections, steadyRate, d, 0)
	}
	const clients = 64
	began := time.Now()
	closed := s.order(ctx, s.wide(), clients, 0, min(4*time.Second, f.load/2), 0)
	sustainable := max(1, float64(len(closed.orders))/time.Since(began).Seconds())
	r.check(closed.served(closed.accepted, f.share), "sustainable, orders/s", "no error",
		"%.0f (%d clients, each waiting for its answer)%s", sustainable, clients, closed.problems())
	before := steadily(4 * time.Second)
	normal := max(4*p99(before.accepted), f.normal)
	r.figure("an ordinary request before, p99", "%s", milliseconds(p99(before.accepted)))

	pids := s.processes()
	watched := watch(ctx, pids...)
	var during *tally
	var steady sync.WaitGroup
	steady.Go(func() { during = steadily(f.load) })
	began = time.Now()
	vendors := s.wide()
	for i := range f.ordinary {
		vendors = append(vendors, f.wide+1+i)
	}
	t := s.order(ctx, vendors, f.connections, f.times*sustainable, f.load, 0)
	lasted := time.Since(began)
	// Back to normal is the first second in which the steady client gets every order
	// accepted, 99 % of them nearly as soon as before.
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
	used, _ := watched()
	steady.Wait()

	r.checkLoad(t, sustainable, lasted)
	r.figure("a client with 100 orders a second meanwhile", "%d of %d accepted at the first try", len(during.orders), during.arrived)
	r.checkMemory(used, f.connections, len(t.orders)+len(during.orders)+len(after))
	ended := "none"
	if !slices.Equal(pids, s.processes()) || !s.isReady(ctx) {
		ended = "some"
	}
	r.check(ended == "none", "programs that ended", "none", "%s", ended)
	r.check(back >= 0 && back <= f.recovery, "back to normal", "within "+f.recovery.String()+" of the last arrival",
		"%s, p99 at most %s", back.Round(time.Millisecond), milliseconds(normal))
	r.checkOrdinary(t, f.wide+1, lasted)
	s.checkKept(ctx, closed.orders, before.orders, t.orders, during.orders, after)
	return nil
}

func (r *overloadRun) checkLoad(t *tally, sustainable float64, lasted time.Duration) {
	seconds, elapsed := r.form.load.Seconds(), lasted.Seconds()
	accepted, limited, busy := float64(t.accepted.TotalCount()), float64(t.limited.TotalCount()), float64(t.busy.TotalCount())
	r.figure("orders that arrived, a second", "%.0f for %.0f s, on %d connections; %.0f %% found one free", float64(t.arrived)/seconds, seconds,
		r.form.connections, 100*float64(t.sent())/float64(t.arrived))
	r.figure("answered, a second", "%.0f: %.0f accepted, %.0f 429, %.0f 503", (accepted+limited+busy+float64(t.wrong))/elapsed,
		accepted/elapsed, limited/elapsed, busy/elapsed)
	share := accepted / elapsed / sustainable
	r.check(share >= 0.1, "accepted under the overload, of the sustainable rate", "10 % or more", "%.0f %%", 100*share)
	r.figure("accepted orders took", "p50 %s, p99 %s", milliseconds(time.Duration(t.accepted.ValueAtQuantile(50))*time.Microsecond), milliseconds(p99(t.accepted)))
	r.check(t.wrong == 0, "answers that are neither 201, nor 429 or 503 with Retry-After and the same in the body", "none", "%d%s", t.wrong, t.problems())
	r.check(float64(t.unknown) <= (1-r.form.share)*float64(t.sent()), "requests without an answer", "none", "%d", t.unknown)
	r.check(p99(t.limited) <= r.form.quick, "429 took, p99", "at most "+r.form.quick.String(), "%s", milliseconds(p99(t.limited)))
	r.check(p99(t.busy) <= r.form.quick, "503 took, p99", "at most "+r.form.quick.String(), "%s", milliseconds(p99(t.busy)))
}

// checkMemory bounds what the programs hold: the gateway what its connections need,
// Redis what the orders need, the worker nothing that grows with the load.
func (r *overloadRun) checkMemory(used map[string]harness.Watched, connections, orders int) {
	const MiB, spare, perConnection, perOrder = 1 << 20, 96 << 20, 64 << 10, 4 << 10
	for _, bound := range []struct {
		name string
		most int
		why  string
	}{
		{"gateway", spare + connections*perConnection, "96 MiB and 64 KiB a connection"},
		{"worker", spare, "96 MiB"},
		{"redis", spare + orders*perOrder, "96 MiB and 4 KiB an order"},
	} {
		w := used[bound.name]
		r.check(w.Peak <= w.Begin+uint64(bound.most), "resident memory of "+bound.name, fmt.Sprintf("at most %d MiB more: %s", bound.most/MiB, bound.why),
			"%d MiB before, at most %d, in the end %d", w.Begin/MiB, w.Peak/MiB, w.Now/MiB)
	}
}

// checkOrdinary: no vendor at its ordinary limits got more than they allow, as far
// as counts over the whole run show: 120 in any 10 s and 600 in any 60 s.
func (r *overloadRun) checkOrdinary(t *tally, first int, lasted time.Duration) {
	accepted := make([]int, r.form.ordinary)
	for _, o := range t.orders {
		if o.vendor >= first {
			accepted[o.vendor-first]++
		}
	}
	windows := func(span time.Duration) int { return int((lasted + span - 1) / span) }
	most := min(120*windows(10*time.Second), 600*windows(time.Minute))
	r.check(slices.Max(accepted) <= most, "accepted for a vendor at its ordinary limits", "at most "+strconv.Itoa(most), "%d to %d",
		slices.Min(accepted), slices.Max(accepted))
}

// phase lets the wide vendors order, and read what was accepted before, for a while.
func (s *overloaded) phase(ctx context.Context, d time.Duration, known []placed) (orders, reads *tally) {
	var both sync.WaitGroup
	both.Go(func() { orders = s.order(ctx, s.wide(), calmConnections, calmOrders, d, 0) })
	if len(known) > 0 {
		both.Go(func() { reads = s.read(ctx, known, calmConnections, calmReads, d) })
	}
	both.Wait()
	return orders, reads
}

// awaitOrder waits until an order is accepted; -1: longer than the timeout.
func (s *overloaded) awaitOrder(ctx context.Context) (took time.Duration, first []placed) {
	took, _ = await(ctx, s.form.timeout, func() (bool, error) {
		first = s.order(ctx, s.wide(), 1, 0, time.Second, 1).orders
		return len(first) == 1, nil
	})
	return took, first
}

// fullMemory is the scenario memory.
func (r *overloadRun) fullMemory(ctx context.Context) error {
	o := courier
	o.Receiver = true
	s, err := r.open(ctx, o, r.form.wide, 0, false)
	if err != nil {
		return err
	}
	defer s.stop()
	before, _ := s.phase(ctx, r.form.phase, nil)
	r.checkServed(before, before.accepted, "orders before", "all accepted")
	if err := limitMemory(ctx, s.redis, "1"); err != nil {
		return err
	}
	watched := watch(ctx, s.processes()...)
	full, reads := s.phase(ctx, r.form.phase, before.orders)
	v := s.vendors[0]
	_, login := s.apis.Vendor.Login(ctx, "/token", v.ClientID, v.ClientSecret)
	_, cores := watched()
	r.check(len(full.orders) == 0 && full.served(full.busy, r.form.share), "orders at maxmemory", "all 503 with Retry-After",
		"%d of %d%s", full.busy.TotalCount(), full.sent(), full.problems())
	r.checkServed(reads, reads.accepted, "reads at maxmemory", "all answered")
	r.check(login == nil, "a login at maxmemory", "200", "error %v", login)
	r.check(cores["worker"] <= 0.5, "CPU of the worker, which waits", "at most half a core", "%.2f cores", cores["worker"])
	r.check(s.Worker.AwaitReady(ctx) == nil, "the worker afterwards", "ready", "ready")

	if err := limitMemory(ctx, s.redis, "0"); err != nil {
		return err
	}
	back, first := s.awaitOrder(ctx)
	r.checkTook(back, r.form.timeout, "orders accepted again")
	again := s.checkResent(ctx, full, "refused orders")
	s.checkSettled(ctx, "the worker has caught up")
	s.checkKept(ctx, before.orders, first, again)
	return nil
}

// fullDisk is the scenario disk. Redis cannot go on without its log and ends itself.
func (r *overloadRun) fullDisk(ctx context.Context) error {
	s, err := r.open(ctx, stack.Options{}, r.form.wide, 0, true)
	if err != nil {
		return err
	}
	defer s.stop()
	before, _ := s.phase(ctx, r.form.phase, nil)
	r.checkServed(before, before.accepted, "orders before", "all accepted")
	// What the log may still grow by: about two hundred orders.
	if err := s.disk.LeaveRoom(256<<10, "appendonlydir"); err != nil {
		return err
	}
	var filling *tally
	var load sync.WaitGroup
	ordering, stop := context.WithCancel(ctx)
	load.Go(func() { filling = s.order(ordering, s.wide(), calmConnections, 4*calmOrders, r.form.timeout, 0) })
	ended, _ := await(ctx, r.form.timeout, func() (bool, error) {
		_, err := s.redis.Command(ctx, "PING")
		return err != nil && unix.Kill(s.redis.PID(), 0) != nil, nil
	})
	stop()
	load.Wait()
	r.check(ended >= 0, "Redis, when its log cannot be written", "has ended itself", "%s; %d orders accepted until then, %d without an answer, %d refused",
		map[bool]string{true: "has ended itself", false: "goes on"}[ended >= 0], len(filling.orders), filling.unknown, len(filling.again)-filling.unknown)
	full, reads := s.phase(ctx, r.form.phase, before.orders)
	r.check(full.served(full.busy, r.form.share) && reads.served(reads.busy, r.form.share), "orders and reads without Redis", "all 503 with Retry-After",
		"%d of %d%s%s", full.busy.TotalCount()+reads.busy.TotalCount(), full.sent()+reads.sent(), full.problems(), reads.problems())
	r.check(p99(full.busy) <= r.form.quick, "503 took, p99", "at most "+r.form.quick.String(), "%s", milliseconds(p99(full.busy)))

	if err := s.disk.FreeRoom(); err != nil {
		return err
	}
	if err := s.redis.Start(ctx); err != nil {
		return fmt.Errorf("start Redis again: %w", err)
	}
	back, first := s.awaitOrder(ctx)
	r.checkTook(back, r.form.recovery, "orders accepted after Redis's start")
	again := slices.Concat(s.checkResent(ctx, filling, "orders refused or not answered while it ended"), s.checkResent(ctx, full, "orders refused without it"))
	r.check(s.isReady(ctx), "gateway and worker", "ready", "ready")
	s.checkSettled(ctx, "the worker has caught up")
	s.checkKept(ctx, before.orders, filling.orders, first, again)
	return nil
}

// withoutClickHouse is the scenario clickhouse.
func (r *overloadRun) withoutClickHouse(ctx context.Context) error {
	o := courier
	o.Reporting = true
	s, err := r.open(ctx, o, r.form.wide, 0, false)
	if err != nil {
		return err
	}
	defer s.stop()
	with, _ := s.phase(ctx, r.form.phase, nil)
	s.ClickHouse.Kill()
	watched := watch(ctx, harness.Process{Name: "reporting", PID: s.Reporting.PID()})
	without, reads := s.phase(ctx, 3*r.form.phase, with.orders) // several tries of the exporter
	_, cores := watched()
	r.checkServed(without, without.accepted, "orders without ClickHouse", "all accepted")
	r.checkServed(reads, reads.accepted, "reads without ClickHouse", "all answered")
	r.figure("an accepted order took, p99", "%s with, %s without", milliseconds(p99(with.accepted)), milliseconds(p99(without.accepted)))
	r.check(cores["reporting"] <= 0.5, "CPU of the exporter, which waits", "at most half a core", "%.2f cores", cores["reporting"])

	if err := s.ClickHouse.Start(ctx); err != nil {
		return fmt.Errorf("start ClickHouse again: %w", err)
	}
	want, held := len(with.orders)+len(without.orders), 0
	took, err := await(ctx, r.form.timeout, func() (bool, error) {
		rows, err := validate.Query(ctx, s.Demo.ClickHouseURL, "SELECT toString(count()) FROM delivery.orders FINAL WHERE status = 'Delivered'")
		if err == nil {
			held, err = strconv.Atoi(rows[0][0])
		}
		return held >= want, err
	})
	if err != nil {
		return err
	}
	r.check(took >= 0, "the export has caught up", "all orders, with their end, within "+r.form.timeout.String(), "%d of %d after %s", held, want, took.Round(time.Millisecond))
	s.checkKept(ctx, with.orders, without.orders)
	return nil
}

// The clock's burst limit: shorter than the ordinary one, so that a slow machine
// reaches it, too.
const (
	burst       = 12
	burstWindow = 10 * time.Second
	slack       = 3 * time.Second // for rounding up to seconds and a busy machine
)

// clockTest is the state of the scenario clock.
type clockTest struct {
	*overloaded
	inbox   *validate.Inbox
	granted []time.Time // orders of the limited vendor
	orders  []placed    // of the wide vendor, each with five webhooks
	events  int         // that the inbox must get
}

// jumpingClock is the scenario clock. Only Redis's clock is wrong, as when the time
// of Redis's machine is lost.
func (r *overloadRun) jumpingClock(ctx context.Context) error {
	s, err := r.open(ctx, courier, 1, 2, true)
	if err != nil {
		return err
	}
	defer s.stop()
	c := &clockTest{overloaded: s}
	if c.inbox, err = validate.NewInbox(); err != nil {
		return err
	}
	defer c.inbox.Close()
	secret, err := s.vendors[0].SetWebhook(ctx, c.inbox.URL)
	if err != nil {
		return err
	}
	c.inbox.Serve(s.vendors[0].AccountID, secret)
	few := map[string]any{"limits": map[string]any{"orders": stack.Limit(600, 60, burst, int(burstWindow/time.Second))}}
	if err := s.apis.Admin.Call(ctx, http.MethodPatch, "/accounts/"+s.vendors[1].AccountID, few, nil); err != nil {
		return err
	}
	if err := c.before(ctx); err != nil {
		return err
	}
	if err := s.disk.ShiftClock(time.Hour); err != nil {
		return err
	}
	if err := c.ahead(ctx); err != nil {
		return err
	}
	if err := s.disk.ShiftClock(0); err != nil {
		return err
	}
	return c.back(ctx)
}

func (c *clockTest) before(ctx context.Context) error {
	c.order20(ctx, "before")
	granted, wait, err := c.exhaust(ctx)
	if err != nil {
		return err
	}
	c.check(wait > 0 && wait <= burstWindow, "limits before: granted until 429, told to wait", "at most "+burstWindow.String(), "%d, %s", granted, wait)
	c.checkDelivered(ctx, "webhooks before")
	return c.checkPoll(ctx, "before")
}

func (c *clockTest) ahead(ctx context.Context) error {
	const when = "an hour ahead"
	c.inbox.Behave(http.StatusInternalServerError, 0)
	earlier := len(c.inbox.Arrivals())
	c.order20(ctx, when)
	granted, wait, err := c.exhaust(ctx)
	if err != nil {
		return err
	}
	c.check(granted > 0 && wait <= burstWindow, "limits an hour ahead: granted until 429, told to wait", "some, at most "+burstWindow.String(), "%d, %s", granted, wait)
	if err := c.checkPoll(ctx, when); err != nil {
		return err
	}
	c.checkSame(ctx, c.orders[:20], "idempotency keys "+when)
	if _, err := c.guess(ctx); err != nil {
		return err
	}
	// Until the breaker has been opened and probed ahead of time.
	_, err = await(ctx, c.form.timeout, func() (bool, error) { return len(c.inbox.Arrivals())-earlier >= 8, nil })
	return err
}

func (c *clockTest) back(ctx context.Context) error {
	const when = "after the jump back"
	c.inbox.Behave(0, 0)
	c.order20(ctx, when)
	if err := c.checkPoll(ctx, when); err != nil {
		return err
	}
	_, wait, err := c.exhaust(ctx)
	if err != nil {
		return err
	}
	c.check(wait > 0 && wait <= burstWindow+slack, "limits after the jump back: told to wait", "at most "+burstWindow.String(), "%s", wait)
	took, err := await(ctx, 2*burstWindow+slack, func() (bool, error) {
		status, _, err := c.tryOrder(ctx)
		return status == http.StatusCreated, err
	})
	if err != nil {
		return err
	}
	c.check(took >= 0 && took <= burstWindow+slack, "limits after the jump back: granted again", "within the window of "+burstWindow.String(), "%s", took.Round(time.Millisecond))
	// Each jump can open a window that the clock says is over.
	most := mostWithin(c.granted, burstWindow)
	c.check(most <= 3*burst, "most granted within 10 s over both jumps", fmt.Sprintf("at most %d, once the limit for each jump more", 3*burst), "%d", most)
	c.checkSame(ctx, c.orders[:20], "idempotency keys "+when)
	if wait, err = c.guess(ctx); err != nil {
		return err
	}
	c.check(wait <= time.Minute, "wrong credentials after the jump back: told to wait", "at most the minute of that guard", "%s", wait)
	c.checkDelivered(ctx, "webhooks after the jump back, those of a receiver that failed meanwhile")
	c.checkSettled(ctx, "streams: the worker has read and settled everything")
	c.checkKept(ctx, c.orders)
	return nil
}

// order20 lets the wide vendor order.
func (c *clockTest) order20(ctx context.Context, when string) {
	const n = 20
	t := c.order(ctx, []int{0}, 4, 0, time.Minute, n)
	ok := t.served(t.accepted, c.form.share)
	late, problems := c.resend(ctx, t.again)
	orders := slices.Concat(t.orders, late)
	c.check(ok && len(orders) == n, "orders of a vendor within its limits, "+when, "all accepted", "%d of %d%s", len(orders), n, t.problems()+problems)
	c.orders, c.events = append(c.orders, orders...), c.events+5*len(orders)
}

// tryOrder orders for the limited vendor. It returns the status and, of a refusal,
// how long to wait.
func (c *clockTest) tryOrder(ctx context.Context) (status int, wait time.Duration, err error) {
	v := c.vendors[1]
	a, err := v.Do(ctx, http.MethodPost, "/orders", v.Order(nil))
	if err != nil {
		return 0, 0, err
	}
	if a.Status == http.StatusCreated {
		c.granted = append(c.granted, time.Now())
	}
	return a.Status, a.RetryAfter(), nil
}

// exhaust orders for the limited vendor until it is refused. It returns how many
// were granted and how long to wait.
func (c *clockTest) exhaust(ctx context.Context) (granted int, wait time.Duration, err error) {
	for range 10 * burst {
		status, wait, err := c.tryOrder(ctx)
		switch {
		case err != nil || status == http.StatusTooManyRequests:
			return granted, wait, err
		case status == http.StatusCreated:
			granted++
		case status != http.StatusServiceUnavailable: // the machine is too busy
			return granted, 0, fmt.Errorf("an order was answered %d", status)
		}
	}
	return granted, 0, nil
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

// checkPoll reads the first order, which was read just before, until that is
// allowed.
func (c *clockTest) checkPoll(ctx context.Context, when string) error {
	status := 0
	took, err := await(ctx, pollInterval+slack, func() (bool, error) {
		a, err := c.vendors[0].Do(ctx, http.MethodGet, "/orders/"+c.orders[0].id, nil)
		if err == nil {
			status = a.Status
		}
		return status == http.StatusOK, err
	})
	c.check(took >= 0, "the order that was read just before, read "+when, "within its 10 s", "%d after %s", status, took.Round(time.Millisecond))
	return err
}

// guess presents wrong credentials and returns the longest wait in an answer.
func (c *clockTest) guess(ctx context.Context) (longest time.Duration, err error) {
	wrong := map[string]string{"clientId": c.vendors[2].ClientID, "clientSecret": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}
	for range 12 {
		a, err := c.apis.Vendor.Do(ctx, http.MethodPost, "/token", wrong)
		if err != nil {
			return 0, err
		}
		longest = max(longest, a.RetryAfter())
	}
	return longest, nil
}

// checkDelivered waits until the inbox has every event.
func (c *clockTest) checkDelivered(ctx context.Context, what string) {
	events := make(map[string]bool)
	took, _ := await(ctx, c.form.timeout, func() (bool, error) {
		for _, a := range c.inbox.Arrivals() {
			if a.Answered == http.StatusNoContent && a.Order != "" {
				events[a.EventID] = true
			}
		}
		return len(events) >= c.events, nil
	})
	c.check(took >= 0, what, "all delivered within "+c.form.timeout.String(), "%d of %d after %s", len(events), c.events, took.Round(time.Millisecond))
}
