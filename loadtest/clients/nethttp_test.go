//go:build clients

package clients

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
)

// transport is net/http's default one. It keeps the version of HTTP of the last
// answer, and with STREAM=1 sends bodies without a length.
type transport struct{ proto string }

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	sent := *r
	if os.Getenv("STREAM") != "" && r.Body != nil {
		sent.ContentLength = -1
	}

	resp, err := http.DefaultTransport.RoundTrip(&sent)
	if err == nil {
		t.proto = resp.Proto
	}
	return resp, err
}

// walkNetHTTP is the walk with Go's net/http.
func walkNetHTTP(ctx context.Context) error {
	t := &transport{}
	api := &client.Client{Base: os.Getenv("BASE_URL") + "/api/vendor/v1", HTTP: &http.Client{Transport: t}}
	api, err := api.Login(ctx, "/token", os.Getenv("CLIENT_ID"), os.Getenv("CLIENT_SECRET"))
	if err != nil {
		return err
	}

	var failure error
	call := func(method, path string, body any, into any, headers ...string) {
		if failure == nil {
			failure = api.Call(ctx, method, path, body, into, headers...)
		}
	}

	store := stack.StoreBody("")
	delete(store, "fleetId")
	var state struct {
		Status          string
		AvailableFleets []struct{ FleetID string }
	}

	call("PUT", "/stores/moda", store, &state)
	if failure != nil || len(state.AvailableFleets) == 0 {
		return errors.Join(errors.New("the store has no fleet"), failure)
	}

	for store["fleetId"] = state.AvailableFleets[0].FleetID; state.Status != "Active" && failure == nil; {
		call("PUT", "/stores/moda", store, &state)
		time.Sleep(300 * time.Millisecond)
	}

	vendor := &stack.Vendor{Store: "moda"}
	first, second := vendor.Order(nil), vendor.Order(func(o map[string]any) { o["packageNote"] = "SIM:HOLD=Assigned" })
	var delivered, again, cancelled struct{ OrderID, Status string }
	call("POST", "/orders", first, &delivered, "Idempotency-Key", "A-1")
	call("POST", "/orders", first, &again, "X-Idempotency-Key", "A-1")
	call("POST", "/orders", second, &cancelled, "Idempotency-Key", "A-2")
	call("POST", "/orders/"+cancelled.OrderID+"/cancel", nil, nil)
	if failure == nil && again.OrderID != delivered.OrderID {
		return fmt.Errorf("the order again is %s, not %s", again.OrderID, delivered.OrderID)
	}

	time.Sleep(4 * time.Second)
	for call("GET", "/orders/"+delivered.OrderID, nil, &delivered); delivered.Status != "Delivered" && failure == nil; {
		time.Sleep(10 * time.Second)
		call("GET", "/orders/"+delivered.OrderID, nil, &delivered)
	}

	fmt.Println(delivered.OrderID, cancelled.OrderID, t.proto)

	return failure
}
