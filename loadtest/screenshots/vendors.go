package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// plans are the fleets and vendors beside the demo's. A fleet serves an eight-sided
// area, a vendor has branches in one fleet's area.
//
//go:embed plans.json
var plansJSON []byte

type fleetPlan struct {
	Name, Region        string
	Latitude, Longitude float64
	Wide                float64 // degrees from the middle to each side
	Delivery, Pickup    int     // minutes
}

type vendorPlan struct {
	Name     string
	Fleet    int // place among the fleets
	PerHour  float64
	Receiver string // healthy, failing (500), gone (410) or absent (nobody listens)
	Branches []struct {
		ID, Name, Address   string
		Latitude, Longitude float64
	}
}

// vendor is an account with branches and a receiver.
type vendor struct {
	*stack.Vendor
	plan  vendorPlan
	fleet *client.Client
	rng   *rand.Rand
	count int // orders so far
}

// open makes fleets, accounts, their receivers and stores.
func (e *env) open(ctx context.Context) error {
	var plans struct {
		Fleets  []fleetPlan
		Vendors []vendorPlan
	}
	if err := json.Unmarshal(plansJSON, &plans); err != nil {
		return err
	}
	for path, change := range map[string]any{
		"/accounts/" + e.Demo.Account.AccountID: map[string]any{"name": "Anadolu Sofrası"},
		"/fleets/" + e.Demo.Fleet.FleetID:       map[string]any{"name": "Yıldız Kurye", "subRegion": "Marmara"},
	} {
		if err := e.api.Admin.Call(ctx, http.MethodPatch, path, change, nil); err != nil {
			return err
		}
	}
	var fleets []stack.DemoFleet
	for _, plan := range plans.Fleets {
		var made stack.DemoFleet
		if err := e.api.Admin.Call(ctx, http.MethodPost, "/fleets", plan.body(), &made); err != nil {
			return err
		}
		fleets = append(fleets, made)
	}
	for _, plan := range plans.Vendors {
		v, err := e.openVendor(ctx, plan, fleets[plan.Fleet])
		if err != nil {
			return fmt.Errorf("%s: %w", plan.Name, err)
		}
		e.vendors = append(e.vendors, v)
	}
	suspended, err := e.api.OpenAccount(ctx, "Eski Terazi", nil)
	if err != nil {
		return err
	}
	return e.api.Admin.Call(ctx, http.MethodPatch, "/accounts/"+suspended.AccountID, map[string]any{"suspended": true}, nil)
}

func (p fleetPlan) body() map[string]any {
	south, north, west, east := p.Latitude-p.Wide, p.Latitude+p.Wide, p.Longitude-p.Wide*1.3, p.Longitude+p.Wide*1.3
	cut := p.Wide * 0.5 // courier services do not end at right angles
	ring := [][2]float64{{west, south + cut}, {west + cut, south}, {east - cut, south}, {east, south + cut},
		{east, north - cut}, {east - cut, north}, {west + cut, north}, {west, north - cut}, {west, south + cut}}
	return map[string]any{
		"name": p.Name, "subRegion": p.Region, "avgDeliveryMinutes": p.Delivery, "avgPickupMinutes": p.Pickup,
		"coverage": map[string]any{"type": "Polygon", "coordinates": [][][2]float64{ring}},
	}
}

func (e *env) openVendor(ctx context.Context, plan vendorPlan, fleet stack.DemoFleet) (*vendor, error) {
	account, err := e.api.OpenAccount(ctx, plan.Name, nil)
	if err != nil {
		return nil, err
	}
	v := &vendor{Vendor: account, plan: plan, rng: rand.New(rand.NewPCG(uint64(plan.Fleet), 7))}
	if v.fleet, err = e.api.Fleet.As(e.api.Fleet.Base, "").Login(ctx, "/token", fleet.ClientID, fleet.ClientSecret); err != nil {
		return nil, err
	}
	if err := e.listen(ctx, v); err != nil {
		return nil, err
	}
	for i, b := range plan.Branches {
		body := map[string]any{
			"taxNumber": fmt.Sprintf("47%08d", 1000*plan.Fleet+i+1), "name": b.Name, "phone": fmt.Sprintf("0216555%02d%02d", plan.Fleet, i),
			"fleetId": fleet.FleetID,
			"address": map[string]any{"text": b.Address, "latitude": b.Latitude, "longitude": b.Longitude},
		}
		err := await(ctx, "the store is confirmed by the sandbox courier", func() (bool, error) {
			var store struct{ Status string }
			err := v.Call(ctx, http.MethodPut, "/stores/"+b.ID, body, &store)
			return store.Status == "Active", err
		})
		if err != nil {
			return nil, err
		}
	}
	return v, nil
}

// listen registers a receiver for the vendor that behaves as planned.
func (e *env) listen(ctx context.Context, v *vendor) (err error) {
	path, base := "/"+v.AccountID+"/hooks", e.hooksURL
	if v.plan.Receiver == "absent" {
		free, err := stack.FreeAddr()
		if err != nil {
			return err
		}
		base = "http://" + free
	}
	if v.WebhookSecret, err = v.SetWebhook(ctx, base+path); err != nil {
		return err
	}
	switch v.plan.Receiver {
	case "healthy":
		r, err := receiver.New(receiver.Options{Secrets: []string{v.WebhookSecret}})
		if err != nil {
			return err
		}
		e.hooks.Handle(path, r)
	case "failing":
		e.hooks.Handle(path, answer(http.StatusInternalServerError, `<html><head><title>Sunucu hatası</title></head><body>
<h1>500</h1><p>SQLSTATE[HY000] [2002] Connection refused</p></body></html>`))
	case "gone":
		e.hooks.Handle(path, answer(http.StatusGone, "bu uç kapatıldı\n"))
	case "absent":
		// An event that is given up goes before all others: those wait for a probe.
		return e.giveUp(ctx, v)
	}
	return nil
}

func answer(status int, text string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = w.Write([]byte(text)) // the worker may have gone
	})
}

// giveUp publishes an event that is nearly a day old to a vendor whose receiver is
// absent. Its next attempt would come too late, so the first one is its last, and the
// endpoint becomes unreachable.
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
		Data: fmt.Appendf(nil, `{"externalStoreId":%q}`, v.plan.Branches[0].ID),
	})
	if err != nil {
		return err
	}
	return await(ctx, "the endpoint is unreachable", func() (bool, error) {
		var endpoint struct{ Status string }
		err := e.api.Admin.Call(ctx, http.MethodGet, "/accounts/"+v.AccountID+"/webhook", nil, &endpoint)
		return endpoint.Status == "unreachable", err
	})
}

// sell sends orders at the plan's rate, in waves as a kitchen has them; some fail,
// some break a rule.
func (v *vendor) sell(ctx context.Context, turn int, length time.Duration) error {
	for end := time.Now().Add(length); time.Now().Before(end); {
		// Exponential gaps: people do not order in step.
		wait := time.Duration(v.rng.ExpFloat64() * float64(time.Hour) / v.plan.PerHour)
		if err := pause(ctx, min(wait, 10*time.Second)); err != nil {
			return err
		}
		change := func(map[string]any) {}
		switch (v.count + turn) % 17 {
		case 3:
			change = note("SIM:FAIL=CustomerUnreachable")
		case 8:
			change = note("SIM:FAIL=AddressNotFound")
		case 11:
			change = func(o map[string]any) { o["recipient"] = map[string]any{"name": "Müşteri", "phone": "532 123"} }
		case 15:
			change = func(o map[string]any) {
				o["dropoff"] = map[string]any{"text": "Cumhuriyet Caddesi No: 4, İpekyolu/Van", "latitude": 38.5012, "longitude": 43.3730}
			}
		}
		if _, err := v.order(ctx, change); err != nil {
			return err
		}
	}
	return nil
}

func note(text string) func(map[string]any) {
	return func(o map[string]any) { o["packageNote"] = text }
}

// placed is the answer to an accepted order.
type placed struct{ OrderID, TrackingURL string }

var customers = []string{"Zeynep Aydın", "Mert Özkan", "Elif Şahin", "Burak Çelik", "Defne Yıldız", "Emre Koç", "Ayşe Güneş", "Can Işık"}

// order sends one order, changed by change; nil is a refusal, which is part of a day.
func (v *vendor) order(ctx context.Context, change func(map[string]any)) (*placed, error) {
	v.count++
	b := v.plan.Branches[v.rng.IntN(len(v.plan.Branches))]
	kurus := 12000 + v.rng.IntN(90000)
	amount := json.Number(fmt.Sprintf("%d.%02d", kurus/100, kurus%100))
	o := v.Order(func(o map[string]any) {
		o["externalStoreId"], o["externalOrderId"], o["orderAmount"] = b.ID, fmt.Sprintf("%s-%05d", b.ID, 20000+v.count), amount
		o["recipient"] = map[string]any{"name": customers[v.rng.IntN(len(customers))], "phone": fmt.Sprintf("0532%07d", v.rng.IntN(1e7))}
		o["dropoff"] = map[string]any{
			"text":     fmt.Sprintf("Atatürk Caddesi No: %d, daire %d", 1+v.rng.IntN(90), 1+v.rng.IntN(20)),
			"latitude": b.Latitude + (v.rng.Float64()-0.5)*0.02, "longitude": b.Longitude + (v.rng.Float64()-0.5)*0.02,
		}
		o["payment"] = map[string]any{"type": []string{"Card", "Cash"}[v.count%5/2%2], "collectionAmount": amount}
		if v.count%5 == 4 {
			o["payment"] = map[string]any{"type": "Prepaid"}
		}
	})
	change(o)
	answer, err := v.Do(ctx, http.MethodPost, "/orders", o)
	if err != nil || !answer.OK() {
		return nil, err
	}
	made := new(placed)
	return made, answer.Into(made)
}

// leaveOpen leaves behind what operators look for: orders that wait in every status,
// couriers' updates that were refused, and a courier on the road.
func (e *env) leaveOpen(ctx context.Context) error {
	v := e.vendors[0]
	from := v.plan.Branches[0]
	to := [2]float64{from.Latitude - 0.012, from.Longitude + 0.031}
	followed, err := v.order(ctx, func(o map[string]any) {
		o["externalStoreId"], o["packageNote"] = from.ID, "SIM:HOLD=Delivering"
		o["dropoff"] = map[string]any{"text": "Bağdat Caddesi No: 212, daire 9, Kadıköy/İstanbul", "latitude": to[0], "longitude": to[1]}
	})
	if err != nil || followed == nil {
		return fmt.Errorf("the order that is followed was not accepted: %v", err) //nolint:errorlint // err may be nil
	}
	link, err := url.Parse(followed.TrackingURL)
	if err != nil {
		return err
	}
	e.tracked = link.Path
	for _, status := range []string{"Searching", "Assigned", "PickingUp", "PickedUp"} {
		if _, err := v.order(ctx, note("SIM:HOLD="+status)); err != nil {
			return err
		}
	}
	for _, reason := range []string{"CustomerRefused", "PackageDamaged"} {
		failed, err := v.order(ctx, note("SIM:FAIL="+reason))
		if err != nil || failed == nil {
			return fmt.Errorf("the order that fails was not accepted: %v", err) //nolint:errorlint // err may be nil
		}
		if err := v.awaitStatus(ctx, failed.OrderID, "Failed"); err != nil {
			return err
		}
		// The delivery of an order that has failed cannot be: it is refused.
		if err := v.fleet.Call(ctx, http.MethodPost, "/jobs/"+failed.OrderID+"/status", map[string]any{"status": "Delivered"}, nil); err != nil {
			return err
		}
	}
	if err := v.awaitStatus(ctx, followed.OrderID, "Delivering"); err != nil {
		return err
	}
	// At last where the courier is: more than half of the way.
	e.locate = func() error {
		return v.fleet.Call(ctx, http.MethodPost, "/locations", []map[string]any{{
			"orderId": followed.OrderID, "latitude": from.Latitude + 0.5*(to[0]-from.Latitude),
			"longitude": from.Longitude + 0.62*(to[1]-from.Longitude), "at": time.Now().Format(time.RFC3339),
		}}, nil)
	}
	return nil
}

func (v *vendor) awaitStatus(ctx context.Context, order, status string) error {
	return await(ctx, "the order is "+status, func() (bool, error) {
		var job struct{ Status string }
		err := v.fleet.Call(ctx, http.MethodGet, "/jobs/"+order, nil, &job)
		return job.Status == status, err
	})
}

// await polls done for at most three minutes.
func await(ctx context.Context, what string, done func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for {
		if ok, err := done(); ok || err != nil {
			return err
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return fmt.Errorf("waited until %s: %w", what, err)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
