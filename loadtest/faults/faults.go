package main

import (
	"cmp"
	"context"
	_ "embed" // for the files of Lua
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/failpoint"
	"vendorapi/loadtest/faults/failpoint/point"
	"vendorapi/loadtest/harness"
)

// fault is a row of faults.yaml, which explains the fields.
type fault struct {
	Name   string
	Does   string
	Expect string
	Action string

	// Where and when it strikes.
	Process string
	At      []way
	Moments []failpoint.Moment
	Sending bool
	Proxies []string
	Length  []time.Duration
	Every   []time.Duration

	// What it needs.
	Workers []int
	Redis   needs
	System  []part
}

// hasOwnSystem reports whether a round of the fault shares its system with no other.
func (f *fault) hasOwnSystem() bool { return f.System != nil }

// needs names the Redis that a fault needs.
type needs string

const (
	anyRedis            needs = ""
	oneRedis            needs = "one"
	replicatedRedis     needs = "replica"
	clusterOfRedis      needs = "cluster"
	clusterWithReplicas needs = "cluster with replicas"
)

// isAlone reports whether no other fault may act beside such a one, which changes who is a master.
func (n needs) isAlone() bool { return n != anyRedis && n != oneRedis }

// isMet reports whether the run has the Redis.
func (n needs) isMet(o *options) bool {
	switch n {
	case anyRedis:
		return true
	case oneRedis:
		return !o.cluster
	case replicatedRedis:
		return !o.cluster && o.replica
	case clusterOfRedis:
		return o.cluster && !o.replica
	case clusterWithReplicas:
		return o.cluster && o.replica
	}

	return false
}

// way is a request to wait for.
type way struct {
	Proxy  string
	Or     string // a second proxy, where the request passes one of the two; else empty
	Points []point.Point
	Words  []string
}

// markers returns texts that only the way's requests contain.
func (w way) markers() []string {
	markers := slices.Clone(w.Words)
	for _, p := range w.Points {
		markers = append(markers, p.Mark()+"\r\n") // the end of an argument
	}
	return markers
}

// loadFaults returns the rows of faults.yaml to play. With -only they are the named ones, and it is an error if the run
// cannot show one of them. Otherwise they are all that the run's Redis can show: those on the run's system, or with
// -overload those with systems of their own.
func loadFaults(o *options) ([]fault, error) {
	all, err := readTable("faults.yaml", o.only, func(f fault) string { return f.Name })
	if err != nil {
		return nil, err
	}

	if o.only == "" {
		isLeftOut := func(f fault) bool { return f.hasOwnSystem() != o.overload || !f.isPossible(o) }
		return slices.DeleteFunc(all, isLeftOut), nil
	}

	for _, f := range all {
		if f.isPossible(o) {
			continue
		}
		if f.hasOwnSystem() {
			return nil, fmt.Errorf("-only: %s has a system of its own, without -cluster and -replica", f.Name)
		}
		return nil, fmt.Errorf("-only: %s needs another Redis: %s (see -cluster and -replica)", f.Name, f.Redis)
	}

	return all, nil
}

// isPossible reports whether the run can show the fault.
func (f *fault) isPossible(o *options) bool {
	if f.hasOwnSystem() {
		return !o.cluster && !o.replica
	}
	return f.Redis.isMet(o)
}

// bySystem returns the faults whose rounds share the run's system, and those whose rounds have systems of their own.
func bySystem(faults []fault) (shared, own []fault) {
	for _, f := range faults {
		if f.hasOwnSystem() {
			own = append(own, f)
		} else {
			shared = append(shared, f)
		}
	}
	return shared, own
}

// actions are the actions of faults on the run's system, by their names in faults.yaml.
var actions = map[string]func(*injection, context.Context) error{
	"none":           func(_ *injection, ctx context.Context) error { return harness.Sleep(ctx, faultLength/2) },
	"crash":          (*injection).crash,
	"stop":           (*injection).stop,
	"pause":          (*injection).pause,
	"lose":           (*injection).lose,
	"late":           (*injection).late,
	"hold":           (*injection).hold,
	"delay":          (*injection).delay,
	"partition":      (*injection).partition,
	"slow-fsync":     (*injection).slowFsync,
	"tear-aof":       (*injection).tearAOF,
	"cut-aof":        (*injection).cutAOF,
	"flush-scripts":  (*injection).flushScripts,
	"destroy-groups": (*injection).destroyGroups,
	"fill-memory":    (*injection).fillMemory,
	"receivers":      (*injection).disturbReceivers,
	"kill-machine":   (*injection).killMachine,
	"split":          (*injection).split,

	"master-away":     (*injection).masterAway,
	"master-replaced": (*injection).masterReplaced,
	"failover":        (*injection).failover,
}

const (
	faultLength = 5 * time.Second // about how long a fault goes on in a round

	// startTimeout is how long a fault waits for a process that it starts again before it goes on.
	startTimeout = 10 * time.Second

	// trapTimeout is how long a trap waits for its request: clients send all the time.
	trapTimeout = 8 * time.Second

	// trapTurn is how long a trap waits at one of two proxies before it is set at the other.
	trapTurn = 2 * time.Second
)

// injection is one fault in one round.
type injection struct {
	*system
	fault
	vendors []*vendor
	clients []*vendorClient // the vendors' clients through which the fault itself sends requests
	random  *rand.Rand
	log     func(format string, args ...any)

	times   atomic.Int64 // how often the fault has struck
	failure error        // why the fault could not be injected; nil if it could
}

// inject does the fault's action once, or again and again for about faultLength if the fault has an Every.
func (in *injection) inject(ctx context.Context) error {
	do := actions[in.Action]
	if in.Sending {
		do = (*injection).whileSending
	}

	if in.Every == nil {
		return do(in, ctx)
	}

	began := time.Now()
	for {
		in.wait(ctx, in.Every[0], in.Every[1])

		err := do(in, ctx)
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil || time.Since(began) > faultLength {
			return err
		}
	}
}

// between draws a duration from least to most, both included.
func (in *injection) between(least, most time.Duration) time.Duration {
	return least + time.Duration(in.random.Int64N(int64(most-least)+1))
}

// wait waits for a drawn time from least to most, or until ctx ends.
func (in *injection) wait(ctx context.Context, least, most time.Duration) {
	_ = harness.Sleep(ctx, in.between(least, most)) // callers look at ctx when it matters
}

func draw[T any](random *rand.Rand, list []T) T { return list[random.IntN(len(list))] }

// drawWay draws a request to wait for. In a cluster no proxy sees those to Redis.
func (in *injection) drawWay() way {
	ways := slices.DeleteFunc(slices.Clone(in.At), func(w way) bool { return in.proxies[w.Proxy] == nil })
	return draw(in.random, ways)
}

// drawProxy draws a proxy of those that the fault hits.
func (in *injection) drawProxy() *failpoint.Proxy {
	names := slices.DeleteFunc(slices.Clone(in.Proxies), func(name string) bool { return in.proxies[name] == nil })
	return in.proxies[draw(in.random, names)]
}

// process is a program, or a server of Redis.
func (in *injection) process(name string) *stack.Program {
	if name == "redis" {
		return draw(in.random, in.redisServers()).Program
	}
	return in.system.process(name)
}

// retry repeats what fails, as long as another fault prevents it.
func retry(ctx context.Context, timeout time.Duration, do func() error) (err error) {
	_ = harness.Await(ctx, "", timeout, pollInterval, func() (bool, error) { // err says what is wrong
		err = do()
		return err == nil, nil
	})
	return errors.Join(err, context.Cause(ctx))
}

// crash kills the process, at one of its requests if there are any, and starts it again later.
func (in *injection) crash(ctx context.Context) error {
	if len(in.At) == 0 {
		in.times.Add(1)
		return in.killAndRestart(ctx, func() error { return nil })
	}

	t, err := in.trap(ctx, in.drawWay(), draw(in.random, in.Moments))
	if err != nil {
		return err
	}
	return in.killAndRestart(ctx, t.Release)
}

func (in *injection) killAndRestart(ctx context.Context, do func() error) error {
	p := in.process(in.Process)
	in.mu.Lock()
	p.Kill()
	in.mu.Unlock()
	if err := do(); err != nil {
		return err
	}

	in.wait(ctx, 0, 800*time.Millisecond)
	return in.restart(ctx, p, startTimeout)
}

// stop ends the process in order and starts it again later.
func (in *injection) stop(ctx context.Context) error {
	in.times.Add(1)
	in.process(in.Process).Stop() // without the lock: another fault may have paused it
	return in.killAndRestart(ctx, func() error { return nil })
}

// trap waits for a request, at the way's two proxies by turns if it has two. Unless the moment is Late, Release must
// follow, and Pass if it is Held. If another fault takes the proxy while it waits, the trap is set again.
func (in *injection) trap(ctx context.Context, w way, moment failpoint.Moment) (*failpoint.Trap, error) {
	marker := draw(in.random, w.markers())
	ctx, cancel := context.WithTimeout(ctx, trapTimeout)
	defer cancel()

	proxy, next := w.Proxy, cmp.Or(w.Or, w.Proxy)
	for {
		t, err := in.trapAt(ctx, proxy, marker, moment)
		if err == nil {
			in.times.Add(1)
			in.log("%s %q", moment, marker)
			return t, nil
		}

		if ctx.Err() != nil {
			return nil, err
		}

		proxy, next = next, proxy
		if errors.Is(err, failpoint.ErrRemoved) {
			in.wait(ctx, 100*time.Millisecond, 400*time.Millisecond)
		}
	}
}

// trapAt waits for a request at one proxy, for as long as it is that proxy's turn.
func (in *injection) trapAt(ctx context.Context, proxy, marker string, moment failpoint.Moment) (*failpoint.Trap, error) {
	ctx, cancel := context.WithTimeout(ctx, trapTurn)
	defer cancel()
	t := in.proxies[proxy].Set(marker, moment)
	return t, t.Await(ctx)
}

// lose loses a request or its reply and, half of the time, the same of the next, maybe the sender's second try.
func (in *injection) lose(ctx context.Context) error {
	w, moment := in.drawWay(), draw(in.random, in.Moments)
	for range 1 + in.random.IntN(2) {
		t, err := in.trap(ctx, w, moment)
		if err != nil {
			return err
		}
		if err := t.Release(); err != nil {
			return err
		}
	}

	return nil
}

// late delays requests until their partitions are another worker's and their clients have given up.
func (in *injection) late(ctx context.Context) error {
	began := time.Now()
	for _, w := range in.At {
		if _, err := in.trap(ctx, w, failpoint.Late); err != nil {
			return err
		}
	}

	// All of them arrive before the round is over.
	return harness.Sleep(ctx, time.Until(began.Add(failpoint.Lateness+2*time.Second)))
}

// longestHold is less than the worker waits for Redis, and than what its ownership takes to pass to another worker.
const longestHold = time.Second

// hold holds a step of the worker until the vendors of its orders have cancelled them.
func (in *injection) hold(ctx context.Context) error {
	t, err := in.trap(ctx, in.drawWay(), failpoint.Held)
	if err != nil {
		return err
	}
	defer t.Pass()

	began := time.Now()
	for _, c := range in.clients {
		for _, order := range c.vendor.namedBy(t.Request()) {
			if time.Since(began) > longestHold {
				return nil
			}
			c.cancel(order)
		}
	}

	return nil
}

// whileSending acts while receivers hold webhooks that they have not answered.
func (in *injection) whileSending(ctx context.Context) error {
	for _, v := range in.vendors {
		v.disturbed.Store(true)
		v.inbox.Behave(0, 20*time.Second) // longer than any fault, unless the sender leaves
	}

	defer func() {
		for _, v := range in.vendors {
			v.inbox.Behave(0, 0)
		}
	}()

	err := harness.Await(ctx, "a webhook", trapTimeout, pollInterval, func() (bool, error) {
		return slices.ContainsFunc(in.vendors, func(v *vendor) bool { return v.inbox.Begun() > 0 }), nil
	})
	if err != nil {
		return err
	}

	return actions[in.Action](in, ctx)
}

func (in *injection) pause(ctx context.Context) error {
	p := in.process(in.Process)
	if err := retry(ctx, startTimeout, func() error { return in.signal(p, syscall.SIGSTOP) }); err != nil {
		return fmt.Errorf("SIGSTOP: %w", err)
	}

	in.times.Add(1)
	err := harness.Sleep(ctx, in.between(in.Length[0], in.Length[1]))
	_ = in.signal(p, syscall.SIGCONT) // another fault may have killed it
	return err
}

func (in *injection) delay(ctx context.Context) error {
	names := in.Proxies
	if names == nil {
		names = slices.Sorted(maps.Keys(in.proxies))
	}

	for _, name := range names {
		by := in.between(in.Length[0], in.Length[1])
		in.proxies[name].Delay(by, by/2)
		in.times.Add(1)
	}

	return harness.Sleep(ctx, faultLength)
}

// partition separates programs from servers: connections are refused, or nothing comes back at all.
func (in *injection) partition(ctx context.Context) error {
	p := in.drawProxy()
	if in.random.IntN(2) == 0 {
		p.Refuse()
	} else {
		p.Swallow()
	}

	in.times.Add(1)
	in.wait(ctx, in.Length[0], in.Length[1])
	return p.Heal()
}

// slowFsync makes the disk slow, then so slow that the kill falls into an fsync: what was answered must be there.
func (in *injection) slowFsync(ctx context.Context) error {
	for _, delay := range []time.Duration{in.between(50*time.Millisecond, 300*time.Millisecond), 3 * time.Second} {
		in.disk.DelaySync(delay)
		in.times.Add(1)
		in.wait(ctx, 1500*time.Millisecond, 3500*time.Millisecond)
	}
	return in.killAndRestart(ctx, func() error {
		in.disk.DelaySync(0)
		return nil
	})
}

// tearAOF adds what a write that never ended leaves behind. Nothing that was acknowledged is touched.
func (in *injection) tearAOF(ctx context.Context) error {
	in.times.Add(1)
	return in.killAndRestart(ctx, func() error { return failpoint.TearTail(in.redis.Dir, in.random.IntN(1000)) })
}

// cutAOF removes bytes that Redis had written. With appendfsync always an answer means that they are on the disk,
// so first every answer is held back; of what is written from then on a part is cut, as a power failure does. If
// another fault heals a connection meanwhile, something may have been answered, and nothing is cut.
func (in *injection) cutAOF(ctx context.Context) error {
	proxies := []*failpoint.Proxy{in.proxies["gateway-redis"], in.proxies["worker-redis"], in.proxies["spares-redis"], in.proxies["reporting-redis"]}
	heals := func() (n int64) {
		for _, p := range proxies {
			n += p.Heals.Load()
		}
		return n
	}

	before := heals()
	for _, p := range proxies {
		p.Mute()
	}

	end, err := failpoint.EndOf(in.redis.Dir)
	if err != nil {
		return err
	}

	in.wait(ctx, 200*time.Millisecond, 800*time.Millisecond)
	in.times.Add(1)

	return in.killAndRestart(ctx, func() (err error) {
		if heals() == before {
			var cut, of int64
			cut, of, err = end.CutSince(in.redis.Dir, func(n int64) int64 { return 1 + in.random.Int64N(n) })
			in.log("cut %d of %d bytes", cut, of)
		}

		for _, p := range proxies {
			err = errors.Join(err, p.Heal())
		}
		return err
	})
}

// command gives Redis, in a cluster one of its servers, a command once it answers, unless another fault lasts
// too long.
func (in *injection) command(ctx context.Context, args ...string) (reply string, err error) {
	err = retry(ctx, startTimeout, func() error {
		server := draw(in.random, in.redisServers())
		reply, err = server.Command(ctx, args...)
		if err != nil {
			err = fmt.Errorf("%s: %w", args[0], err)
		}
		return err
	})
	return reply, err
}

// flushScripts leaves Redis without functions and scripts, as a failover may.
func (in *injection) flushScripts(ctx context.Context) error {
	in.times.Add(1)
	_, functions := in.command(ctx, "FUNCTION", "FLUSH", "SYNC")
	_, scripts := in.command(ctx, "SCRIPT", "FLUSH")
	return errors.Join(functions, scripts)
}

//go:embed destroy_groups.lua
var destroyGroupsLua string

// destroyGroups: the trim must refuse to drop what a missing group has not read.
func (in *injection) destroyGroups(ctx context.Context) error {
	reply, err := in.command(ctx, "EVAL", destroyGroupsLua, "0", strconv.Itoa(in.random.IntN(1<<31)))
	if err != nil {
		return err
	}
	destroyed, err := strconv.ParseInt(reply, 10, 64)
	in.times.Add(destroyed)
	return err
}

// ownersLua is a function that other scripts call.
//
//go:embed owners.lua
var ownersLua string

//go:embed list_ended.lua
var listEndedLua string

const (
	// listedOrders is how many orders are listed as ended long ago, which takes some megabytes.
	listedOrders = 200_000
	// healTimeout is within what a full Redis must take orders again, by itself.
	healTimeout = time.Minute
)

// fillMemory fills Redis, up to a limit of memory, with the list of orders that ended long ago. The
// workers have to make room: nothing else heals the fault before the round is over.
func (in *injection) fillMemory(ctx context.Context) error {
	before, err := in.usedMemory(ctx)
	if err != nil {
		return err
	}
	if _, err := in.command(ctx, "EVAL", ownersLua+listEndedLua, "0", strconv.Itoa(listedOrders)); err != nil {
		return err
	}

	filled, err := in.usedMemory(ctx)
	if err != nil {
		return err
	}

	limit := (before + filled) / 2
	if _, err := in.command(ctx, "CONFIG", "SET", "maxmemory", strconv.FormatInt(limit, 10)); err != nil {
		return err
	}

	in.times.Add(1)
	err = harness.Await(ctx, "a full Redis becomes less full by itself", healTimeout, pollInterval, func() (bool, error) {
		used, err := in.usedMemory(ctx)
		return err == nil && used < limit, nil // it may be away meanwhile
	})
	if ctx.Err() != nil {
		return nil // the round is over, and heals the rest
	}

	_, failure := in.command(ctx, "CONFIG", "SET", "maxmemory", stack.DefaultMaxMemory())

	return errors.Join(err, failure)
}

// usedMemory returns what Redis uses, in bytes, once it answers.
func (in *injection) usedMemory(ctx context.Context) (used int64, err error) {
	err = retry(ctx, startTimeout, func() (err error) {
		used, err = in.system.usedMemory(ctx)
		return err
	})
	return used, err
}

// disturbReceivers leaves the first vendor's receiver healthy: it must not notice the others.
func (in *injection) disturbReceivers(ctx context.Context) error {
	for i, v := range in.vendors[1:] {
		v.disturbed.Store(true)
		in.times.Add(1)
		switch i % 3 {
		case 0:
			v.door.Refuse()
		case 1:
			v.inbox.Behave(0, in.between(400*time.Millisecond, 2*time.Second))
		case 2:
			v.inbox.Behave(http.StatusInternalServerError, 0)
		}
	}

	return harness.Sleep(ctx, faultLength)
}
