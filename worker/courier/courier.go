// Package courier is the sandbox courier: it plays every fleet of a sandbox,
// so that a vendor's integration sees stores confirmed and orders delivered
// without a real courier (spec, "Sandbox"; decisions, "Sandbox").
//
// Each round reads the fleets' lists and reports, as a real fleet does, the next move
// of whatever has stood still for a step, if this process owns the order's partition. It
// keeps no state, and a repeated report changes nothing. It does not wait for readyAt: who
// tests a pre-order wants to see it delivered.
package courier

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"vendorapi/internal/config"
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/service"
)

// Modes of the sandbox courier.
const (
	Auto   = "auto"   // it acts for every fleet
	Manual = "manual" // nothing moves until the fleet API says so
)

// Settings are the keys below "courier" of the worker's configuration.
type Settings struct {
	Mode string        `yaml:"mode"` // Auto or Manual
	Step time.Duration `yaml:"step"` // between two moves of an order, 10ms to 1h
}

// Validate names the keys whose value is out of range.
func (s *Settings) Validate() error {
	return errors.Join(
		config.Demand(s.Mode == Auto || s.Mode == Manual, `courier.mode: want "auto" or "manual"`),
		config.Demand(s.Step >= 10*time.Millisecond && s.Step <= time.Hour, "courier.step: want 10ms to 1h"))
}

const (
	roundsPerStep = 4 // an order moves at most a quarter of a step late
	minPause      = 20 * time.Millisecond
	maxPause      = 5 * time.Second
	page          = 256 // jobs, or stores, that are listed at once
	concurrency   = 32  // reports in flight
)

// Role is the sandbox courier of one process.
type Role struct {
	ledger  *ledger.Ledger
	owned   func() []int
	step    time.Duration
	log     *slog.Logger
	reports *prometheus.CounterVec
}

// New prepares the role; owned lists the partitions of this process.
func New(l *ledger.Ledger, owned func() []int, s Settings, log *slog.Logger, reg prometheus.Registerer) *Role {
	return &Role{ledger: l, owned: owned, step: s.Step, log: log.With("role", "courier"), reports: service.NewMetrics(reg, nil).Counters("worker_courier_reports_total",
		"Moves that the sandbox courier reported, by status; Active counts confirmed stores.", "status")}
}

// Run acts until ctx ends. It returns nil then, and never because Redis is
// unavailable.
func (r *Role) Run(ctx context.Context) error {
	var watching sync.WaitGroup
	watching.Go(func() { service.WatchFleets(ctx, r.log, r.ledger) })
	defer watching.Wait()
	pause := min(max(r.step/roundsPerStep, minPause), maxPause)
	service.Repeat(ctx, r.log, pause, "a round failed, going on", "rounds work again", r.round)

	return nil
}

// round acts once for every fleet. The failure of one fleet, store or order does not keep the others
// waiting.
func (r *Role) round(ctx context.Context) error {
	fleets := r.ledger.Fleets.Snapshot()
	if fleets == nil {
		return nil // not loaded yet
	}

	var failures []error
	stores, owned := storeCache{}, r.owned()
	for _, fleet := range fleets.All() {
		if fleet.Disabled {
			continue
		}
		failures = append(failures, r.confirmStores(ctx, fleet.ID))
		for status := delivery.Searching; status <= delivery.Delivering; status++ {
			failures = append(failures, r.moveJobs(ctx, fleet.ID, status, owned, stores))
		}
	}

	return errors.Join(failures...)
}

// confirmStores confirms every store that asked for the fleet, also after one for which it fails, and
// beside those of partitions that do not answer. Its error has the first failure only, so that a line in
// the log stays short.
func (r *Role) confirmStores(ctx context.Context, fleet delivery.FleetID) error {
	var failure error
	for cursor := ""; ; {
		pending, err := r.ledger.Stores.PageOfFleet(ctx, fleet, delivery.AwaitingFleetApproval, cursor, page)
		if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
			return fmt.Errorf("pending stores of fleet %s: %w", fleet, err)
		}

		failure = cmp.Or(failure, err)
		stores, err := r.ledger.Stores.ReadPage(ctx, pending)
		if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
			return fmt.Errorf("pending stores of fleet %s: %w", fleet, err)
		}

		failure = cmp.Or(failure, err)

		now := r.ledger.Now()
		for _, s := range stores {
			err := r.confirmStore(ctx, s, now)
			if ctx.Err() != nil {
				return ctx.Err()
			}
			failure = cmp.Or(failure, err)
		}

		if pending.Next == "" {
			return failure
		}

		cursor = pending.Next
	}
}

// confirmStore confirms a store, unless the vendor or another replica was faster.
func (r *Role) confirmStore(ctx context.Context, s *delivery.Store, now time.Time) error {
	if delivery.ConfirmStore(s, now) != nil {
		return nil // no longer pending
	}

	r.ledger.Fleets.Snapshot().NameFleetOf(s)
	data := delivery.AppendStoreActivated(nil, s.ExternalID, s.Fleet, s.FleetName)
	err := r.ledger.Stores.Write(ctx, s, accounts.StoreNotice(s, delivery.StoreActivated, now, data))
	if errors.Is(err, ledger.ErrConflict) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("confirm store %s: %w", s.ExternalID, err)
	}

	r.reports.WithLabelValues(delivery.Active.String()).Inc()

	return nil
}

// moveJobs reports the next move of a fleet's orders in these partitions that have been in
// the status for a step, also after one for which it fails, and beside those of partitions that do not
// answer. Its error has the first failures only.
func (r *Role) moveJobs(ctx context.Context, fleet delivery.FleetID, status delivery.Status, owned []int, stores storeCache) error {
	var group errgroup.Group // without a context, which the first failure would end for the others
	group.SetLimit(concurrency)
	list := func() error {
		var failure error
		for cursor := ""; ; {
			orders, next, err := r.ledger.Orders.Jobs(ctx, fleet, status, cursor, page)
			if err != nil && !errors.Is(err, ledger.ErrIncomplete) {
				return fmt.Errorf("jobs of fleet %s in %s: %w", fleet, status, err)
			}

			failure = cmp.Or(failure, err)
			now := r.ledger.Now()
			for _, o := range orders {
				u, moves := nextMove(o, now, r.step)
				if !moves || !slices.Contains(owned, o.ID.Partition()) {
					continue
				}

				err := stores.locate(ctx, r.ledger, o, &u)
				if ctx.Err() != nil {
					return ctx.Err()
				}

				if err != nil {
					failure = cmp.Or(failure, err)
					continue
				}

				group.Go(func() error { return r.report(ctx, u, now) })
			}

			if next == "" {
				return failure
			}

			cursor = next
		}
	}

	return errors.Join(list(), group.Wait())
}

// passed are the refusals of an order that has ended since it was listed, or that a
// real courier has taken.
var passed = []delivery.Code{delivery.CodeOrderNotFound, delivery.CodeJobNotAvailable, delivery.CodeOrderEnded, delivery.CodeJobTaken}

func (r *Role) report(ctx context.Context, u delivery.Update, now time.Time) error {
	_, err := r.ledger.Orders.Report(ctx, u, now)
	if slices.Contains(passed, delivery.CodeOf(err)) {
		return nil
	}

	if err != nil {
		return fmt.Errorf("report %s of order %s: %w", u.Status, u.Order, err)
	}

	r.reports.WithLabelValues(u.Status.String()).Inc()

	return nil
}

// storeCache keeps for one round where the stores are.
type storeCache map[accounts.StoreName]*delivery.Store

// locate adds to an update where the courier is; nothing when the order's store is gone.
func (c storeCache) locate(ctx context.Context, l *ledger.Ledger, o *delivery.Order, u *delivery.Update) (err error) {
	s, cached := c[accounts.StoreOf(o)]
	if !cached {
		s, err = l.Stores.Get(ctx, o.Account, o.ExternalStoreID)
		if err != nil && delivery.CodeOf(err) != delivery.CodeStoreNotFound {
			return fmt.Errorf("store of order %s: %w", o.ID, err)
		}
		c[accounts.StoreOf(o)] = s
	}

	reached := u.Status
	if reached == delivery.Failed {
		reached = o.Status
	}

	if s != nil {
		u.Location = delivery.Location{Point: between(s.Point, o.Dropoff.Point, progress[reached]), At: u.At}
	}

	return nil
}

// nextMove is what the courier reports of the order next; false when it is not
// time yet, when an earlier report still waits to be decided, or when the
// order's trigger says to stop. An order that a clock dated ahead moves at once.
func nextMove(o *delivery.Order, now time.Time, step time.Duration) (u delivery.Update, moves bool) {
	// An unknown one, which the gateway once accepted, is a note like any other.
	trigger, _ := delivery.ParseTrigger(o.PackageNote)
	switch {
	case o.Status.Terminal(), o.Reported > o.Status, now.Sub(o.UpdatedAt()).Abs() < step:
		return u, false
	case trigger.Kind == delivery.TriggerNoCourier && o.Status == delivery.Searching, trigger.Hold == o.Status:
		return u, false
	}

	u = delivery.Update{Order: o.ID, Fleet: o.Fleet.ID, Kind: delivery.KindStatus, At: now}
	switch {
	case trigger.Fail != "" && trigger.Fail.LegalFrom(o.Status):
		u.Status, u.Failure = delivery.Failed, trigger.Fail
		return u, true
	case o.Status == delivery.Searching:
		u.Kind, u.Courier = delivery.KindAccept, person(o.ID)
	}

	u.Status = o.Status + 1
	u.ETA = now.Add(time.Duration(delivery.Delivered-u.Status) * step)

	return u, true
}

// progress is how far from the store to the drop-off the courier is when it
// reaches a status, 0 to 1.
var progress = map[delivery.Status]float64{
	delivery.PickingUp: 0.05, delivery.PickedUp: 0.1, delivery.Delivering: 0.5, delivery.Delivered: 1,
}

// between is the point that far along the straight way.
func between(from, to delivery.Point, part float64) delivery.Point {
	return delivery.Point{
		Latitude:  from.Latitude + (to.Latitude-from.Latitude)*part,
		Longitude: from.Longitude + (to.Longitude-from.Longitude)*part,
	}
}

var (
	firstNames = [...]string{"Mehmet", "Ayşe", "Mustafa", "Fatma", "Emre", "Zeynep", "Hüseyin", "Elif", "İbrahim", "Gül", "Oğuz", "Şeyma"}
	surnames   = [...]string{"Yılmaz", "Kaya", "Demir", "Çelik", "Şahin", "Yıldız", "Öztürk", "Aydın", "Özdemir", "Arslan", "Doğan", "Işık"}
)

// person is the courier of an order: always the same one, so that a second
// replica's accept is a repetition and not another courier.
func person(id delivery.OrderID) delivery.Courier {
	digest := id.Digest()
	n := binary.BigEndian.Uint64(digest[:8])
	return delivery.Courier{
		Name:        firstNames[n%12] + " " + surnames[n/12%12],
		Phone:       fmt.Sprintf("530%07d", n/1024%1e7),
		VehicleType: "Motorcycle",
	}
}
