package system

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
)

// Vendor is an account and what it was given.
type Vendor struct {
	*client.Client
	AccountID, ClientID, ClientSecret string
	Store                             string
	count                             atomic.Int64
}

// Raised are limits that no test reaches.
var Raised = map[string]any{
	"orders":      Limit(100000, 60, 100000, 10),
	"orderStatus": Limit(100000, 60),
	"cancel":      Limit(100000, 60),
	"stores":      Limit(100000, 60, 100000, 10),
}

// Limit is the body of a limit: a count and its seconds, and those of a burst.
func Limit(sustained ...int) map[string]any {
	window := func(w []int) map[string]int { return map[string]int{"count": w[0], "seconds": w[1]} }
	limit := map[string]any{"sustained": window(sustained)}
	if len(sustained) == 4 {
		limit["burst"] = window(sustained[2:])
	}
	return limit
}

// Vendor creates an account (limits nil: the specification's) and takes its store
// to Active by hand.
func (e *Env) Vendor(t *testing.T, limits any) *Vendor {
	t.Helper()
	v := e.Account(t, limits)
	v.PutStore(t, e)
	Must(t, e.Fleet.Call(t.Context(), http.MethodPost, "/stores/"+v.AccountID+"/"+v.Store+"/confirm", nil, nil))
	return v
}

// Account is Vendor without a store.
func (e *Env) Account(t *testing.T, limits any) *Vendor {
	t.Helper()
	account := map[string]any{"name": t.Name()}
	if limits != nil {
		account["limits"] = limits
	}
	var created stack.DemoAccount
	Must(t, e.Admin.Call(t.Context(), http.MethodPost, "/accounts", account, &created))
	return e.Login(t, created)
}

// Login is the Vendor of an account that is there.
func (e *Env) Login(t *testing.T, a stack.DemoAccount) *Vendor {
	t.Helper()
	c, err := e.Admin.As(e.Demo.BaseURL+"/api/vendor/v1", "").Login(t.Context(), "/token", a.ClientID, a.ClientSecret)
	Must(t, err)
	return &Vendor{Client: c, AccountID: a.AccountID, ClientID: a.ClientID, ClientSecret: a.ClientSecret, Store: "branch-1"}
}

// PutStore registers the store, which then waits for the demo's fleet.
func (v *Vendor) PutStore(t *testing.T, e *Env) {
	t.Helper()
	var put struct{ Status string }
	Must(t, v.Call(t.Context(), http.MethodPut, "/stores/"+v.Store, StoreBody(e.Demo.Fleet.FleetID), &put))
	if put.Status != "AwaitingFleetApproval" {
		t.Fatalf("the store is %s after naming its fleet", put.Status)
	}
}

// AwaitStore registers the store and waits until the sandbox courier has confirmed
// it, which an order shows.
func (v *Vendor) AwaitStore(t *testing.T, e *Env) {
	t.Helper()
	v.PutStore(t, e)
	testserver.Await(t, "the sandbox courier confirms the store", func() bool {
		a, err := v.Do(t.Context(), http.MethodPost, "/orders", v.Order(nil))
		Must(t, err)
		return a.OK()
	})
}

// StoreBody is a valid store of a fleet.
func StoreBody(fleetID string) map[string]any {
	return map[string]any{
		"taxNumber": "1234567890", "name": "Moda Şubesi", "phone": "02165550011", "fleetId": fleetID,
		"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
	}
}

// Order is a valid body with a fresh external id; change is applied to it.
func (v *Vendor) Order(change func(map[string]any)) map[string]any {
	o := map[string]any{
		"externalStoreId": v.Store,
		"externalOrderId": fmt.Sprintf("E-%d", v.count.Add(1)),
		"recipient":       map[string]any{"name": "Ayşe Kaya", "phone": "05321234567"},
		"dropoff":         map[string]any{"text": "Bahariye Caddesi No: 2, Kadıköy", "latitude": 40.9880, "longitude": 29.0300},
		"orderAmount":     json.Number("249.90"),
		"payment":         map[string]any{"type": "Cash", "collectionAmount": json.Number("249.90")},
	}
	if change != nil {
		change(o)
	}
	return o
}

// Create makes one order and returns its id.
func (v *Vendor) Create(t *testing.T, change func(map[string]any)) string {
	t.Helper()
	var created struct{ OrderID string }
	Must(t, v.Call(t.Context(), http.MethodPost, "/orders", v.Order(change), &created))
	return created.OrderID
}

// Listener is an address for webhooks in this process. Their secret comes with the
// registration of the URL, so it begins to answer only in Serve.
type Listener struct {
	net.Listener
	URL string
}

// Listen takes a free address until the test ends.
func Listen(t *testing.T) *Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	Must(t, err)
	t.Cleanup(func() { l.Close() })
	return &Listener{l, "http://" + l.Addr().String() + "/"}
}

// Serve answers with a receiver.
func (l *Listener) Serve(t *testing.T, o receiver.Options) *receiver.Receiver {
	t.Helper()
	r, err := receiver.New(o)
	Must(t, err)
	l.Handle(t, r)
	return r
}

// Handle answers with a handler.
func (l *Listener) Handle(t *testing.T, h http.Handler) {
	t.Helper()
	server := &http.Server{Handler: h}
	go func() { _ = server.Serve(l) }() // ends with the listener
	t.Cleanup(func() { _ = server.Close() })
}

// SetWebhook registers a URL and returns the secret, which is shown the first time
// only.
func (v *Vendor) SetWebhook(t *testing.T, url string) (secret string) {
	t.Helper()
	var set stack.Webhook
	Must(t, v.Call(t.Context(), http.MethodPut, "/webhook", map[string]string{"url": url}, &set))
	return set.Secret
}

// Receive makes a receiver for the vendor's webhooks.
func (v *Vendor) Receive(t *testing.T, o receiver.Options) *receiver.Receiver {
	t.Helper()
	l := Listen(t)
	o.Secrets = []string{v.SetWebhook(t, l.URL)}
	return l.Serve(t, o)
}

// Statuses are those of a receiver's timeline.
func Statuses(timeline []receiver.Entry) (names []string) {
	for _, e := range timeline {
		names = append(names, e.Status)
	}
	return names
}
