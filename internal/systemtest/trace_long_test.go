//go:build long

package systemtest

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
)

// The caller's own trace, as W3C Trace Context writes it.
const (
	callersTrace = "4bf92f3577b34da6a3ce929d0e0e4736"
	traceparent  = "00-" + callersTrace + "-00f067aa0ba902b7-01"
)

// webhooks are what the vendor's receiver was sent.
type webhooks struct {
	url     string
	mu      sync.Mutex
	parents map[string][]string // traceparent headers by order
	status  map[string]bool
}

func receive(t *testing.T) *webhooks {
	t.Helper()
	w := &webhooks{parents: map[string][]string{}, status: map[string]bool{}}
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		var event struct {
			Data struct{ OrderID, Status string }
		}
		if err := json.Unmarshal(body, &event); err != nil {
			t.Error(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.parents[event.Data.OrderID] = append(w.parents[event.Data.OrderID], r.Header.Get("traceparent"))
		w.status[event.Data.OrderID+event.Data.Status] = true
	}))
	t.Cleanup(server.Close)
	w.url = server.URL
	return w
}

func (w *webhooks) saw(order, status string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status[order+status]
}

func await(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(90 * time.Second); !ok(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// order opens a store and creates an order in it, under the caller's trace.
func order(t *testing.T, s *stack.Stack) string {
	t.Helper()
	base := s.Demo.BaseURL + "/api/vendor/v1"
	vendor, err := client.New(base, 2).Login(t.Context(), "/token", s.Demo.Account.ClientID, s.Demo.Account.ClientSecret)
	if err != nil {
		t.Fatal(err)
	}
	store := map[string]any{"taxNumber": "1234567890", "name": "Moda", "phone": "02165550011", "fleetId": s.Demo.Fleet.FleetID,
		"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258}}
	if err := vendor.Call(t.Context(), http.MethodPut, "/stores/moda", store, nil); err != nil {
		t.Fatal(err)
	}
	body := map[string]any{"externalStoreId": "moda", "externalOrderId": "A-1",
		"recipient": map[string]any{"name": "Ayşe Geheim", "phone": "05321234567"},
		"dropoff":   map[string]any{"text": "Bahariye Caddesi No: 2, Kadıköy", "latitude": 40.9880, "longitude": 29.0300}}
	var created struct{ OrderID string }
	await(t, "the store is active", func() bool {
		return vendor.Call(t.Context(), http.MethodPost, "/orders", body, &created, "traceparent", traceparent) == nil
	})
	return created.OrderID
}

func begin(t *testing.T, receiver string, env ...string) *stack.Stack {
	t.Helper()
	s, err := stack.Start(t.Context(), stack.Options{BinDir: binaries, DataDir: t.TempDir(), WebhookURL: receiver,
		CourierStep: 100 * time.Millisecond, Env: env})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	return s
}

func TestTrace_FollowsAnOrderFromRequestToWebhook(t *testing.T) {
	t.Parallel()
	c, hooks := startCollector(t), receive(t)
	s := begin(t, hooks.url, "TRACING_ENDPOINT="+c.url)
	id := order(t, s)
	trace := strings.ReplaceAll(id, "-", "") // by which it is found
	await(t, "the last webhook's span", func() bool {
		return hooks.saw(id, "Delivered") && len(c.of(trace)["worker webhook delivery.status_changed"]) == 5
	})
	await(t, "the last decision's span", func() bool { return len(c.of(trace)["worker decide updates"]) > 0 })
	spans := c.of(trace)
	creation := spans["gateway POST /api/vendor/v1/orders"]
	if len(creation) != 1 {
		t.Fatalf("%d creations among %v", len(creation), names(spans))
	}
	root := creation[0]
	if root.parent() != "" || len(root.Links) != 1 || callersTrace != hexOf(root.Links[0].TraceId) || root.attribute("vendorapi.order") != id ||
		root.attribute("vendorapi.account") != s.Demo.Account.AccountID || root.EndTimeUnixNano <= root.StartTimeUnixNano {
		t.Errorf("the creation: %v", root)
	}
	script := spans["gateway redis create_order"]
	if len(script) != 1 || script[0].parent() != root.id() || script[0].StartTimeUnixNano < root.StartTimeUnixNano || script[0].EndTimeUnixNano > root.EndTimeUnixNano {
		t.Errorf("its script: %v", script)
	}
	for _, decision := range spans["worker decide updates"] {
		if decision.parent() != root.id() || decision.attribute("vendorapi.moves") == "" {
			t.Errorf("a decision: %v", decision)
		}
	}
	sent := map[string]bool{}
	for _, attempt := range spans["worker webhook delivery.status_changed"] {
		if attempt.parent() != root.id() || attempt.attribute("vendorapi.order") != id {
			t.Errorf("an attempt: %v", attempt)
		}
		sent["00-"+trace+"-"+attempt.id()+"-01"] = true
	}
	hooks.mu.Lock()
	defer hooks.mu.Unlock()
	for _, parent := range hooks.parents[id] {
		if !sent[parent] {
			t.Errorf("the receiver was sent %q, which is no attempt of %v", parent, sent)
		}
	}
	for _, secret := range []string{"Geheim", "5321234567", "Bahariye", s.Demo.Account.ClientSecret, s.Demo.AdminKey, hooks.url} {
		if bytes.Contains(c.raw, []byte(secret)) {
			t.Errorf("a span tells %q", secret)
		}
	}
}

func TestTrace_IsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()
	c, hooks := startCollector(t), receive(t)
	// The SDK's own variable switches nothing on.
	s := begin(t, hooks.url, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.url)
	id := order(t, s)
	await(t, "the last webhook", func() bool { return hooks.saw(id, "Delivered") })
	s.Stop()
	hooks.mu.Lock()
	defer hooks.mu.Unlock()
	for _, parent := range hooks.parents[id] {
		if parent != "" {
			t.Errorf("the receiver was sent traceparent %s", parent)
		}
	}
	if len(c.raw) > 0 {
		t.Errorf("%d bytes of traces were sent", len(c.raw))
	}
}

func names(spans map[string][]received) (all []string) {
	for name := range spans {
		all = append(all, name)
	}
	return all
}

func hexOf(id []byte) string { return hex.EncodeToString(id) }
