package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"vendorapi/loadtest/faults/history"
	"vendorapi/loadtest/faults/judge"
)

// newOrders is the share of new orders among what a client does.
const newOrders = 0.42

// Parts of a round: traffic alone, with faults, and healed.
const (
	calmBefore = time.Second
	calmAfter  = 1500 * time.Millisecond
	// harmPatience bounds the faults of a round, whatever they wait for.
	harmPatience = 40 * time.Second
	// settlePatience bounds the wait until nothing is left to do.
	settlePatience = 90 * time.Second
	// gatherPatience is how long reading the facts may fail.
	gatherPatience = time.Minute
)

// round is one play of some faults, from fresh accounts to the verdict.
type round struct {
	number int
	seed   uint64 // of this round; derived from the run's
	faults []fault
	spare  bool

	vendors []*vendor
	log     *history.Log
	began   time.Time
	ended   time.Time // when the clients had ended

	strikes    []int64 // by fault
	failures   []error // faults that could not be done
	report     judge.Report
	facts      *judge.Facts
	violations []judge.Violation
	settled    time.Duration
}

func (r *round) name() string { return strings.Join(namesOf(r.faults), " + ") }

// dice are for one purpose within the round: the same seed gives the same ones,
// whatever the others have drawn.
func (r *round) dice(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(r.seed, purpose)) }

// calm tells that nothing but receivers was in trouble, the machine included: on
// one that is so busy that the gateway's answers, which no receiver can delay,
// take long, webhooks do, too.
func (r *round) calm() bool {
	if slices.ContainsFunc(r.faults, func(f fault) bool { return f.name != "none" && f.name != "receivers" }) {
		return false
	}
	const quick = 100 * time.Millisecond // on an idle machine it is 5
	var took []time.Duration
	for _, op := range r.log.Ops() {
		if op.OK() {
			took = append(took, op.End.Sub(op.Start))
		}
	}
	slices.Sort(took)
	return len(took) > 0 && took[len(took)*95/100] < quick
}

// play runs the round. An error is about the suite, or a program that cannot be
// healed; broken promises are in r.violations.
func (s *suite) play(ctx context.Context, r *round) error {
	if err := s.rig.prepare(ctx, r.spare); err != nil {
		return err
	}
	var err error
	if r.vendors, err = s.rig.newVendors(ctx, r.number, s.options.accounts, r.dice(1)); err != nil {
		return fmt.Errorf("setting up: %w", err)
	}
	// They stay: a consumer group that is destroyed rounds later has the vendors'
	// notices sent again.
	s.rig.vendors = append(s.rig.vendors, r.vendors...)
	stop := s.startTraffic(ctx, r)
	err = sleep(ctx, calmBefore)
	if err == nil {
		s.harm(ctx, r)
		err = s.healAll(ctx, r)
	}
	if err == nil {
		err = sleep(ctx, calmAfter)
	}
	stop()
	if err == nil {
		s.clarify(r)
	}
	r.ended = time.Now()
	if err != nil {
		return err
	}
	return s.judge(ctx, r)
}

// prepare has exactly the workers run that the round wants.
func (r *rig) prepare(ctx context.Context, spare bool) error {
	if !spare {
		r.restSpare()
	}
	return r.heal(ctx, spare)
}

// startTraffic lets clients and a meddling fleet act until the returned function
// is called; it waits for their last operations.
func (s *suite) startTraffic(ctx context.Context, r *round) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	// Of a client's acts less than half are creations of new orders.
	pause := time.Duration(float64(s.options.clients) * newOrders / s.options.ordersPerSecond * float64(time.Second))
	r.log, r.began = history.New(), time.Now()
	for i := range s.options.clients {
		v := r.vendors[i%len(r.vendors)]
		c := newVendorClient(i, fmt.Sprintf("F%d-%d", r.number, i), v, s.base(), r.log, r.dice(100+uint64(i)))
		all.Go(func() { c.run(ctx, pause) })
	}
	all.Go(func() { s.meddle(ctx, r) })
	return func() {
		cancel()
		all.Wait()
	}
}

// clarify asks again, on behalf of every vendor, after what was left unknown.
func (s *suite) clarify(r *round) {
	const most = 25 // of each vendor; a refusal for the limit leaves one unknown
	var all sync.WaitGroup
	for i, v := range r.vendors {
		c := newVendorClient(s.options.clients+i, "", v, s.base(), r.log, r.dice(1000+uint64(i)))
		all.Go(func() {
			defer c.http.CloseIdleConnections()
			c.clarify(v.unclear(most))
		})
	}
	all.Wait()
}

// base is where clients reach the Vendor API.
func (s *suite) base() string { return "http://" + s.rig.links.gateway.Addr + "/api/vendor/v1" }

// meddle plays a fleet whose reports are early, late, twice and wrong, beside
// the sandbox courier: two deciders for one order, and moves that must be
// refused. What it is answered does not matter.
func (s *suite) meddle(ctx context.Context, r *round) {
	random := r.dice(2)
	statuses := []string{"Assigned", "PickingUp", "PickedUp", "Delivering", "Delivered", "Failed"}
	for sleep(ctx, time.Duration(random.Int64N(int64(300*time.Millisecond)))) == nil {
		order := r.vendors[random.IntN(len(r.vendors))].pickOrder(random)
		if order == "" {
			continue
		}
		body := map[string]any{"status": statuses[random.IntN(len(statuses))]}
		if body["status"] == "Failed" {
			body["failureReason"] = "CourierIncident"
		}
		for range 1 + random.IntN(2) {
			_, _ = s.rig.fleet.Do(ctx, http.MethodPost, "/jobs/"+order+"/status", body) // the gateway may be gone
		}
	}
}

// harm does the round's faults, several at once.
func (s *suite) harm(ctx context.Context, r *round) {
	ctx, cancel := context.WithTimeoutCause(ctx, harmPatience, errors.New("the fault took too long"))
	defer cancel()
	r.strikes, r.failures = make([]int64, len(r.faults)), make([]error, len(r.faults))
	var all sync.WaitGroup
	for i, f := range r.faults {
		h := &harm{rig: s.rig, vendors: r.vendors, random: r.dice(10 + uint64(i)), say: s.remark}
		all.Go(func() {
			r.failures[i] = f.inject(ctx, h)
			r.strikes[i] = h.times.Load()
		})
	}
	all.Wait()
}

// healAll undoes every harm, to the receivers as well.
func (s *suite) healAll(ctx context.Context, r *round) error {
	for _, v := range r.vendors {
		v.onWebhook(nil)
		v.inbox.Behave(0, 0)
		if err := v.open(); err != nil {
			return err
		}
	}
	if err := s.rig.heal(ctx, r.spare); err != nil {
		return fmt.Errorf("healing: %w", err)
	}
	return nil
}

// judge waits until the system has come to rest and holds it against what the
// clients saw.
func (s *suite) judge(ctx context.Context, r *round) error {
	sources := judge.Sources{Ledger: s.rig.ledger, ClickHouseURL: s.rig.system.Demo.ClickHouseURL, Metrics: s.rig.metrics(), Calm: r.calm()}
	for _, v := range r.vendors {
		sources.Inboxes = append(sources.Inboxes, v.inbox)
		sources.Accounts = append(sources.Accounts, judge.Account{ID: v.id.String(), Limits: v.limits, Receiver: v.health, Couriers: true})
	}
	settling, cancel := context.WithTimeout(ctx, settlePatience)
	err := sources.Settle(settling, func(line string) { s.remark("settling: %s", line) })
	cancel()
	r.settled = time.Since(r.ended)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		// The verdict names what is left; this says that it was waited for.
		s.remark("not settled after %.0f s: %v", r.settled.Seconds(), err)
	}
	if r.facts, err = s.gather(ctx, &sources); err != nil {
		return fmt.Errorf("gathering facts: %w", err)
	}
	r.report, r.violations = judge.Check(r.log.Ops(), r.facts)
	for _, died := range s.rig.deaths() {
		r.violations = append(r.violations, judge.Violation{Invariant: "crashed", Says: died.Error()})
	}
	return nil
}

// gather reads the facts, again when the machine was too busy to answer in time.
func (s *suite) gather(ctx context.Context, sources *judge.Sources) (facts *judge.Facts, err error) {
	for over := time.Now().Add(gatherPatience); ; {
		if facts, err = sources.Gather(ctx); err == nil || time.Now().After(over) {
			return facts, err
		}
		s.remark("gathering facts: %v", err)
		if stopped := sleep(ctx, time.Second); stopped != nil {
			return nil, stopped
		}
	}
}
