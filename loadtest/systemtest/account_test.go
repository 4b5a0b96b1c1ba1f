package systemtest

import (
	"net/http"
	"testing"

	"vendorapi/internal/stack"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
)

// account is a vendor whose calls must succeed.
type account struct{ *stack.Vendor }

// Vendor creates an account (limits nil: the specification's) and takes its store
// to Active by hand.
func (e *stackEnv) Vendor(t *testing.T, limits any) account {
	t.Helper()
	v, err := e.apis.OpenVendor(t.Context(), stack.VendorOptions{Name: t.Name(), Limits: limits})
	must(t, err)
	return account{v}
}

// Account is Vendor without a store.
func (e *stackEnv) Account(t *testing.T, limits any) account {
	t.Helper()
	v, err := e.apis.OpenAccount(t.Context(), t.Name(), limits)
	must(t, err)
	v.Store = "branch-1"
	return account{v}
}

// Login is an account that is there.
func (e *stackEnv) Login(t *testing.T, a stack.DemoAccount) account {
	t.Helper()
	c, err := e.apis.Vendor.Login(t.Context(), "/token", a.ClientID, a.ClientSecret)
	must(t, err)
	return account{&stack.Vendor{Client: c, DemoAccount: a, Store: "branch-1"}}
}

// AwaitStore registers the store and waits until the sandbox courier has confirmed
// it, which an order shows.
func (v account) AwaitStore(t *testing.T, e *stackEnv) {
	t.Helper()
	var put struct{ Status string }
	must(t, v.Call(t.Context(), http.MethodPut, "/stores/"+v.Store, stack.StoreBody(e.Demo.Fleet.FleetID), &put))
	if put.Status != "AwaitingFleetApproval" {
		t.Fatalf("the store is %s after naming its fleet", put.Status)
	}

	testserver.Await(t, "the sandbox courier confirms the store", func() bool {
		a, err := v.Do(t.Context(), http.MethodPost, "/orders", v.Order(nil))
		must(t, err)
		return a.OK()
	})
}

// Create makes one order and returns its id.
func (v account) Create(t *testing.T, change func(map[string]any)) string {
	t.Helper()
	var created struct{ OrderID string }
	must(t, v.Call(t.Context(), http.MethodPost, "/orders", v.Order(change), &created))
	return created.OrderID
}

// SetWebhook registers a URL and returns the secret, which is shown the first time
// only.
func (v account) SetWebhook(t *testing.T, url string) (secret string) {
	t.Helper()
	secret, err := v.Vendor.SetWebhook(t.Context(), url)
	must(t, err)
	return secret
}

// Receive makes a receiver for the vendor's webhooks.
func (v account) Receive(t *testing.T, o receiver.Options) *receiver.Receiver {
	t.Helper()
	url, handle := listen(t)
	o.Secrets = []string{v.SetWebhook(t, url)}
	r, err := receiver.New(o)
	must(t, err)
	handle(r)

	return r
}

// listen takes a free address for webhooks until the test ends. Their secret comes with
// the registration of the URL, so who calls waits until the handler is there.
func listen(t *testing.T) (url string, handle func(http.Handler)) {
	t.Helper()
	var handler http.Handler
	ready := make(chan struct{})
	url, stop, err := receiver.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		<-ready
		handler.ServeHTTP(w, r)
	}))

	must(t, err)
	t.Cleanup(stop)

	return url + "/", func(h http.Handler) {
		handler = h
		close(ready)
	}
}

// statuses are those of a receiver's timeline.
func statuses(timeline []receiver.Entry) (names []string) {
	for _, e := range timeline {
		names = append(names, e.Status)
	}
	return names
}
