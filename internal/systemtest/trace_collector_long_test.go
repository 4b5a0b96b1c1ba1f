//go:build long

package systemtest

import (
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	otlp "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

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
