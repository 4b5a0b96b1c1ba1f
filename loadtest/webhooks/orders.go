package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// eventsPerOrder is one for every status after Searching.
const eventsPerOrder = 5

// order is an order on its way, as it stands after the commits so far. Its
// changes are issued one after the other.
type order struct {
	vendor *vendor
	moving sync.Mutex // held while a commit is under way
	state  delivery.Order
}

// createOrders creates n orders in turn for the vendors, as of a time.
func (r *rig) createOrders(ctx context.Context, vendors []*vendor, n int, at time.Time) ([]*order, error) {
	const hands = 64
	orders := make([]*order, n)
	first := r.orders
	r.orders += n
	group, ctx := errgroup.WithContext(ctx)
	for hand := range hands {
		group.Go(func() error {
			for i := hand; i < n; i += hands {
				v := vendors[i%len(vendors)]
				state, err := r.createOrder(ctx, v, fmt.Sprintf("B-%d", first+i), at)
				if err != nil {
					return fmt.Errorf("create an order: %w", err)
				}
				orders[i] = &order{vendor: v, state: state}
			}
			return nil
		})
	}
	return orders, group.Wait()
}

func (r *rig) createOrder(ctx context.Context, v *vendor, externalID string, at time.Time) (delivery.Order, error) {
	created, _, err := r.ledger.Orders.Create(ctx, &ledger.Creation{
		Account: v.account, Body: []byte(externalID), Now: at,
		Candidates: []ledger.Candidate{{Terms: r.fleet.Terms(), Covers: true}},
		Draft: &delivery.OrderDraft{
			ExternalStoreID: v.store, ExternalOrderID: externalID, ReadyAt: at,
			Recipient: delivery.Recipient{Name: "Ayşe Kaya", Phone: "5321234567"},
			Dropoff: delivery.Dropoff{Text: "Bahariye Caddesi No: 2, Kadıköy",
				Point: delivery.Point{Latitude: 40.9880, Longitude: 29.0300}},
		},
	})
	if err != nil {
		return delivery.Order{}, err
	}
	if want := partitionOf(v.account); created.Order.ID.Partition() != want {
		return delivery.Order{}, fmt.Errorf("the order of an account of partition %d is in partition %d", want, created.Order.ID.Partition())
	}
	return *created.Order, nil
}

var courier = delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5301234567", VehicleType: "Motorcycle"}

// advance takes an order up to a status in memory and answers what is to be
// committed for it. Every change is expected from now on.
func (o *order) advance(to delivery.Status, at time.Time) (ledger.Commit, error) {
	before := o.state
	u := delivery.Update{Order: before.ID, Kind: delivery.KindStatus, Status: to, At: at, Courier: courier,
		Location: delivery.Location{Point: delivery.Point{Latitude: 40.987, Longitude: 29.027}, At: at}}
	changes := delivery.Decide(&before, u, at).Changes
	if len(changes) == 0 {
		return ledger.Commit{}, fmt.Errorf("order %s does not move from %s to %s", before.ID, before.Status, to)
	}
	after := &o.state
	for _, c := range changes {
		after.Version++
		c.Version = after.Version
		after.Changes = append(after.Changes[:len(after.Changes):len(after.Changes)], c)
		after.Status, after.Courier, after.Location = c.Status, c.Courier, c.Location
	}
	issued := time.Now()
	for _, c := range after.Changes[len(before.Changes):] {
		o.vendor.expect(eventKey{before.ID, c.Version}, c.At, issued)
	}
	return ledger.Commit{Order: &before, Changes: changes}, nil
}

// commitAll takes every order up to a status, many in one round trip.
func (r *rig) commitAll(ctx context.Context, orders []*order, to delivery.Status, at time.Time) error {
	const batch = 250
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for begin := 0; begin < len(orders); begin += batch {
		group.Go(func() error { return r.commit(ctx, to, at, orders[begin:min(begin+batch, len(orders))]...) })
	}
	return group.Wait()
}

// commit takes some orders up to a status in one round trip.
func (r *rig) commit(ctx context.Context, to delivery.Status, at time.Time, orders ...*order) error {
	commits := make([]ledger.Commit, len(orders))
	var err error
	for i, o := range orders {
		if commits[i], err = o.advance(to, at); err != nil {
			return err
		}
	}
	results, err := r.ledger.Lifecycle.Commit(ctx, commits)
	if err = errors.Join(append(results, err)...); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	return nil
}
