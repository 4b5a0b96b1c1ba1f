package main

import (
	"context"
	_ "embed" // for the files of Lua
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
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

func (s *overloaded) tenfoldLoad(ctx context.Context) {
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
func (s *overloaded) checkMemory(used map[string]harness.Watched, orders int) {
	const MiB, spare, perConnection, perOrder = 1 << 20, 96 << 20, 64 << 10, 4 << 10
	check := func(name string, most int, why string) {
		w := used[name]
		s.check(w.Peak <= w.Begin+uint64(most), "resident memory of "+name, fmt.Sprintf("at most %d MiB more: %s", most/MiB, why),
			"%d MiB before, at most %d, in the end %d", w.Begin/MiB, w.Peak/MiB, w.Now/MiB)
	}
	check("gateway", spare+s.form.connections*perConnection, "96 MiB and 64 KiB a connection")
	check("worker", spare, "96 MiB")
	check("redis", spare+orders*perOrder, "96 MiB and 4 KiB an order")
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

// phase lets the wide vendors order, and read what was accepted before, for a while. With nothing to read, reads
// is empty, not nil.
func (s *overloaded) phase(ctx context.Context, d time.Duration, known []placed) (orders, reads *tally) {
	var reading sync.WaitGroup
	reading.Go(func() { reads = s.read(ctx, known, load{connections: calmConnections, rate: calmReads, duration: d}) })
	orders = s.order(ctx, s.wide, load{connections: calmConnections, rate: calmOrders, duration: d})
	reading.Wait()
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

func (s *overloaded) fullMemory(ctx context.Context) {
	before := s.before(ctx)
	s.require(limitMemory(ctx, s.redis, "1"))
	watched := watch(ctx, s.processes()...)
	full, reads := s.phase(ctx, s.form.phase, before.orders)
	v := s.wide[0]
	_, login := s.apis.Vendor.Login(ctx, "/token", v.ClientID, v.ClientSecret)
	cores := watched()["worker"].Cores
	s.check(len(full.orders) == 0 && full.served(full.busy, s.form.share), "orders at maxmemory",
		"all 503 with Retry-After", "%d of %d%s", full.busy.TotalCount(), full.sent, full.problems())
	s.checkServed(reads, "reads at maxmemory")
	s.check(login == nil, "a login at maxmemory", "200", "error %v", login)
	s.check(cores <= 0.5, "CPU of the worker, which waits", "at most half a core", "%.2f cores", cores)
	s.checkReady(ctx, s.Worker)

	s.require(limitMemory(ctx, s.redis, stack.DefaultMaxMemory()))
	first := s.checkAccepted(ctx, s.form.timeout, "orders accepted again")
	again := s.checkResent(ctx, full, "refused orders")
	s.checkSettled(ctx, "the worker has caught up")

	orders, entries := s.form.past, s.form.past
	kept := [][]placed{before.orders, first, again}
	for number, f := range []filling{
		{what: "ended orders", orders: orders},
		{what: "streams", entries: entries},
		{what: "both", orders: orders / 2, entries: entries / 2},
		{what: "both, workers restarted", orders: orders / 2, entries: entries / 2, restarts: true},
	} {
		kept = append(kept, s.healFrom(ctx, f, number))
	}
	s.checkSettled(ctx, "the worker has caught up in the end")
	s.checkKept(ctx, kept...)
}

// filling is what of which the time is past memory is filled with.
type filling struct {
	what            string
	orders, entries int
	restarts        bool // every worker is restarted while memory is full
}

// ownersLua is a function that other scripts call.
//
//go:embed owners.lua
var ownersLua string

//go:embed fill_memory.lua
var fillMemoryLua string

//go:embed past_time.lua
var pastTimeLua string

// readsOnly lets a script run while memory is full.
const readsOnly = "#!lua flags=no-writes\n"

// healFrom fills Redis with what is past its time up to a limit that stays. Orders must be accepted
// again, with nothing done by hand. It returns the first that is.
func (s *overloaded) healFrom(ctx context.Context, f filling, number int) []placed {
	account, err := delivery.ParseAccountID(s.ordinary[number].AccountID) // which is quiet
	s.require(err)
	quiet := string(account[:])
	before := s.usedMemory(ctx)
	s.fillMemory(ctx, f, quiet, number)
	filled := s.usedMemory(ctx)
	limit := (before + filled) / 2
	s.require(limitMemory(ctx, s.redis, strconv.FormatInt(limit, 10)))

	refused := s.order(ctx, s.wide, load{connections: 1, duration: time.Second, most: 1})
	began := time.Now()
	s.check(len(refused.orders) == 0 && refused.busy.TotalCount() == 1, "full of "+f.what+": an order", "503", "%d accepted%s", len(refused.orders), refused.problems())
	if f.restarts {
		s.Worker.Stop()
		s.require(s.Worker.Start(ctx))
	}

	first := s.checkAccepted(ctx, s.form.timeout, "full of "+f.what+": orders accepted again by themselves")
	s.checkBecomes(ctx, s.form.timeout-time.Since(began), "full of "+f.what+": all that is past its time has left", "", func() (bool, string) {
		left, err := s.redis.Command(ctx, "EVAL", readsOnly+ownersLua+pastTimeLua, "0", quiet)
		return err == nil && left == "0", left + " left"
	})
	after := s.usedMemory(ctx)
	const MiB = 1 << 20
	s.check(after < limit, "full of "+f.what+": memory used", fmt.Sprintf("below the limit of %d MiB", limit/MiB),
		"%d MiB before, %d filled, %d after", before/MiB, filled/MiB, after/MiB)
	s.require(limitMemory(ctx, s.redis, stack.DefaultMaxMemory()))
	return slices.Concat(first, s.checkResent(ctx, refused, "the order that was refused when full of "+f.what))
}

// fillMemory writes a filling, in pieces whose flush to the disk takes no longer than an answer may.
func (s *overloaded) fillMemory(ctx context.Context, f filling, quiet string, number int) {
	const atOnce, calls = 10_000, 1000
	for done := 0; done < max(f.orders, f.entries) && ctx.Err() == nil; done += atOnce {
		piece := func(all int) string { return strconv.Itoa(min(max(all-done, 0), atOnce)) }
		first := "0"
		if done == 0 {
			first = "1"
		}
		_, err := s.redis.Command(ctx, "EVAL", ownersLua+fillMemoryLua, "0", piece(f.orders), piece(f.entries), quiet,
			strconv.Itoa(number*calls+done/atOnce), first)
		s.require(err)
	}
}

// usedMemory is what Redis uses, in bytes.
func (s *overloaded) usedMemory(ctx context.Context) int64 {
	servers, err := s.ledger.Monitor.Memory(ctx)
	s.require(err)
	if len(servers) == 0 {
		return 0
	}
	return servers[0].MemoryUsed
}

// fullDisk: Redis cannot go on without its log and ends itself.
func (s *overloaded) fullDisk(ctx context.Context) {
	before := s.before(ctx)
	// What the log may still grow by: about two hundred orders.
	s.require(s.disk.LeaveRoom(256<<10, "appendonlydir"))
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

	s.disk.FreeRoom()
	s.require(s.redis.Start(ctx))
	first := s.checkAccepted(ctx, s.form.recovery, "orders accepted after Redis's start")
	again := slices.Concat(s.checkResent(ctx, filling, "orders refused or not answered while it ended"),
		s.checkResent(ctx, full, "orders refused without it"))
	s.checkReady(ctx, s.Gateway, s.Worker)
	s.checkSettled(ctx, "the worker has caught up")
	s.checkKept(ctx, before.orders, filling.orders, first, again)
}

func (s *overloaded) withoutClickHouse(ctx context.Context) {
	with := s.before(ctx)
	s.ClickHouse.Kill()
	watched := watch(ctx, harness.Process{Name: "reporting", PID: s.Reporting.PID()})
	without, reads := s.phase(ctx, 3*s.form.phase, with.orders) // several tries of the exporter
	cores := watched()["reporting"].Cores
	s.checkServed(without, "orders without ClickHouse")
	s.checkServed(reads, "reads without ClickHouse")
	s.figure("an accepted order took, p99", "%s with, %s without",
		milliseconds(p99(with.accepted)), milliseconds(p99(without.accepted)))
	s.check(cores <= 0.5, "CPU of the exporter, which waits", "at most half a core", "%.2f cores", cores)

	s.require(s.ClickHouse.Start(ctx))
	want := strconv.Itoa(len(with.orders) + len(without.orders))
	s.checkBecomes(ctx, s.form.timeout, "the export has caught up", "all orders, with their end, ", func() (bool, string) {
		exported, err := harness.Query(ctx, s.Demo.ClickHouseURL+"/", "SELECT count() FROM delivery.orders FINAL WHERE status = 'Delivered'")
		if err != nil {
			return false, err.Error()
		}
		return exported == want, exported + " of " + want
	})
	s.checkKept(ctx, with.orders, without.orders)
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
func (s *overloaded) jumpingClock(ctx context.Context) {
	c := &clockTest{overloaded: s, busy: s.wide[0], limited: s.ordinary[0], inbox: validate.NewInbox()}
	s.ends = append(s.ends, c.inbox.Close)
	secret, err := c.busy.SetWebhook(ctx, "http://"+c.inbox.Listener.Addr().String()+"/")
	s.require(err)
	c.inbox.Serve(c.busy.AccountID, secret)
	few := map[string]any{"limits": map[string]any{"orders": stack.Limit(600, 60, burst, int(burstWindow/time.Second))}}
	s.require(s.apis.Admin.Call(ctx, http.MethodPatch, "/accounts/"+c.limited.AccountID, few, nil))
	c.play(ctx, "before", 1, burstWindow)
	c.checkDelivered(ctx, "webhooks before")

	s.disk.ShiftClock(time.Hour)
	c.inbox.Behave(http.StatusInternalServerError, 0)
	earlier := len(c.inbox.Arrivals())
	c.play(ctx, "an hour ahead", 1, burstWindow)
	c.guess(ctx)
	// Until the breaker has been opened and probed ahead of time.
	_ = harness.Await(ctx, "the breaker", s.form.timeout, pollInterval, func() (bool, error) { // webhooks are checked later
		return len(c.inbox.Arrivals())-earlier >= 8, nil
	})

	s.disk.ShiftClock(0)
	c.inbox.Behave(0, 0)
	c.back(ctx)
}

// play orders, reads, repeats, and orders up to the limit, which must then ask for a wait within its window.
func (c *clockTest) play(ctx context.Context, when string, least int, most time.Duration) {
	const n = 20
	t := c.order(ctx, []*loadVendor{c.busy}, load{connections: 4, duration: time.Minute, most: n})
	late, problems := c.resend(ctx, t.again)
	orders := slices.Concat(t.orders, late)
	c.check(t.served(t.accepted, c.form.share) && len(orders) == n, "orders of a vendor within its limits, "+when,
		"all accepted", "%d of %d%s", len(orders), n, t.problems()+problems)
	c.orders = append(c.orders, orders...)
	if len(c.orders) == 0 {
		c.require(fmt.Errorf("no order was accepted %s", when))
		return
	}
	c.checkBecomes(ctx, delivery.PollInterval+slack, "the order that was read just before, read "+when, "", func() (bool, string) {
		a, err := c.busy.Do(ctx, http.MethodGet, "/orders/"+c.orders[0].id, nil)
		return answered(a, err, http.StatusOK)
	})
	c.checkSame(ctx, c.orders[:min(n, len(c.orders))], "idempotency keys "+when)
	before, wait := len(c.granted), time.Duration(0)
	for try := 0; wait == 0 && try < 10*burst && ctx.Err() == nil; try++ {
		a, err := c.tryOrder(ctx)
		switch {
		case err != nil:
			c.require(err)
		case a.Status == http.StatusTooManyRequests:
			wait = a.RetryAfter()
		case a.Status != http.StatusCreated && a.Status != http.StatusServiceUnavailable: // 503: the machine is too busy
			c.require(fmt.Errorf("an order was answered %d", a.Status))
		}
	}
	granted := len(c.granted) - before
	c.check(granted >= least && wait > 0 && wait <= most, "limits "+when+": granted until 429, Retry-After",
		"at most "+burstWindow.String(), "%d, %s", granted, wait)
}

func (c *clockTest) back(ctx context.Context) {
	c.play(ctx, "after the jump back", 0, burstWindow+slack)
	c.checkBecomes(ctx, burstWindow+slack, "limits after the jump back: granted again", "", func() (bool, string) {
		a, err := c.tryOrder(ctx)
		return answered(a, err, http.StatusCreated)
	})
	// Each jump can open a window that is over by the clock.
	most := mostWithin(c.granted, burstWindow)
	c.check(most <= 3*burst, "most granted within 10 s over both jumps",
		fmt.Sprintf("at most %d, once the limit for each jump more", 3*burst), "%d", most)
	wait := c.guess(ctx)
	c.check(wait <= time.Minute, "wrong credentials after the jump back: Retry-After",
		"at most the minute of that guard", "%s", wait)
	c.checkDelivered(ctx, "webhooks after the jump back, those of a receiver that failed meanwhile")
	c.checkSettled(ctx, "streams: the worker has read and settled everything")
	c.checkKept(ctx, c.orders)
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

// guess is the longest wait that wrong credentials are answered with.
func (c *clockTest) guess(ctx context.Context) (longest time.Duration) {
	wrong := map[string]string{"clientId": c.ordinary[1].ClientID, "clientSecret": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"}
	for range 12 {
		if a, err := c.apis.Vendor.Do(ctx, http.MethodPost, "/token", wrong); err != nil {
			c.require(err)
		} else {
			longest = max(longest, a.RetryAfter())
		}
	}
	return longest
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

const (
	floodRate  = 5000 // requests a second of a flood
	besideRate = 500  // the vendors' orders a second beside it
)

// post is a request with a JSON body and further header lines.
func post(dst []byte, path, headers, body string) []byte {
	return fmt.Appendf(dst, "POST %s HTTP/1.1\r\nHost: x\r\n%sContent-Type: application/json\r\n"+
		"Content-Length: %d\r\n\r\n%s", path, headers, len(body), body)
}

// beside lets the vendors order while do runs, and returns what they saw. "clients" are the vendors and the flood.
func (s *overloaded) beside(ctx context.Context, when string, do func()) *tally {
	watched := watch(ctx, append(s.processes(), harness.Self("clients"))...)
	var all sync.WaitGroup
	all.Go(do)
	t := s.order(ctx, s.wide, load{connections: steadyConnections, rate: besideRate, duration: s.form.load})
	all.Wait()
	used := watched()
	s.figure("cores used "+when, "gateway %.2f worker %.2f redis %.2f clients %.2f",
		used["gateway"].Cores, used["worker"].Cores, used["redis"].Cores, used["clients"].Cores)
	s.figure("vendors' orders "+when+", p99", "%s", milliseconds(p99(t.accepted)))
	return t
}

func (s *overloaded) flooded(ctx context.Context, f load, what string) *tally {
	f.duration = s.form.load
	s.figure(what+" a second", "%d over %d connections for %.0f s; vendors at %d orders a second",
		floodRate, f.connections, s.form.load.Seconds(), besideRate)
	return s.beside(ctx, "beside "+what, func() { s.figure("answers to "+what, "%s", counts(f.send(ctx).statuses)) })
}

// checkCommands checks that a refused flood costs Redis next to nothing, compared with a phase without it.
func (s *overloaded) checkCommands(ctx context.Context, what, want string, f load, refusal int) {
	f.duration = s.form.phase
	var refused float64
	began := time.Now()
	flooded := s.during(ctx, func() { refused = float64(f.send(ctx).statuses[refusal]) })
	took := time.Since(began) // the last answers may come late
	calm := s.during(ctx, func() { time.Sleep(took) })
	const commands = "total_commands_processed"
	s.check(refused > 0 && flooded[commands]-calm[commands] < refused/10, what, want,
		"%.0f for %.0f refusals, %.0f in the same time without", flooded[commands], refused, calm[commands])
}

// during is by how much Redis's figures grow while something is done.
func (s *overloaded) during(ctx context.Context, do func()) harness.Usage {
	before, err := harness.RedisInfo(ctx, s.redis)
	s.require(err)
	do()
	after, err := harness.RedisInfo(ctx, s.redis)
	s.require(err)
	return after.Since(before)
}

// floodFleet is a fleet's credential in wrong hands.
func (s *overloaded) floodFleet(ctx context.Context) {
	const most = 8 << 20 // bytes that Redis may keep more than the vendors' orders take
	orders := s.openAndEnded(ctx)
	if ctx.Err() != nil {
		return
	}
	f := load{addr: strings.TrimPrefix(s.Demo.OpsURL, "http://"), connections: 32, rate: floodRate}
	f.request = func(dst []byte, n int) ([]byte, placed) {
		statuses := []string{`Assigned`, `PickedUp`, `Delivered`, `Failed","failureReason":"Other`}
		if n%2 == 0 { // an open order, which the flood does not end
			statuses = []string{`Assigned`, `Failed","failureReason":"AddressNotFound`}
		}
		status := statuses[n/len(orders)%len(statuses)]
		path := "/api/fleet/v1/jobs/" + orders[n%len(orders)] + "/status"
		return post(dst, path, "Authorization: Bearer "+s.apis.Fleet.Bearer+"\r\n", `{"status":"`+status+`"}`), placed{}
	}
	minute := func() { _ = harness.Sleep(ctx, 62*time.Second) } // the worker trims every minute
	var calm, flooded *tally
	calmGrowth := s.during(ctx, func() {
		calm = s.beside(ctx, "without the flood", func() {})
		minute()
	})
	grown := s.during(ctx, func() {
		flooded = s.flooded(ctx, f, "the reports of one fleet")
		minute()
	})
	s.checkServed(flooded, "vendors' orders accepted beside the flood")
	s.checkP99(flooded.accepted, s.form.beside, "vendors' orders beside the flood")
	each := calmGrowth["used_memory"] / float64(max(len(calm.orders), 1))
	left := grown["used_memory"] - each*float64(len(flooded.orders))
	s.check(left <= most, "Redis's memory a minute later, without what the vendors' orders take",
		"at most 8 MiB more than before", "%.1f MiB", left/(1<<20))

	disabled := map[string]bool{"disabled": true}
	s.require(s.apis.Admin.Call(ctx, http.MethodPatch, "/fleets/"+s.apis.FleetID, disabled, nil))
	s.checkCommands(ctx, "commands of Redis while a disabled fleet is refused", "as many as when nothing comes",
		f, http.StatusForbidden)
}

// openAndEnded are a hundred open and a hundred ended orders of the fleet, in turns.
func (s *overloaded) openAndEnded(ctx context.Context) (ids []string) {
	t := s.order(ctx, s.wide, load{connections: 4, duration: time.Minute, most: 200})
	if len(t.orders) != 200 {
		s.require(fmt.Errorf("%d of 200 orders accepted%s", len(t.orders), t.problems()))
		return nil
	}
	for i, o := range t.orders {
		ids = append(ids, o.id)
		if i%2 == 1 {
			delivered := map[string]string{"status": "Delivered"}
			s.require(s.apis.Fleet.Call(ctx, http.MethodPost, "/jobs/"+o.id+"/status", delivered, nil))
		}
	}
	s.require(harness.Await(ctx, "the worker", s.form.timeout, pollInterval, func() (bool, error) {
		var job struct{ Status string }
		err := s.apis.Fleet.Call(ctx, http.MethodGet, "/jobs/"+ids[len(ids)-1], nil, &job)
		return job.Status == "Delivered", err
	}))
	return ids
}

// floodLogins is a stranger who guesses credentials of a client that exists, of some that do not, and of what is none.
func (s *overloaded) floodLogins(ctx context.Context) {
	owner := s.wide[0]
	f := load{addr: s.addr, connections: 600, rate: floodRate}
	f.request = func(dst []byte, n int) ([]byte, placed) {
		client := []string{owner.ClientID, fmt.Sprintf("ven_%032x", n), "nobody"}[n%3]
		return post(dst, "/api/vendor/v1/token", "", fmt.Sprintf(`{"clientId":%q,"clientSecret":"vas_%d"}`, client, n)), placed{}
	}
	s.beside(ctx, "without the wrong logins", func() {})
	right, tries := 0, 0
	flooding, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	all.Go(func() { // the owner logs in from the same address
		for ; harness.Sleep(flooding, max(s.form.load/10, time.Second)) == nil; tries++ {
			if _, err := s.apis.Vendor.Login(ctx, "/token", owner.ClientID, owner.ClientSecret); err == nil {
				right++
			}
		}
	})
	flooded := s.flooded(ctx, f, "the wrong logins")
	stop()
	all.Wait()
	s.check(right == tries && tries > 0, "right logins beside the wrong ones", "all", "%d of %d", right, tries)
	busy := len(flooded.again) - flooded.unknown
	s.check(busy == 0 && flooded.served(flooded.accepted, s.form.share), "vendors' orders accepted beside them",
		"all, and none answered 503", "%d of %d, %d answered 503%s",
		flooded.accepted.TotalCount(), flooded.sent, busy, flooded.problems())
	s.checkCommands(ctx, "commands of Redis while throttled logins are refused", "next to none",
		f, http.StatusTooManyRequests)
}
