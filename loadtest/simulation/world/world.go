// Package world is a simulation of gateways, workers and an exporter, and of everybody who uses them, which a seed
// repeats. All of them are the product's own code, with their goroutines, timers and contexts, in one bubble of
// testing/synctest, so that a day passes as soon as everybody waits. Redis is a real one, outside of the bubble.
//
//	+------------------------------ bubble, its own clock ------------------------------+
//	| vendors, fleets, operator --> gateway's handler --+                               |
//	|                      workers (owner, dispatch) ---+-- hook: waits --> simulator --+--> redis-server,
//	|                      exporter --------------------+     for its       one call    |    its clock set
//	|                         |         |                     answer        at a time   |    before each call
//	|                  receivers      rows (a map)                                      |
//	+-----------------------------------------------------------------------------------+
//
// Who calls Redis waits until the simulator answers. The simulator acts when nobody else can: then each actor waits for
// Redis, for time, or for another actor. It sorts the calls, lets the seed choose one, and gives it to Redis, loses the
// reply, refuses it, holds it back until its caller has gone, or kills a program around it. When there is no call, time
// jumps to the next timer.
package world

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/ledger"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/simulation/chance"
	"vendorapi/worker/dispatch"
	"vendorapi/worker/status"
)

type redisHook = redis.Hook

// began is when a simulation begins: an ordinary Monday morning in Istanbul. The bubble's own clock begins earlier.
var began = time.Date(2026, time.March, 2, 6, 0, 0, 0, time.UTC)

// A Breach is something that must not happen.
type Breach struct {
	What, About, Says string
}

// String returns the breach as one line of text.
func (b Breach) String() string { return fmt.Sprintf("%s [%s]: %s", b.What, b.About, b.Says) }

// A Verdict is the result of playing a seed.
type Verdict struct {
	Seed     uint64
	Breaches []Breach
	Story    string // the story's last lines when the first breach was found; empty without a breach
	Digest   string // a digest of all that happened, the same each time the seed is played

	Steps      int // calls of Redis
	Operations int // requests of vendors, fleets and operators
	Orders     int
	Kills      int // programs that were killed

	Life time.Duration // on the clock of the bubble
	Took time.Duration // on the clock of the machine
}

type world struct {
	*simulator
	seed  uint64
	seams Seams
	plan  plan

	status  status.Settings
	webhook dispatch.Settings

	slots  []*slot
	hosts  sync.WaitGroup
	dying  sync.WaitGroup // lives that have ended, and whose goroutines have not
	ledger *ledger.Ledger // the oracle's own
	redis  *redis.Client  // the oracle's own

	vendors []*vendor
	fleets  []*fleet

	mu         sync.Mutex
	breaches   []Breach
	until      string // the story's last lines when the first breach was found
	operations []validate.Operation
	asked      int // requests
	arrivals   []validate.Arrival
	replays    []validate.ReplayRequest
	rows       rows

	facts *validate.Facts // once everything has settled
}

// Play plays one seed. It must be called in a bubble, while the server stands outside of it. The function that it returns
// must be called outside of the bubble; it checks what has happened and returns the verdict. With tell, the whole story is
// printed while it happens. Play panics if the server cannot be emptied.
func Play(server *Server, seams Seams, seed uint64, tell bool) (judge func() *Verdict) {
	debug.SetGCPercent(-1) // runUntil collects, every stepsPerCollection steps
	time.Sleep(time.Until(began))
	chance.Seed(seed)
	w := &world{simulator: newSimulator(server, seed), seed: seed, seams: seams}
	w.story.all = tell
	w.plan = drawPlan(w.chance("plan"))
	w.isBusy = w.plan.isBusy
	w.status = status.Settings{
		Batch:                64,
		TimerInterval:        5 * time.Minute,
		HousekeepingInterval: time.Hour,
		ShrinkAfter:          6 * 24 * time.Hour, // not before the orders are compared with what was asked for
		Retention:            7 * 24 * time.Hour,
		StreamRetention:      6 * 24 * time.Hour,
	}

	w.webhook = dispatch.Settings{
		Concurrency:     64,
		PerEndpoint:     8,
		BreakerFailures: 5,
		Timeout:         10 * time.Second,
		LocalReceivers:  "auto",
		Memory:          64,
	}

	seams.Receive(w.receive)
	seams.Store(w.store)
	w.rows.init()
	if err := server.empty(context.Background()); err != nil {
		panic(err)
	}

	ctx, end := context.WithCancel(context.Background())
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.live(ctx)
	}()

	w.runUntil(closed(over))

	end()
	all := make(chan struct{})
	go func() {
		defer close(all)
		w.hosts.Wait()
		w.dying.Wait()
	}()

	w.runUntil(closed(all))
	life := time.Since(began)
	w.drain()

	return func() *Verdict {
		w.judge()
		return w.verdict(life)
	}
}

func closed(c chan struct{}) func() bool {
	return func() bool {
		select {
		case <-c:
			return true
		default:
			return false
		}
	}
}

// live is the whole life of a simulated system.
func (w *world) live(ctx context.Context) {
	w.build(ctx)
	if len(w.breaches) > 0 {
		return
	}

	w.faults = w.plan.faults
	w.kills = w.victim
	w.act(ctx)

	w.faults = faults{}
	w.kills = nil
	w.heal(ctx)
	w.check(ctx)
}

// build starts the programs and makes accounts and fleets, while nothing fails.
func (w *world) build(ctx context.Context) {
	skew := func(random *rand.Rand) time.Duration {
		if !w.plan.skewed {
			return 0
		}
		return draw(random, []time.Duration{0, 0, 700 * time.Millisecond, -700 * time.Millisecond, 20 * time.Second, -20 * time.Second})
	}

	random := w.chance("clocks")
	for i := range 2 {
		w.slots = append(w.slots, &slot{kind: "gateway", name: fmt.Sprintf("gateway-%d", i+1), skew: skew(random)})
	}

	for i := range 2 {
		w.slots = append(w.slots, &slot{kind: "worker", name: fmt.Sprintf("worker-%d", i+1)})
	}

	w.slots = append(w.slots, &slot{kind: "exporter", name: "exporter"})
	for i, s := range w.slots {
		w.hosts.Go(func() {
			// One after the other: programs that start at once read files, and draw, in an order that no seed decides.
			pause(ctx, time.Duration(i)*time.Second)
			w.host(ctx, s)
		})
	}

	judge := &actor{name: oracle, sim: w.simulator}
	l, err := w.open(ctx, w.story.logger(oracle), func(c *ledger.Config) {
		c.URL, c.Partitions, c.Hooks = "redis://simulation:6379", partitions, []redisHook{w.hook(judge)}
	})
	if err != nil {
		w.breach("crashed", oracle, "%v", err)
		return
	}

	w.ledger = l
	w.redis = w.newRedisClient(judge)
	w.await("the gateways are ready", time.Hour, func() bool { return len(w.gateways()) == 2 })
	w.populate()
}

// await waits until something holds.
func (w *world) await(what string, most time.Duration, holds func() bool) bool {
	for until := time.Now().Add(most); !holds(); {
		if time.Now().After(until) {
			w.breach("stuck", what, "it has not come true within %s", most)
			return false
		}
		time.Sleep(min(most/50, time.Minute))
	}
	return true
}

// breach notes something that must not happen, up to 20 of them. At the first one it also keeps the story's last lines.
func (w *world) breach(what, about, format string, args ...any) {
	b := Breach{What: what, About: about, Says: fmt.Sprintf(format, args...)}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.breaches) < 20 {
		w.breaches = append(w.breaches, b)
		w.story.note("!!! %s", b)
		if len(w.breaches) == 1 {
			w.until = w.story.last()
		}
	}
}

// victim draws one of the running programs, which is to die; nil if none runs.
func (w *world) victim() *program {
	var running []*program
	for _, s := range w.slots {
		if p := s.running(); p != nil && !p.isDead() {
			running = append(running, p)
		}
	}

	if len(running) == 0 {
		return nil
	}

	return running[w.random.IntN(len(running))]
}

// gateways returns the running gateways that are ready for requests.
func (w *world) gateways() (ready []*program) {
	for _, s := range w.slots {
		if p := s.running(); p != nil && p.gate != nil && !p.isDead() && p.gate.Ready() {
			ready = append(ready, p)
		}
	}
	return ready
}

func (w *world) verdict(life time.Duration) *Verdict {
	breaches := slices.SortedFunc(slices.Values(w.breaches), func(a, b Breach) int {
		return strings.Compare(a.String(), b.String())
	})
	v := &Verdict{
		Seed:       w.seed,
		Breaches:   breaches,
		Digest:     w.digest(),
		Steps:      w.steps,
		Operations: w.asked,
		Orders:     len(w.rows.orders),
		Kills:      w.killed,
		Life:       life,
	}

	if len(v.Breaches) > 0 || w.story.all {
		v.Story = w.until
	}

	return v
}
