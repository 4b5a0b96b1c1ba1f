package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
)

// vendor is an account with branches and a receiver.
type vendor struct {
	*client.Client
	plan    vendorPlan
	account string
	rng     *rand.Rand
	orders  int // so far; make external ids
}

func (w *world) addVendor(ctx context.Context, plan vendorPlan) (*vendor, error) {
	var made stack.DemoAccount
	if err := w.admin.Call(ctx, http.MethodPost, "/accounts", map[string]any{"name": plan.name}, &made); err != nil {
		return nil, err
	}
	c, err := w.admin.As(w.Demo.BaseURL+"/api/vendor/v1", "").Login(ctx, "/token", made.ClientID, made.ClientSecret)
	if err != nil {
		return nil, err
	}
	v := &vendor{Client: c, plan: plan, account: made.AccountID, rng: rand.New(rand.NewPCG(uint64(plan.fleet), 7))}
	if err := w.listen(ctx, v); err != nil {
		return nil, err
	}
	// An event that is given up goes before all others: those wait for a probe.
	if plan.receiver == absent {
		if err := w.giveUp(ctx, v); err != nil {
			return nil, fmt.Errorf("give up: %w", err)
		}
	}
	for i, b := range plan.branches {
		body := map[string]any{
			"taxNumber": fmt.Sprintf("47%08d", 1000*plan.fleet+i+1), "name": b.name, "phone": fmt.Sprintf("0216555%02d%02d", plan.fleet, i),
			"fleetId": w.fleets[plan.fleet+1].FleetID,
			"address": map[string]any{"text": b.address, "latitude": b.latitude, "longitude": b.longitude},
		}
		if err := c.Call(ctx, http.MethodPut, "/stores/"+b.id, body, nil); err != nil {
			return nil, err
		}
	}
	return v, v.awaitStores(ctx)
}

// awaitStores waits until the sandbox courier has confirmed the branches.
func (v *vendor) awaitStores(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for _, b := range v.plan.branches {
		for {
			var store struct{ Status string }
			// An update of nothing tells the state.
			if err := v.Call(ctx, http.MethodPut, "/stores/"+b.id, map[string]any{}, &store); err != nil {
				return err
			}
			if store.Status == "Active" {
				break
			}
			if err := pause(ctx, 500*time.Millisecond); err != nil {
				return err
			}
		}
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// sell sends orders at the plan's rate, in waves as a kitchen has them; some are
// cancelled, some fail, some break a rule.
func (v *vendor) sell(ctx context.Context, turn int, length time.Duration) error {
	end := time.Now().Add(length)
	for time.Now().Before(end) {
		// Exponential gaps: people do not order in step.
		wait := time.Duration(v.rng.ExpFloat64() * float64(time.Hour) / v.plan.perHour)
		if err := pause(ctx, min(wait, 10*time.Second)); err != nil {
			return err
		}
		if _, err := v.order(ctx, v.fate(turn)); err != nil {
			return err
		}
	}
	return nil
}

// fate is what becomes of the next order.
func (v *vendor) fate(turn int) func(map[string]any) {
	switch (v.orders + turn) % 17 {
	case 3:
		return note("SIM:FAIL=CustomerUnreachable")
	case 8:
		return note("SIM:FAIL=AddressNotFound")
	case 11:
		return func(o map[string]any) { o["recipient"] = map[string]any{"name": "Müşteri", "phone": "532 123"} }
	case 15:
		return func(o map[string]any) {
			o["dropoff"] = map[string]any{"text": "Cumhuriyet Caddesi No: 4, İpekyolu/Van", "latitude": 38.5012, "longitude": 43.3730}
		}
	}
	return func(map[string]any) {}
}

func note(text string) func(map[string]any) {
	return func(o map[string]any) { o["packageNote"] = text }
}

// placed is the answer to an accepted order.
type placed struct{ OrderID, ExternalOrderID, TrackingURL string }

var customers = []string{"Zeynep Aydın", "Mert Özkan", "Elif Şahin", "Burak Çelik", "Defne Yıldız", "Emre Koç", "Ayşe Güneş", "Can Işık"}

// order sends one order, changed by change; a refusal is part of a day.
func (v *vendor) order(ctx context.Context, change func(map[string]any)) (*placed, error) {
	v.orders++
	b := v.plan.branches[v.rng.IntN(len(v.plan.branches))]
	amount := 12000 + v.rng.IntN(90000)
	o := map[string]any{
		"externalStoreId": b.id, "externalOrderId": fmt.Sprintf("%s-%05d", b.id, 20000+v.orders),
		"recipient": map[string]any{"name": customers[v.rng.IntN(len(customers))], "phone": fmt.Sprintf("0532%07d", v.rng.IntN(1e7))},
		"dropoff": map[string]any{
			"text":     fmt.Sprintf("Atatürk Caddesi No: %d, daire %d", 1+v.rng.IntN(90), 1+v.rng.IntN(20)),
			"latitude": b.latitude + (v.rng.Float64()-0.5)*0.02, "longitude": b.longitude + (v.rng.Float64()-0.5)*0.02,
		},
		"orderAmount": number(amount),
	}
	switch v.orders % 5 {
	case 0, 1:
		o["payment"] = map[string]any{"type": "Card", "collectionAmount": number(amount)}
	case 2, 3:
		o["payment"] = map[string]any{"type": "Cash", "collectionAmount": number(amount)}
	default:
		o["payment"] = map[string]any{"type": "Prepaid"}
	}
	change(o)
	answer, err := v.Do(ctx, http.MethodPost, "/orders", o)
	if err != nil || !answer.OK() {
		return nil, err
	}
	made := new(placed)
	return made, answer.Into(made)
}
