package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/loadtest/faults/validate"
	"vendorapi/loadtest/harness"
)

// suite is one run: rounds on one system until the time is over, and rounds on systems of their own.
type suite struct {
	options  options
	out      io.Writer
	system   *system
	dir      string
	plainBin string     // folder of the programs without failpoints; empty: they are not built yet
	random   *rand.Rand // draws the rounds
	began    time.Time
	result   result
}

// round is some faults against fresh accounts, from traffic to validation.
type round struct {
	number  int
	seed    uint64 // derived from the run's
	faults  []fault
	workers int

	vendors []*vendor
	clients []*vendorClient
	fleet   []*fleetClient
	clerks  []*clerk
	began   time.Time
	ended   time.Time // when the clients had ended
	settled time.Duration

	injections []*injection
	operations []validate.Operation // of all clients
	facts      *validate.Facts
	report     validate.Report
	figures    int // that were checked, on a system of the round's own
	violations []validate.Violation
}

const (
	// roundLength is about what a round takes. None is begun when less is left.
	roundLength = 14 * time.Second
	maxWorkers  = 3
	calmBefore  = time.Second // traffic before the faults
	calmAfter   = 1500 * time.Millisecond
	// faultTimeout bounds the faults of a round, settleTimeout the wait until the system is at rest, gatherTimeout
	// how long reading the facts may fail.
	faultTimeout  = 40 * time.Second
	settleTimeout = 90 * time.Second
	gatherTimeout = time.Minute

	accounts        = 4 // in a round; every second one has low limits
	clients         = 8
	ordersPerSecond = 20 // new ones, on the average

	fleetClients = 2 // who report about the same orders
	fleetPause   = 250 * time.Millisecond
	clerkPause   = 300 * time.Millisecond // of each account's clerk
)

func newSuite(o options, out io.Writer) *suite {
	return &suite{
		options: o,
		out:     out,
		system:  new(system),
		random:  rand.New(rand.NewPCG(o.seed, 0)),
		began:   time.Now(),
		result:  result{Seed: o.seed, ByInvariant: make(map[validate.Invariant]int)},
	}
}

// playAll is a whole run with its summary. Violations are an error.
func playAll(ctx context.Context, o options, out io.Writer) (*result, error) {
	s := newSuite(o, out)
	chosen, err := loadFaults(&o)
	if err != nil {
		return &s.result, err
	}

	s.dir, err = o.dataFolder()
	if err != nil {
		return &s.result, err
	}

	err = s.run(ctx, chosen)
	s.system.stop()
	s.summary()
	if n := len(s.result.Violations); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d violations", n))
	}

	err = o.leave(s.dir, err, out)
	if n := len(s.result.NotDone); n > 0 {
		err = errors.Join(err, fmt.Errorf("%d faults could not be done", n))
	}

	return &s.result, err
}

// run plays the rounds on the run's system, until the time is over or a round has violations, and then those on
// systems of their own. The error is about the suite itself.
func (s *suite) run(ctx context.Context, chosen []fault) error {
	shared, own := bySystem(chosen)
	if len(shared) > 0 {
		if err := s.playShared(ctx, shared); err != nil {
			return err
		}
	}

	if len(own) == 0 || len(s.result.Violations) > 0 {
		return nil
	}

	return s.playOwn(ctx, own)
}

// playShared starts the run's system and plays rounds on it. The first round with violations is the last one, since
// it leaves a system that is not as it should be.
func (s *suite) playShared(ctx context.Context, chosen []fault) error {
	s.print("faults: seed %d, %s, data in %s", s.options.seed, s.options.duration, s.dir)
	if s.options.only == "" {
		s.print("faults: -overload plays those that need a system of their own, in about 20 minutes")
	}

	progress := io.Discard
	if s.options.verbose {
		progress = s.out
	}

	if s.options.bin == "" {
		bin, err := build(ctx, s.dir, nil)
		if err != nil {
			return err
		}
		s.options.bin = bin
	}

	if err := s.system.start(ctx, s.dir, &s.options, progress); err != nil {
		return err
	}

	s.print("faults: the system is up after %.1f s", time.Since(s.began).Seconds())
	s.began = time.Now() // building may have taken minutes
	for number := 1; number == 1 || time.Since(s.began)+roundLength <= s.options.duration; number++ {
		r := s.draw(number, chosen)
		if err := s.play(ctx, r); err != nil {
			return fmt.Errorf("round %d, %s: %w", number, r.name(), err)
		}
		s.record(r)
		if len(r.violations) > 0 {
			return s.explain(r)
		}
	}

	return nil
}

// playOwn plays each of the faults that need a system of their own. Rounds with violations do not end the run: the
// next one has another system.
func (s *suite) playOwn(ctx context.Context, chosen []fault) error {
	s.print("faults: rounds on systems of their own, %s, data in %s", harness.DescribeMachine(ctx), s.dir)
	if s.plainBin == "" {
		s.plainBin = filepath.Join(s.dir, "plain")
		if err := stack.Build(ctx, s.plainBin, programs...); err != nil {
			return err
		}
	}

	for _, f := range chosen {
		r := &round{number: s.result.Rounds + 1, faults: []fault{f}}
		if err := s.playOnOwnSystem(ctx, r); err != nil {
			return fmt.Errorf("round %d, %s: %w", r.number, r.name(), err)
		}
		s.recordOwn(r)
	}

	return nil
}

// draw makes up a round: each fault alone, in the order of the table, then two at a time; pairs only if time is short.
func (s *suite) draw(number int, chosen []fault) *round {
	r := &round{number: number, seed: s.random.Uint64()}
	enough := time.Duration(len(chosen))*roundLength <= s.options.duration
	switch {
	case len(chosen) == 1:
		r.faults = chosen
	case enough && number <= len(chosen):
		r.faults = chosen[number-1 : number]
	default:
		pair := s.random.Perm(len(chosen))[:2]
		r.faults = []fault{chosen[pair[0]], chosen[pair[1]]}
		// Another fault must not act on a server that is no longer the master.
		if i := slices.IndexFunc(r.faults, func(f fault) bool { return f.Redis.isAlone() }); i >= 0 {
			r.faults = r.faults[i : i+1]
		}
	}

	r.workers = s.options.workers
	if r.workers == 0 {
		r.workers = 1 + r.dice(3).IntN(maxWorkers)
	}

	for _, f := range r.faults {
		if f.Workers != nil {
			r.workers = min(max(r.workers, f.Workers[0]), f.Workers[1])
		}
	}

	return r
}

func (r *round) name() string {
	var names []string
	for _, f := range r.faults {
		names = append(names, f.Name)
	}
	return strings.Join(names, " + ")
}

// dice are for one purpose within the round: the same seed gives the same ones, whatever the others have drawn.
func (r *round) dice(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, purpose)) }

// play runs the round. Violations are in r; an error is about the suite, or a program that cannot be healed.
func (s *suite) play(ctx context.Context, r *round) (err error) {
	if err := s.system.heal(ctx, r.workers); err != nil {
		return err
	}

	r.vendors, err = s.system.newVendors(ctx, r.number, accounts, r.dice(1))
	if err != nil {
		return fmt.Errorf("setting up: %w", err)
	}

	if err := s.disturb(ctx, r); err != nil {
		return err
	}

	var all sync.WaitGroup
	for i, v := range r.vendors {
		c := s.newClient(r, clients+i, v, 1000+uint64(i))
		all.Go(c.clarify)
	}

	all.Wait()
	r.ended = time.Now()
	for _, c := range r.clients {
		r.operations = append(r.operations, c.log...)
	}

	for _, c := range r.fleet {
		r.operations = append(r.operations, c.log...)
	}

	for _, c := range r.clerks {
		if err := c.readAll(ctx); err != nil {
			return err
		}
		r.operations = append(r.operations, c.log...)
	}

	return s.validate(ctx, r)
}

func (s *suite) disturb(ctx context.Context, r *round) error {
	acting, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	pause := time.Duration(clients * newOrders / ordersPerSecond * float64(time.Second))
	r.began = time.Now()
	for i := range clients {
		c := s.newClient(r, i, r.vendors[i%len(r.vendors)], 100+uint64(i))
		all.Go(func() { c.run(acting, pause) })
	}

	for i := range fleetClients {
		c := &fleetClient{number: i, api: s.system.apis.Fleet, random: r.dice(50 + uint64(i))}
		r.fleet = append(r.fleet, c)
		all.Go(func() { c.run(acting, r.vendors, fleetPause) })
	}

	for i, v := range r.vendors {
		c := s.newClerk(r, i, v)
		all.Go(func() { c.run(acting, clerkPause) })
	}

	if err := harness.Sleep(ctx, calmBefore); err != nil {
		return err
	}

	s.inject(ctx, r)
	for _, v := range r.vendors {
		v.inbox.Behave(0, 0)
		if err := v.door.Heal(); err != nil {
			return err
		}
	}

	if err := s.system.heal(ctx, r.workers); err != nil {
		return fmt.Errorf("healing: %w", err)
	}

	return harness.Sleep(ctx, calmAfter)
}

func (s *suite) newClient(r *round, number int, v *vendor, dice uint64) *vendorClient {
	c := newVendorClient(number, fmt.Sprintf("F%d-%d", r.number, number), v, s.vendorAPI(), r.dice(dice))
	r.clients = append(r.clients, c)
	return c
}

// newClerk makes the clerk of a vendor, who calls the vendor's API through the proxy.
func (s *suite) newClerk(r *round, number int, v *vendor) *clerk {
	api := newVendorClient(number, "", v, s.vendorAPI(), nil).api
	c := &clerk{number: number, vendor: v, api: api, admin: s.system.apis.Admin, ledger: s.system.ledger,
		fleetID: s.system.apis.FleetID, secret: v.ClientSecret, random: r.dice(70 + uint64(number))}
	r.clerks = append(r.clerks, c)
	return c
}

// vendorAPI is where the Vendor API is reached through the proxy.
func (s *suite) vendorAPI() string {
	return "http://" + s.system.proxies["gateway"].Addr + "/api/vendor/v1"
}

func (s *suite) inject(ctx context.Context, r *round) {
	ctx, cancel := context.WithTimeoutCause(ctx, faultTimeout, errors.New("the fault took too long"))
	defer cancel()
	var all sync.WaitGroup
	for i, f := range r.faults {
		in := &injection{system: s.system, fault: f, vendors: r.vendors, random: r.dice(10 + uint64(i)), log: s.step}
		for j, v := range r.vendors {
			number := clients + len(r.vendors)*(1+i) + j // the first ones clarify
			in.clients = append(in.clients, s.newClient(r, number, v, 2000+uint64(number)))
		}
		r.injections = append(r.injections, in)
		all.Go(func() { in.failure = in.inject(ctx) })
	}

	all.Wait()
}

// validate waits until the system is at rest and compares it with what the clients saw.
func (s *suite) validate(ctx context.Context, r *round) error {
	sources := validate.Sources{
		Ledger:        s.system.ledger,
		Redis:         s.system.redisClient,
		ClickHouseURL: s.system.Demo.ClickHouseURL,
		Calm:          r.calm(),
	}

	for _, v := range r.vendors {
		sources.Inboxes = append(sources.Inboxes, v.inbox)
		sources.Accounts = append(sources.Accounts,
			validate.Account{ID: v.AccountID, Limits: v.limits, Disturbed: v.disturbed.Load(), Couriers: true})
	}

	settling, cancel := context.WithTimeout(ctx, settleTimeout)
	err := sources.Settle(settling, func(line string) { s.step("settling: %s", line) })
	cancel()
	r.settled = time.Since(r.ended)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}

	if err != nil { // the violations show what is left
		s.step("not settled after %.0f s: %v", r.settled.Seconds(), err)
	}

	err = retry(ctx, gatherTimeout, func() (err error) { // a busy machine may answer too late
		r.facts, err = sources.Gather(ctx)
		return err
	})
	if err != nil {
		return err
	}

	r.report, r.violations = validate.Check(r.operations, r.facts)
	if err := s.system.Died(); err != nil {
		r.violations = append(r.violations, validate.Violation{Invariant: validate.Crashed, Text: err.Error()})
	}

	return nil
}

// calm reports that nothing but receivers was disturbed, and that the machine was not too busy to answer in time.
func (r *round) calm() bool {
	if slices.ContainsFunc(r.faults, func(f fault) bool { return f.Name != "none" && f.Name != "receivers" }) {
		return false
	}

	const quick = 0.1 // seconds; on an idle machine it is 5 ms
	var took []float64
	for _, op := range r.operations {
		if op.OK() {
			took = append(took, op.End.Sub(op.Start).Seconds())
		}
	}

	return harness.Quantile(took, 0.95) < quick
}

func (s *suite) print(format string, args ...any) { fmt.Fprintf(s.out, format+"\n", args...) }

func (s *suite) step(format string, args ...any) {
	if s.options.verbose {
		s.print("    %6.1f s  %s", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
	}
}
