package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack/client"
)

// goWrong leaves behind what operators look for: orders that wait in every status,
// couriers' updates that were refused; and a courier on the road.
func (w *world) goWrong(ctx context.Context) (*trip, error) {
	first := w.vendors[0]
	t, err := w.setOff(ctx, first)
	if err != nil {
		return nil, fmt.Errorf("a courier on the road: %w", err)
	}
	for _, status := range []string{"Searching", "Assigned", "PickingUp", "PickedUp"} {
		if _, err := first.order(ctx, note("SIM:HOLD="+status)); err != nil {
			return nil, err
		}
	}
	if err := w.refusedUpdates(ctx, first); err != nil {
		return nil, err
	}
	return t, w.awaitStatus(ctx, t.fleet, t.order, "Delivering")
}

// giveUp publishes an event that is nearly a day old to the vendor whose receiver
// is not there. Its next attempt would come too late, so the first one is its
// last, and the endpoint is unreachable.
func (w *world) giveUp(ctx context.Context, v *vendor) error {
	l, err := ledger.Open(ctx, ledger.Config{URL: w.Redis.URL, Environment: "sandbox"})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // nothing waits to be written
	account, err := delivery.ParseAccountID(v.account)
	if err != nil {
		return err
	}
	err = l.Webhooks.Publish(ctx, ledger.Notice{
		Account: account, Type: delivery.StoreActivated, OccurredAt: time.Now().Add(-24*time.Hour + 8*time.Second),
		Data: fmt.Appendf(nil, `{"externalStoreId":%q}`, v.plan.branches[0].id),
	})
	if err != nil {
		return err
	}
	return w.awaitState(ctx, v, "unreachable")
}

func (w *world) awaitState(ctx context.Context, v *vendor, state string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		var endpoint struct{ Status string }
		if err := w.admin.Call(ctx, http.MethodGet, "/accounts/"+v.account+"/webhook", nil, &endpoint); err != nil {
			return err
		}
		if endpoint.Status == state {
			return nil
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("it is %s: %w", endpoint.Status, err)
		}
	}
}

// trip is the order that is followed on the tracking page.
type trip struct {
	fleet    *client.Client
	order    string
	from, to [2]float64 // latitude, longitude
}

// setOff creates the order; its courier comes as far as Delivering.
func (w *world) setOff(ctx context.Context, v *vendor) (*trip, error) {
	b := v.plan.branches[0]
	t := &trip{from: [2]float64{b.latitude, b.longitude}, to: [2]float64{b.latitude - 0.012, b.longitude + 0.031}}
	made, err := v.order(ctx, func(o map[string]any) {
		o["externalStoreId"], o["packageNote"] = b.id, "SIM:HOLD=Delivering"
		o["dropoff"] = map[string]any{"text": "Bağdat Caddesi No: 212, daire 9, Kadıköy/İstanbul", "latitude": t.to[0], "longitude": t.to[1]}
	})
	if err != nil || made == nil {
		return nil, fmt.Errorf("the order was not accepted: %w", err)
	}
	link, err := url.Parse(made.TrackingURL)
	if err != nil {
		return nil, err
	}
	w.tracked, t.order = link.Path, made.OrderID
	t.fleet, err = w.fleetAPI(ctx, v.plan.fleet+1)
	return t, err
}

// tell reports where the courier is now: more than half of the way.
func (t *trip) tell(ctx context.Context) error {
	part := func(i int, share float64) float64 { return t.from[i] + share*(t.to[i]-t.from[i]) }
	return t.fleet.Call(ctx, http.MethodPost, "/locations", []map[string]any{{
		"orderId": t.order, "latitude": part(0, 0.5), "longitude": part(1, 0.62), "at": time.Now().Format(time.RFC3339),
	}}, nil)
}

func (w *world) fleetAPI(ctx context.Context, i int) (*client.Client, error) {
	f := w.fleets[i]
	return w.admin.As(w.Demo.OpsURL+"/api/fleet/v1", "").Login(ctx, "/token", f.ClientID, f.ClientSecret)
}

func (w *world) awaitStatus(ctx context.Context, fleet *client.Client, order, status string) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		var job struct{ Status string }
		if err := fleet.Call(ctx, http.MethodGet, "/jobs/"+order, nil, &job); err != nil {
			return err
		}
		if job.Status == status {
			return nil
		}
		if err := pause(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("the order is %s: %w", job.Status, err)
		}
	}
}

// refusedUpdates lets a fleet report what cannot be: the delivery of an order
// that has failed.
func (w *world) refusedUpdates(ctx context.Context, v *vendor) error {
	fleet, err := w.fleetAPI(ctx, v.plan.fleet+1)
	if err != nil {
		return err
	}
	for _, reason := range []string{"CustomerRefused", "PackageDamaged"} {
		made, err := v.order(ctx, note("SIM:FAIL="+reason))
		if err != nil || made == nil {
			return fmt.Errorf("the order was not accepted: %w", err)
		}
		if err := w.awaitStatus(ctx, fleet, made.OrderID, "Failed"); err != nil {
			return err
		}
		if err := fleet.Call(ctx, http.MethodPost, "/jobs/"+made.OrderID+"/status", map[string]any{"status": "Delivered"}, nil); err != nil {
			return err
		}
	}
	return nil
}
