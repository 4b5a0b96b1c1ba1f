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

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"vendorapi/internal/stack"
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

func receiveTraced(t *testing.T) *webhooks {
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

// tracedOrder opens a store and creates an order in it, under the caller's trace.
func tracedOrder(t *testing.T, e *stackEnv) string {
	t.Helper()
	v := e.Login(t, e.Demo.Account)
	v.AwaitStore(t, e)
	var created struct{ OrderID string }
	must(t, v.Call(t.Context(), http.MethodPost, "/orders", v.Order(func(o map[string]any) {
		o["recipient"] = map[string]any{"name": "Ayşe Geheim", "phone": "05321234567"}
	}), &created, "traceparent", traceparent))

	return created.OrderID
}

func startTraced(t *testing.T, receiver string, env ...string) *stackEnv {
	t.Helper()
	return startStack(t, stack.Options{WebhookURL: receiver, CourierStep: 100 * time.Millisecond, Env: env})
}

func TestTrace_FollowsAnOrderFromRequestToWebhook(t *testing.T) {
	t.Parallel()

	c, hooks := startCollector(t), receiveTraced(t)
	s := startTraced(t, hooks.url, "TRACING_ENDPOINT="+c.url)
	id := tracedOrder(t, s)
	trace := strings.ReplaceAll(id, "-", "") // by which it is found
	await(t, "the spans of both programs", func() bool {
		spans := c.of(trace)
		return hooks.saw(id, "Delivered") && len(spans["worker webhook delivery.status_changed"]) == 5 && len(spans["worker decide updates"]) > 0 &&
			len(spans["gateway POST /api/vendor/v1/orders"]) > 0 && len(spans["gateway redis create_order"]) > 0
	})

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
			t.Errorf("a span contains %q", secret)
		}
	}
}

func TestTrace_IsOffUnlessAskedFor(t *testing.T) {
	t.Parallel()

	c, hooks := startCollector(t), receiveTraced(t)
	// The SDK's own variable switches nothing on.
	s := startTraced(t, hooks.url, "OTEL_EXPORTER_OTLP_ENDPOINT="+c.url)
	id := tracedOrder(t, s)
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

// received is a span as a collector gets it.
type received struct {
	program string
	*otlp.Span
}

func (r received) trace() string  { return hex.EncodeToString(r.TraceId) }
func (r received) id() string     { return hex.EncodeToString(r.SpanId) }
func (r received) parent() string { return hex.EncodeToString(r.ParentSpanId) }

func (r received) attribute(name string) string {
	for _, a := range r.Attributes {
		if a.Key == name {
			return a.Value.GetStringValue()
		}
	}
	return ""
}

// otlpCollector takes spans over OTLP/HTTP.
type otlpCollector struct {
	url   string
	mu    sync.Mutex
	spans []received
	raw   []byte
}

func startCollector(t *testing.T) *otlpCollector {
	t.Helper()
	c := &otlpCollector{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		request := new(collector.ExportTraceServiceRequest)
		if err != nil || r.URL.Path != "/v1/traces" || r.Header.Get("Content-Type") != "application/x-protobuf" || proto.Unmarshal(body, request) != nil {
			t.Errorf("%s %s is no export of traces: %v", r.Method, r.URL, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}

		c.take(request, body)
		answer, _ := proto.Marshal(new(collector.ExportTraceServiceResponse))
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(answer)
	}))

	t.Cleanup(server.Close)
	c.url = server.URL

	return c
}

func (c *otlpCollector) take(request *collector.ExportTraceServiceRequest, body []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.raw = append(c.raw, body...)
	for _, resource := range request.ResourceSpans {
		program := ""
		for _, a := range resource.Resource.Attributes {
			if a.Key == "service.name" {
				program = a.Value.GetStringValue()
			}
		}

		for _, scope := range resource.ScopeSpans {
			for _, span := range scope.Spans {
				c.spans = append(c.spans, received{program, span})
			}
		}
	}
}

// of are the spans of a trace, by program and name; several of a name follow each
// other.
func (c *otlpCollector) of(trace string) map[string][]received {
	c.mu.Lock()
	defer c.mu.Unlock()
	found := map[string][]received{}
	for _, s := range c.spans {
		if s.trace() == trace {
			found[s.program+" "+s.Name] = append(found[s.program+" "+s.Name], s)
		}
	}
	return found
}
