package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// behaviour is what a vendor's receiver does; the zero value is a healthy one.
type behaviour struct {
	Absent bool // nobody listens
	Status int  // it answers so, with Text
	Text   string
}

type branch struct {
	ID, Name, Address   string
	Latitude, Longitude float64
}

// vendor is as the plan has it until it is opened.
type vendor struct {
	Name     string
	Fleet    int     // place among the fleets
	PerHour  float64 // orders
	Receiver behaviour
	Stores   []branch

	*stack.Vendor `json:"-"`

	plan  *plan
	fleet *client.Client
	rng   *rand.Rand
	count int // orders so far
}

// open makes fleets, accounts, their receivers and stores.
func (e *env) open(ctx context.Context) error {
	e.names = map[string]string{"account": e.Demo.Account.AccountID, "fleet": e.FleetID}
	for path, change := range e.plan.Changes {
		if err := e.Admin.Call(ctx, http.MethodPatch, e.path(path), change, nil); err != nil {
			return err
		}
	}
	fleets := make([]stack.DemoFleet, len(e.plan.Fleets))
	for i, body := range e.plan.Fleets {
		if err := e.Admin.Call(ctx, http.MethodPost, "/fleets", body, &fleets[i]); err != nil {
			return err
		}
	}
	for _, v := range e.plan.Vendors {
		v.plan, v.rng = &e.plan, rand.New(rand.NewPCG(uint64(v.Fleet), 7))
		if err := e.openVendor(ctx, v, fleets[v.Fleet]); err != nil {
			return fmt.Errorf("%s: %w", v.Name, err)
		}
	}
	first := e.plan.Vendors[0]
	e.names["vendor"], e.names["store"] = first.AccountID, first.Stores[0].ID
	suspended, err := e.OpenAccount(ctx, "Eski Terazi", nil)
	if err != nil {
		return err
	}
	return e.Admin.Call(ctx, http.MethodPatch, "/accounts/"+suspended.AccountID, map[string]any{"suspended": true}, nil)
}

func (e *env) openVendor(ctx context.Context, v *vendor, fleet stack.DemoFleet) (err error) {
	if v.Vendor, err = e.OpenAccount(ctx, v.Name, nil); err != nil {
		return err
	}
	if v.fleet, err = e.Fleet.As(e.Fleet.Base, "").Login(ctx, "/token", fleet.ClientID, fleet.ClientSecret); err != nil {
		return err
	}
	if err := e.listen(ctx, v); err != nil {
		return err
	}
	for _, s := range v.Stores {
		body := stack.StoreBody(fleet.FleetID)
		body["name"], body["address"] = s.Name, place(s, 0, 0, s.Address)
		if err := awaitStatus(ctx, "the confirmation of a store", v.Client, http.MethodPut, "/stores/"+s.ID, body, "Active"); err != nil {
			return err
		}
	}
	return nil
}

// listen registers a receiver for the vendor that behaves as planned.
func (e *env) listen(ctx context.Context, v *vendor) (err error) {
	path, base, b := "/"+v.AccountID+"/hooks", e.HooksURL, v.Receiver
	if b.Absent {
		base = "http://" + stack.FreeAddr()
	}
	if v.WebhookSecret, err = v.SetWebhook(ctx, base+path); err != nil {
		return err
	}
	switch {
	case b.Absent:
		e.names["absent"] = v.AccountID
		// An event that is given up goes before all others: those wait for a probe.
		return e.giveUp(ctx, v)
	case b.Status != 0:
		e.Hooks.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { http.Error(w, b.Text, b.Status) })
		return nil
	}
	r, err := receiver.New(receiver.Options{Secrets: []string{v.WebhookSecret}})
	e.Hooks.Handle(path, r)
	return err
}

// giveUp publishes an event that is nearly a day old to a vendor whose receiver is absent. Its next attempt would
// come too late, so the first one is its last, and the endpoint becomes unreachable.
func (e *env) giveUp(ctx context.Context, v *vendor) error {
	l, err := ledger.Open(ctx, ledger.Config{URL: e.Redis.URL, Environment: "sandbox"})
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }() // nothing waits to be written
	account, err := delivery.ParseAccountID(v.AccountID)
	if err != nil {
		return err
	}
	err = l.Webhooks.Publish(ctx, ledger.Notice{
		Account: account, Type: delivery.StoreActivated, OccurredAt: time.Now().Add(-24*time.Hour + 8*time.Second),
		Data: fmt.Appendf(nil, `{"externalStoreId":%q}`, v.Stores[0].ID),
	})
	if err != nil {
		return err
	}
	return awaitStatus(ctx, "an unreachable endpoint", e.Admin, http.MethodGet, "/accounts/"+v.AccountID+"/webhook", nil, "unreachable")
}

// sell sends orders at the plan's rate, in waves as a kitchen has them; some fail, some break a rule.
func (v *vendor) sell(ctx context.Context, turn int, length time.Duration) error {
	for end := time.Now().Add(length); time.Now().Before(end); {
		// Exponential gaps: people do not order in step.
		wait := time.Duration(v.rng.ExpFloat64() * float64(time.Hour) / v.PerHour)
		if err := harness.Sleep(ctx, min(wait, 10*time.Second)); err != nil {
			return err
		}
		// A refusal is part of a day.
		if _, err := v.Do(ctx, http.MethodPost, "/orders", v.order(v.plan.Troubles[(v.count+turn)%17])); err != nil {
			return err
		}
	}
	return nil
}

// order is the next order, with some of its members changed.
func (v *vendor) order(change map[string]any) map[string]any {
	v.count++
	b := pick(v.rng, v.Stores)
	kurus := 12000 + v.rng.IntN(90000)
	amount := json.Number(fmt.Sprintf("%d.%02d", kurus/100, kurus%100))
	payment := map[string]any{"type": "Prepaid"}
	if v.count%5 < 4 {
		payment = map[string]any{"type": []string{"Card", "Cash"}[v.count%5/2%2], "collectionAmount": amount}
	}
	o := map[string]any{
		"externalStoreId": b.ID, "externalOrderId": fmt.Sprintf("%s-%05d", b.ID, 20000+v.count), "orderAmount": amount, "payment": payment,
		"recipient": map[string]any{"name": pick(v.rng, v.plan.Customers), "phone": fmt.Sprintf("0532%07d", v.rng.IntN(1e7))},
		"dropoff": place(b, (v.rng.Float64()-0.5)*0.02, (v.rng.Float64()-0.5)*0.02,
			fmt.Sprintf("Atatürk Caddesi No: %d, daire %d", 1+v.rng.IntN(90), 1+v.rng.IntN(20))),
	}
	maps.Copy(o, change)
	return o
}

// place is an address some degrees from a branch.
func place(from branch, north, east float64, text string) map[string]any {
	return map[string]any{"text": text, "latitude": from.Latitude + north, "longitude": from.Longitude + east}
}

// leaveOpen leaves behind what operators look for: orders that wait in every status,
// couriers' updates that were refused, and a courier on the road.
func (e *env) leaveOpen(ctx context.Context) error {
	v := e.plan.Vendors[0]
	create := func(change map[string]any) (created struct{ OrderID, TrackingURL string }, err error) {
		return created, v.Call(ctx, http.MethodPost, "/orders", v.order(change), &created)
	}
	const north, east = -0.012, 0.031 // of the way to the customer
	from := v.Stores[0]
	followed, err := create(map[string]any{
		"externalStoreId": from.ID, "packageNote": "SIM:HOLD=Delivering",
		"dropoff": place(from, north, east, "Bağdat Caddesi No: 212, daire 9, Kadıköy/İstanbul"),
	})
	if err != nil {
		return err
	}
	link, err := url.Parse(followed.TrackingURL)
	if err != nil {
		return err
	}
	e.names["tracked"] = link.Path
	for _, status := range []string{"Searching", "Assigned", "PickingUp", "PickedUp"} {
		if _, err := create(map[string]any{"packageNote": "SIM:HOLD=" + status}); err != nil {
			return err
		}
	}
	for _, reason := range []string{"CustomerRefused", "PackageDamaged"} {
		failed, err := create(map[string]any{"packageNote": "SIM:FAIL=" + reason})
		if err != nil {
			return err
		}
		if err := v.awaitOrder(ctx, failed.OrderID, "Failed"); err != nil {
			return err
		}
		// The delivery of an order that has failed cannot be: it is refused.
		if err := v.fleet.Call(ctx, http.MethodPost, "/jobs/"+failed.OrderID+"/status", map[string]any{"status": "Delivered"}, nil); err != nil {
			return err
		}
	}
	// At last where the courier is: more than half of the way.
	e.locate = func() error {
		at := place(from, 0.5*north, 0.62*east, "")
		return v.fleet.Call(ctx, http.MethodPost, "/locations", []map[string]any{{
			"orderId": followed.OrderID, "latitude": at["latitude"], "longitude": at["longitude"], "at": time.Now().Format(time.RFC3339),
		}}, nil)
	}
	return v.awaitOrder(ctx, followed.OrderID, "Delivering")
}

func (v *vendor) awaitOrder(ctx context.Context, order, status string) error {
	return awaitStatus(ctx, "an order in status "+status, v.fleet, http.MethodGet, "/jobs/"+order, nil, status)
}

// awaitStatus calls until the answer has the status.
func awaitStatus(ctx context.Context, what string, c *client.Client, method, path string, body any, status string) error {
	return await(ctx, what, func() (bool, error) {
		var answer struct{ Status string }
		err := c.Call(ctx, method, path, body, &answer)
		return answer.Status == status, err
	})
}
