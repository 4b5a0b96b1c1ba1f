// This file makes orders and events through the ledger, for what does not measure how they are made.

package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/orders"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// partitions is the number that production starts with.
const partitionCount = ledger.DefaultPartitions

// sealKey seals the webhooks' secrets; every ledger here is dropped.
var sealKey = bytes.Repeat([]byte{7}, 32)

// sealKeyEnv is the same key, for programs.
var sealKeyEnv = []string{"WEBHOOK_KEYS=bench:" + base64.StdEncoding.EncodeToString(sealKey), "WEBHOOK_KEYS_FILE="}

// A book makes the orders of the suites webhooks and reporting through the ledger, as
// the gateway and an owner of partitions do: those are not what they measure.
type book struct {
	*ledger.Ledger
	fleet *delivery.Fleet
	made  int // orders so far; makes their external ids
}

// openBook opens the ledger of a system whose gateway and worker have been stopped.
func openBook(ctx context.Context, s *stack.Stack) *book {
	l := got(ledger.Open(ctx, ledger.Config{
		URL:         s.RedisURL(stack.OperatorUser),
		Environment: "sandbox",
		Partitions:  partitionCount,
		Pipelines:   4,
		Secrets:     ledger.SecretKeys{Current: "bench", Keys: map[string][]byte{"bench": sealKey}},
		Log:         slog.New(slog.DiscardHandler),
	}))

	must(l.Fleets.Load(ctx))

	return &book{Ledger: l, fleet: l.Fleets.Snapshot().All()[0]} // the demo's is the only one
}

// A vendor is an account with one store and, for webhooks, one endpoint.
type vendor struct {
	*endpoint
	account delivery.AccountID
}

// storeID is the one store of every account.
const storeID = "kadikoy-1"

// addAccount adds an account with an active store. Its limit is one that nothing here reaches, over a window so short
// that what it remembers stays small beside what is measured.
func (b *book) addAccount(ctx context.Context, id delivery.AccountID, at time.Time) {
	account := &delivery.Account{ID: id, Name: "Vendor", CreatedAt: at, Limits: delivery.DefaultLimits()}
	account.Limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: delivery.MaxWindowCount, Seconds: 1}}
	must(b.Accounts.Create(ctx, account, [32]byte{2}))
	must(b.Stores.Write(ctx, &delivery.Store{
		Account: id, ExternalID: storeID, State: delivery.Active, TaxNumber: "1234567890", Name: "Kadıköy Şubesi",
		Phone: "2165550011", Address: "Moda Caddesi No: 1, Kadıköy", Point: delivery.Point{Latitude: 40.9816, Longitude: 29.0258},
		SubRegion: "Kadıköy", Fleet: b.fleet.ID, FleetName: b.fleet.Name, UpdatedAt: at,
	}))
}

// An order is as it stands after the commits so far. Its changes are issued one after the other.
type order struct {
	vendor *vendor
	moving sync.Mutex // held during a commit
	state  delivery.Order
}

// amountOf returns what order n of a book costs.
func amountOf(n int) delivery.Money {
	return delivery.Money{Minor: 8000 + int64(n)*7919%142_000, Set: true}
}

// createOrders creates n orders as of a time, in turn for the vendors; for one that is nil there is none.
func (b *book) createOrders(ctx context.Context, vendors []*vendor, n int, at time.Time) []*order {
	made := make([]*order, n)
	first := b.made
	b.made += n

	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i := range made {
		v := vendors[i%len(vendors)]
		if v == nil {
			continue
		}

		externalID, amount := fmt.Sprintf("B-%d", first+i), amountOf(first+i)
		group.Go(func() error {
			created, _, err := b.Orders.Create(ctx, &orders.Creation{
				Account: v.account, Body: []byte(externalID), Now: at,
				Draft: &delivery.OrderDraft{
					ExternalStoreID: storeID, ExternalOrderID: externalID, ReadyAt: at,
					Recipient: delivery.Recipient{Name: "Ayşe Kaya", Phone: "5321234567"},
					Dropoff: delivery.Dropoff{
						Text:  "Bahariye Caddesi No: 2, Kadıköy",
						Point: delivery.Point{Latitude: 40.9880, Longitude: 29.0300},
					},
					OrderAmount: amount, Payment: delivery.Payment{Type: delivery.Cash, CollectionAmount: amount},
				},
				Candidates: []accounts.Candidate{{Terms: b.fleet.Terms(), Covers: true}},
			})
			if err != nil {
				return fmt.Errorf("create an order: %w", err)
			}

			made[i] = &order{vendor: v, state: *created.Order}

			return nil
		})
	}

	must(group.Wait())

	return made
}

// makeEvents creates n orders and takes them to one status after the other, 10 minutes apart, many in one round trip.
func (b *book) makeEvents(ctx context.Context, vendors []*vendor, n int, at time.Time, to ...delivery.Status) {
	const atOnce = 64 // about so many orders of a partition, as an owner moves with one step
	orders := b.createOrders(ctx, vendors, n, at)
	for i, status := range to {
		for some := range slices.Chunk(orders, atOnce*min(len(vendors), partitionCount)) {
			b.advance(ctx, status, at.Add(time.Duration(i)*10*time.Minute), some)
		}
	}
}

var (
	courier = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5301234567", VehicleType: "Motorcycle"}
	place   = delivery.Point{Latitude: 40.987, Longitude: 29.027} // of the courier
)

// advance takes orders up to a status, in one round trip, while no worker owns their partitions. Every change is
// expected by its vendor's endpoint from now on.
func (b *book) advance(ctx context.Context, to delivery.Status, at time.Time, orders []*order) {
	tokens := got(b.Ownership.Tokens(ctx))
	update := delivery.Update{
		Kind:     delivery.KindStatus,
		Status:   to,
		At:       at,
		Location: delivery.Location{Point: place, At: at},
		Courier:  courier,
	}

	if to == delivery.Failed {
		update.Failure = delivery.OtherFailure
	}

	steps := make(map[int]*partitions.Step)
	for _, o := range orders {
		p := o.state.ID.Partition()
		if steps[p] == nil {
			steps[p] = b.Ownership.Step(p, got(tokens[p].Token()))
		}
		o.advance(steps[p], update)
	}

	must(errors.Join(b.Ownership.Advance(ctx, slices.Collect(maps.Values(steps)))...))
}

// advance adds an update to a step.
func (o *order) advance(step *partitions.Step, update delivery.Update) {
	update.Order = o.state.ID
	changes := delivery.Decide(&o.state, update, update.At).Changes
	if len(changes) == 0 {
		must(fmt.Errorf("order %s does not move from %s to %s", o.state.ID, o.state.Status, update.Status))
	}

	step.Change(&o.state, changes)

	issued := time.Now()
	for _, c := range changes {
		o.state.Status, o.state.Version, o.state.Courier, o.state.Location = c.Status, c.Version, c.Courier, c.Location
		if o.vendor.endpoint != nil {
			o.vendor.expect(change{o.state.ID, delivery.Sequence(c.Version)}, c.At, issued)
		}
	}

	o.state.Changes = slices.Concat(o.state.Changes, changes)
}

// report hands the report of an order's next status to the ledger, for a worker to decide. The
// change is expected by its vendor's endpoint, if it has one here, from now on.
func (b *book) report(ctx context.Context, o *order) error {
	o.moving.Lock()
	defer o.moving.Unlock()
	now := time.Now()
	o.state.Status++
	o.state.Version++ // only its sequence is used
	update := delivery.Update{
		Order:    o.state.ID,
		Fleet:    b.fleet.ID,
		Kind:     delivery.KindStatus,
		Status:   o.state.Status,
		At:       now,
		Location: delivery.Location{Point: place, At: now},
	}

	if update.Status == delivery.Assigned {
		update.Kind, update.Courier = delivery.KindAccept, courier
	}

	if o.vendor.endpoint != nil {
		o.vendor.expect(change{o.state.ID, delivery.Sequence(o.state.Version)}, now, now)
	}

	_, err := b.Orders.Report(ctx, update, now)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}

	return nil
}

// flow reports the orders' statuses, so many a second, in an open loop: by the timetable of journeys, whatever the
// worker makes of it. It ends with the orders or with ctx, and returns when the last report is stored.
func (b *book) flow(ctx context.Context, orders []*order, rate int) error {
	group, working := errgroup.WithContext(context.WithoutCancel(ctx))
	t := timetable{start: time.Now().Add(-spacing), rate: float64(rate) / eventsPerOrder, orders: len(orders), every: 1}
	t.run(ctx, func(n, step int) {
		o := orders[n]
		isReport := o != nil && step > 0
		if isReport {
			group.Go(func() error { return b.report(working, o) })
		}
	})

	err := group.Wait()
	if err != nil {
		return fmt.Errorf("traffic: %w", err)
	}

	return nil
}

// startProfile writes two seconds of a program's CPU profile to the file of -profile,
// if that is wanted in this round: the last one. wait returns when it is written.
func (b *bench) startProfile(ctx context.Context, p *stack.Program, round int) (wait func() error) {
	var group errgroup.Group
	if b.profile != "" && round == b.rounds-1 {
		group.Go(func() error {
			profile, err := harness.Fetch(ctx, http.MethodGet, p.OpsURL()+"/debug/pprof/profile?seconds=2", "")
			if err != nil {
				return err
			}
			return os.WriteFile(b.profile, profile, 0o644)
		})
	}

	return group.Wait
}
