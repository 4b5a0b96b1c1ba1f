package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/loadtest/harness"
)

// partitions is the number that production starts with.
const partitions = ledger.DefaultPartitions

// sealKey seals the webhooks' secrets; every ledger here is dropped.
var sealKey = bytes.Repeat([]byte{7}, 32)

const sealKeyID = "bench"

// book makes the orders of the suites of webhooks and reporting through the ledger, as
// the gateway and an owner of partitions do: those are not what they measure.
type book struct {
	*ledger.Ledger
	fleet *delivery.Fleet
	made  atomic.Int64 // orders so far; makes their external ids

	advancing sync.Mutex // the partitions, which nobody else owns meanwhile
}

// openBook opens the ledger in an empty Redis and adds a fleet.
func openBook(ctx context.Context, redisURL string) (*book, error) {
	l, err := ledger.Open(ctx, ledger.Config{
		URL: redisURL, Environment: "sandbox", Partitions: partitions, Pipelines: 4,
		Secrets: ledger.SecretKeys{Current: sealKeyID, Keys: map[string][]byte{sealKeyID: sealKey}},
		Log:     slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return nil, err
	}
	b := &book{Ledger: l, fleet: &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Kadıköy",
		DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1}}
	b.fleet.Coverage, err = delivery.ParseCoverage([]byte(
		`{"type":"Polygon","coordinates":[[[28,40.5],[30,40.5],[30,41.5],[28,41.5],[28,40.5]]]}`))
	if err == nil {
		err = l.Fleets.Create(ctx, b.fleet, [32]byte{1})
	}
	if err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return b, nil
}

// vendor is an account with one store and, for webhooks, one endpoint.
type vendor struct {
	*endpoint
	account delivery.AccountID
}

// storeID is the one store of every account.
const storeID = "kadikoy-1"

// addAccount adds an account with an active store. Its limit is one that nothing here reaches, over a window so short
// that what it remembers stays small beside what is measured.
func (b *book) addAccount(ctx context.Context, id delivery.AccountID, at time.Time) error {
	account := &delivery.Account{ID: id, Name: "Vendor", CreatedAt: at, Limits: delivery.DefaultLimits()}
	account.Limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: delivery.MaxWindowCount, Seconds: 1}}
	if err := b.Accounts.Create(ctx, account, [32]byte{2}); err != nil {
		return err
	}
	return b.Stores.Write(ctx, &delivery.Store{
		Account: id, ExternalID: storeID, State: delivery.Active, TaxNumber: "1234567890", Name: "Kadıköy Şubesi",
		Phone: "2165550011", Address: "Moda Caddesi No: 1, Kadıköy", Point: delivery.Point{Latitude: 40.9816, Longitude: 29.0258},
		SubRegion: "Kadıköy", Fleet: b.fleet.ID, FleetName: b.fleet.Name, UpdatedAt: at,
	})
}

// order is an order as it stands after the commits so far. Its changes are issued one after the other.
type order struct {
	vendor *vendor
	moving sync.Mutex // held during a commit
	state  delivery.Order
}

// createOrders creates n orders in turn for the vendors, as of a time. amount is
// what order n of the book costs; nil: no amount.
func (b *book) createOrders(ctx context.Context, vendors []*vendor, n int, at time.Time, amount func(n int) delivery.Money) ([]*order, error) {
	orders := make([]*order, n)
	first := int(b.made.Add(int64(n))) - n
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(64)
	for i := range orders {
		group.Go(func() error {
			v, externalID := vendors[i%len(vendors)], fmt.Sprintf("B-%d", first+i)
			draft := &delivery.OrderDraft{
				ExternalStoreID: storeID, ExternalOrderID: externalID, ReadyAt: at,
				Recipient: delivery.Recipient{Name: "Ayşe Kaya", Phone: "5321234567"},
				Dropoff:   delivery.Dropoff{Text: "Bahariye Caddesi No: 2, Kadıköy", Point: delivery.Point{Latitude: 40.9880, Longitude: 29.0300}},
			}
			if amount != nil {
				draft.OrderAmount = amount(first + i)
				draft.Payment = delivery.Payment{Type: delivery.Cash, CollectionAmount: draft.OrderAmount}
			}
			created, _, err := b.Orders.Create(ctx, &ledger.Creation{
				Account: v.account, Body: []byte(externalID), Now: at, Draft: draft,
				Candidates: []ledger.Candidate{{Terms: b.fleet.Terms(), Covers: true}},
			})
			if err != nil {
				return fmt.Errorf("create an order: %w", err)
			}
			orders[i] = &order{vendor: v, state: *created.Order}
			return nil
		})
	}
	return orders, group.Wait()
}

var (
	courier = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5301234567", VehicleType: "Motorcycle"}
	place   = delivery.Point{Latitude: 40.987, Longitude: 29.027} // of the courier
)

// advance takes orders up to a status, in one round trip. Every change is
// expected by its vendor's endpoint from now on.
func (b *book) advance(ctx context.Context, to delivery.Status, at time.Time, orders ...*order) error {
	const ordersAtOnce = 64 // that an owner moves with one step
	b.advancing.Lock()
	defer b.advancing.Unlock()
	tokens, err := b.Ownership.Tokens(ctx)
	if err != nil {
		return err
	}
	update := delivery.Update{Kind: delivery.KindStatus, Status: to, At: at, Location: delivery.Location{Point: place, At: at}, Courier: courier}
	owned := make(map[int][]*order)
	for _, o := range orders {
		p := o.state.ID.Partition()
		owned[p] = append(owned[p], o)
	}
	var steps []*ledger.Step
	for p, all := range owned {
		for some := range slices.Chunk(all, ordersAtOnce) {
			token, err := tokens[p].Token()
			if err != nil {
				return err
			}
			step := b.Ownership.Step(p, token)
			tokens[p], steps = step.Token.Stored(), append(steps, step)
			for _, o := range some {
				if err := o.advance(step, update); err != nil {
					return err
				}
			}
		}
	}
	if err := errors.Join(b.Ownership.Advance(ctx, steps)...); err != nil {
		return fmt.Errorf("advance: %w", err)
	}
	return nil
}

// advance adds an update to a step.
func (o *order) advance(step *ledger.Step, update delivery.Update) error {
	update.Order = o.state.ID
	changes := delivery.Decide(&o.state, update, update.At).Changes
	if len(changes) == 0 {
		return fmt.Errorf("order %s does not move from %s to %s", o.state.ID, o.state.Status, update.Status)
	}
	step.Change(&o.state, changes, nil)
	issued := time.Now()
	for _, c := range changes {
		o.state.Status, o.state.Version, o.state.Courier, o.state.Location = c.Status, c.Version, c.Courier, c.Location
		if o.vendor.endpoint != nil {
			o.vendor.expect(delivery.EventID(o.state.ID, c.Version), c.At, issued)
		}
	}
	o.state.Changes = slices.Concat(o.state.Changes, changes)
	return nil
}

// report hands the report of an order's next status to the ledger, for a worker to decide. The
// change is expected by its vendor's endpoint from now on.
func (b *book) report(ctx context.Context, o *order) error {
	epoch, _, err := b.Monitor.Epochs(ctx)
	if err != nil {
		return err
	}
	o.moving.Lock()
	defer o.moving.Unlock()
	now := time.Now()
	u := delivery.Update{Order: o.state.ID, Fleet: b.fleet.ID, Kind: delivery.KindStatus, Status: o.state.Status + 1, At: now,
		Location: delivery.Location{Point: place, At: now}}
	if u.Status == delivery.Assigned {
		u.Kind, u.Courier = delivery.KindAccept, courier
	}
	o.state.Status, o.state.Version = u.Status, uint64(epoch)<<32|uint64(delivery.Sequence(o.state.Version)+1)
	o.vendor.expect(delivery.EventID(o.state.ID, o.state.Version), now, time.Now())
	if _, err := b.Orders.Report(ctx, u, now); err != nil {
		return fmt.Errorf("report: %w", err)
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

// orTimeout is the error, if it is not a timeout.
func orTimeout(err error) error {
	if errors.Is(err, harness.ErrTimeout) {
		return nil
	}
	return err
}
