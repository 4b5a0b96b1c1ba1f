package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// accountCount is how many vendors the exported orders belong to.
const accountCount = 50

// eventsPerOrder is its creation and the five statuses that follow.
const eventsPerOrder = 6

// journey is how an order goes on after its creation: each step is a commit, of
// one change or of several.
var journey = [][]delivery.Status{
	{delivery.Assigned, delivery.PickingUp},
	{delivery.PickedUp, delivery.Delivering, delivery.Delivered},
}

// traffic makes orders as the gateway and the worker do, through the ledger.
type traffic struct {
	ledger   *ledger.Ledger
	fleet    *delivery.Fleet
	accounts []delivery.AccountID
	began    time.Time
}

const storeID = "kadikoy-1"

// newTraffic opens the ledger and registers who takes part.
func newTraffic(ctx context.Context, redisURL string) (t *traffic, err error) {
	t = &traffic{began: time.Now().Add(-2 * time.Hour)}
	if t.ledger, err = ledger.Open(ctx, ledger.Config{URL: redisURL, Environment: "sandbox",
		Partitions: partitions, Pipelines: 4, Log: slog.New(slog.DiscardHandler)}); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, t.ledger.Close())
		}
	}()
	coverage, err := delivery.ParseCoverage([]byte(
		`{"type":"Polygon","coordinates":[[[28,40.5],[30,40.5],[30,41.5],[28,41.5],[28,40.5]]]}`))
	if err != nil {
		return nil, err
	}
	t.fleet = &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Hızlı Kurye", SubRegion: "Kadıköy",
		DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: coverage}
	if err := t.ledger.Fleets.Create(ctx, t.fleet, [32]byte{1}); err != nil {
		return nil, err
	}
	for range accountCount {
		if err := t.register(ctx); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// register adds an account with a store.
func (t *traffic) register(ctx context.Context) error {
	account := &delivery.Account{ID: delivery.NewAccountID(), Name: "Vendor", CreatedAt: t.began, Limits: delivery.DefaultLimits()}
	// A limit that nothing here reaches, over so short a time that what it
	// remembers stays small.
	account.Limits.Orders = delivery.EndpointLimit{Sustained: delivery.Window{Count: delivery.MaxWindowCount, Seconds: 1}}
	if err := t.ledger.Accounts.Create(ctx, account, [32]byte{2}); err != nil {
		return err
	}
	t.accounts = append(t.accounts, account.ID)
	return t.ledger.Stores.Write(ctx, &delivery.Store{
		Account: account.ID, ExternalID: storeID, State: delivery.Active, TaxNumber: "1234567890", Name: "Kadıköy Şubesi",
		Phone: "2165550011", Address: "Moda Caddesi No: 1, Kadıköy", Point: delivery.Point{Latitude: 40.9816, Longitude: 29.0258},
		SubRegion: "Kadıköy", Fleet: t.fleet.ID, FleetName: t.fleet.Name, UpdatedAt: t.began,
	})
}

// fill makes n orders and takes them to their end, a few thousand at a time, so
// that the events of an order lie as near each other in the streams as in a busy
// hour. It answers the sum of the amounts to be collected, in kuruş.
func (t *traffic) fill(ctx context.Context, n int) (kurus int64, err error) {
	const (
		hands     = 16
		underWay  = 250 // of one hand
		mostWaits = 64  // for answers of Redis, of one hand
	)
	sums := make([]int64, hands)
	group, ctx := errgroup.WithContext(ctx)
	for hand := range hands {
		group.Go(func() error {
			for first := hand * underWay; first < n; first += hands * underWay {
				orders, err := t.create(ctx, first, min(first+underWay, n), mostWaits)
				if err != nil {
					return err
				}
				for _, o := range orders {
					sums[hand] += o.Payment.CollectionAmount.Minor
				}
				if err := t.carry(ctx, orders); err != nil {
					return err
				}
			}
			return nil
		})
	}
	err = group.Wait()
	for _, sum := range sums {
		kurus += sum
	}
	return kurus, err
}

// create makes the orders first to last, the last one not included.
func (t *traffic) create(ctx context.Context, first, last, atOnce int) ([]delivery.Order, error) {
	orders := make([]delivery.Order, last-first)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	for i := range orders {
		group.Go(func() (err error) {
			orders[i], err = t.createOne(ctx, first+i)
			return err
		})
	}
	return orders, group.Wait()
}

// createOne makes order number n, half a millisecond after the one before.
func (t *traffic) createOne(ctx context.Context, n int) (delivery.Order, error) {
	at := t.began.Add(time.Duration(n) * time.Millisecond / 2)
	externalID := fmt.Sprintf("B-%d", n)
	amount := delivery.Money{Minor: 8000 + int64(n)*7919%142_000, Set: true}
	created, _, err := t.ledger.Orders.Create(ctx, &ledger.Creation{
		Account: t.accounts[n%len(t.accounts)], Body: []byte(externalID), Now: at,
		Candidates: []ledger.Candidate{{Terms: t.fleet.Terms(), Covers: true}},
		Draft: &delivery.OrderDraft{
			ExternalStoreID: storeID, ExternalOrderID: externalID, ReadyAt: at, OrderAmount: amount,
			Payment:   delivery.Payment{Type: delivery.Cash, CollectionAmount: amount},
			Recipient: delivery.Recipient{Name: "Ayşe Kaya", Phone: "5321234567"},
			Dropoff: delivery.Dropoff{Text: "Bahariye Caddesi No: 2, Kadıköy",
				Point: delivery.Point{Latitude: 40.9880, Longitude: 29.0300}},
		},
	})
	if err != nil {
		return delivery.Order{}, fmt.Errorf("create an order: %w", err)
	}
	return *created.Order, nil
}

var courier = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5301234567", VehicleType: "Motorcycle"}

// carry takes orders to their end, all of them one step after the other.
func (t *traffic) carry(ctx context.Context, orders []delivery.Order) error {
	for step, statuses := range journey {
		commits := make([]ledger.Commit, len(orders))
		for i := range orders {
			o := &orders[i]
			before := *o
			for n, status := range statuses {
				at := o.CreatedAt.Add(time.Duration(10*step+n+1) * time.Minute)
				o.Version++
				o.Status, o.Courier = status, courier
				o.Changes = append(o.Changes[:len(o.Changes):len(o.Changes)], delivery.Change{Version: o.Version, Status: status, At: at,
					Courier: courier, Location: delivery.Location{Point: delivery.Point{Latitude: 40.987, Longitude: 29.027}, At: at}})
			}
			commits[i] = ledger.Commit{Order: &before, Changes: o.Changes[len(before.Changes):]}
		}
		results, err := t.ledger.Lifecycle.Commit(ctx, commits)
		if err = errors.Join(append(results, err)...); err != nil {
			return fmt.Errorf("commit: %w", err)
		}
	}
	return nil
}
