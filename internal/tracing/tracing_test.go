package tracing

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T, s Settings) *Tracer {
	t.Helper()
	tr, err := Open(t.Context(), s, "test", "sandbox", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tr.Close(t.Context()) })
	return tr
}

func TestSettings_NameTheWrongKey(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		settings Settings
		want     string // "": right
	}{
		{Settings{}, ""},
		{Settings{Endpoint: "http://collector:4318", SampleRatio: 0.1}, ""},
		{Settings{Endpoint: "https://collector/v1/traces", SampleRatio: 1}, ""},
		{Settings{SampleRatio: 1.5}, "tracing.sample_ratio"},
		{Settings{SampleRatio: -1}, "tracing.sample_ratio"},
		{Settings{Endpoint: "collector:4318"}, "tracing.endpoint"},
		{Settings{Endpoint: "grpc://collector:4317"}, "tracing.endpoint"},
		{Settings{Endpoint: "http://u:geheim@collector"}, "tracing.endpoint"},
	} {
		err := c.settings.Validate()
		if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "geheim")) {
			t.Errorf("%+v: %v", c.settings, err)
		}
	}
}

func TestTracer_OffDoesNothing(t *testing.T) {
	tr, err := Open(t.Context(), Settings{SampleRatio: 1}, "test", "sandbox", slog.New(slog.DiscardHandler))
	if tr != nil || err != nil {
		t.Fatalf("%v, %v", tr, err)
	}
	span := &Span{Name: "nothing"}
	if n := testing.AllocsPerRun(100, func() { tr.Record(span) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := tr.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestIdentity_OfAnOrderIsItsOwnTrace(t *testing.T) {
	t.Parallel()
	tr := open(t, Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: 1})
	order := [16]byte{0xab, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	one, two := tr.OfOrder(order), tr.OfOrder(order)
	if one.TraceID() != "ab0102030405060708090a0b0c0d0e0f" || one.TraceID() != two.TraceID() || one.Traceparent() == two.Traceparent() {
		t.Errorf("%s and %s", one.Traceparent(), two.Traceparent())
	}
	if parent := one.Traceparent(); len(parent) != 55 || !strings.HasPrefix(parent, "00-"+one.TraceID()+"-") || !strings.HasSuffix(parent, "-01") {
		t.Errorf("traceparent %q", parent)
	}
	if other := tr.OfOrder([16]byte{}); other.TraceID() == tr.OfOrder([16]byte{}).TraceID() || strings.Trim(other.TraceID(), "0") == "" {
		t.Errorf("without an order: %s", other.TraceID())
	}
}

// Programs agree on which orders are traced because each decides by the id.
func TestSampling_FollowsFromTheOrder(t *testing.T) {
	t.Parallel()
	s := Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: 0.25}
	gateway, worker := open(t, s), open(t, s)
	for i := range 4000 {
		order := [16]byte{byte(i), byte(i >> 8)}
		// The last eight bytes of an order id are those of a digest.
		copy(order[8:], gateway.OfOrder([16]byte{}).context.SpanID().String())
		first, later := gateway.OfOrder(order), worker.OfOrder(order)
		if first.context.IsSampled() != later.context.IsSampled() || first.context.IsSampled() != gateway.root(order).IsSampled() {
			t.Fatalf("they differ about %x", order)
		}
	}
	random := 0
	for range 4000 {
		if gateway.OfOrder([16]byte{}).context.IsSampled() {
			random++
		}
	}
	if random < 800 || random > 1200 {
		t.Errorf("%d of 4000 are sampled", random)
	}
}

func TestRecord_SurvivesMalformedCallersAndAnAbsentCollector(t *testing.T) {
	t.Parallel()
	var logs lockedBuffer
	tr, err := Open(t.Context(), Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: 1}, "test", "sandbox", slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	for _, caller := range []string{"", "x", "00-0-0-00", strings.Repeat("00-", 10_000), "00-00000000000000000000000000000000-0000000000000000-01"} {
		for range 1000 {
			tr.Record(&Span{Name: "s", Caller: caller, Began: began, Ended: began.Add(time.Millisecond), Within: []Span{{Name: "w", Began: began, Ended: began}}})
		}
	}
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("recording took %s", took)
	}
}

func TestClose_SendsWhatIsQueued(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	var got []byte
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		got = append(got, body...)
	}))
	defer server.Close()
	tr, err := Open(t.Context(), Settings{Endpoint: server.URL, SampleRatio: 1}, "program-name", "sandbox", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	tr.Record(&Span{Name: "the last one", Began: time.Now(), Ended: time.Now(), Failure: "it failed"})
	if err := tr.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for _, want := range []string{"the last one", "program-name", "it failed", "sandbox"} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%q was not sent", want)
		}
	}
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}
