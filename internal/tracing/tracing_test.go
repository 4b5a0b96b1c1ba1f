package tracing

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel"

	"vendorapi/internal/delivery"
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
	traceOf := func(i Identity) string { return i.context.TraceID().String() }
	one, two := tr.OfOrder(order), tr.OfOrder(order)
	if traceOf(one) != "ab0102030405060708090a0b0c0d0e0f" || traceOf(one) != traceOf(two) || one.Traceparent() == two.Traceparent() {
		t.Errorf("%s and %s", one.Traceparent(), two.Traceparent())
	}
	if parent := one.Traceparent(); len(parent) != 55 || !strings.HasPrefix(parent, "00-"+traceOf(one)+"-") || !strings.HasSuffix(parent, "-01") {
		t.Errorf("traceparent %q", parent)
	}
	if other := traceOf(tr.OfOrder([16]byte{})); other == traceOf(tr.OfOrder([16]byte{})) || strings.Trim(other, "0") == "" {
		t.Errorf("without an order: %s", other)
	}
}

// Programs agree on which orders are traced because each decides by the id.
func TestSampling_FollowsFromTheOrder(t *testing.T) {
	t.Parallel()

	const n = 4000
	for _, ratio := range []float64{0, 0.01, 0.25, 0.5, 0.9, 1} {
		s := Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: ratio}
		gateway, worker := open(t, s), open(t, s)
		orders, others := 0, 0
		account := delivery.NewAccountID()
		for i := range n {
			// Orders of one day and one account share all but their digests.
			order := delivery.MakeOrderID(7, 20_000, delivery.OrderDigest(account, fmt.Sprint(i)))
			taken := gateway.OfOrder(order).context.IsSampled()
			if worker.OfOrder(order).context.IsSampled() != taken || gateway.root(order).IsSampled() != taken {
				t.Fatalf("they differ about %s", order)
			}

			if taken {
				orders++
			}

			if gateway.OfOrder([16]byte{}).context.IsSampled() {
				others++
			}
		}

		for what, got := range map[string]int{"orders": orders, "other traces": others} {
			if math.Abs(float64(got)-ratio*n) > 5*math.Sqrt(n*ratio*(1-ratio)) {
				t.Errorf("ratio %v: %d of %d %s are taken", ratio, got, n, what)
			}
		}
	}
}

// Far more spans than are kept, which nobody takes: none of them waits.
func TestRecord_SurvivesMalformedCallersAndAnAbsentCollector(t *testing.T) {
	t.Parallel()

	tr, err := Open(t.Context(), Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: 1}, "test", "sandbox", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}

	began := time.Now()
	for _, caller := range []string{"", "x", "00-0-0-00", strings.Repeat("00-", 10_000), "00-00000000000000000000000000000000-0000000000000000-01"} {
		for range queued / 8 {
			tr.Record(&Span{Name: "s", Caller: caller, Began: began, Ended: began.Add(time.Millisecond), Within: []Span{{Name: "w", Began: began, Ended: began}}})
		}
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

// What is not sampled reaches no collector. A span is below its caller, and has no additional link to it.
func TestRecord_SendsWhatIsSampledBelowItsCaller(t *testing.T) {
	t.Parallel()

	const caller = "00-0102030405060708090a0b0c0d0e0f10-a1a2a3a4a5a6a7a8-01"
	for ratio, want := range map[float64]int{0: 0, 1: 1} {
		var mu sync.Mutex
		var got []byte
		server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			mu.Lock()
			defer mu.Unlock()
			got = append(got, body...)
		}))

		t.Cleanup(server.Close)
		tr, err := Open(t.Context(), Settings{Endpoint: server.URL, SampleRatio: ratio}, "test", "sandbox", slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}

		tr.Record(&Span{Name: "one", Caller: caller, Began: time.Now(), Ended: time.Now()})
		if err := tr.Close(t.Context()); err != nil {
			t.Fatal(err)
		}

		mu.Lock()
		sent := bytes.Clone(got)
		mu.Unlock()
		if n := bytes.Count(sent, []byte{0xa1, 0xa2, 0xa3, 0xa4, 0xa5, 0xa6, 0xa7, 0xa8}); n != want {
			t.Errorf("ratio %v: the caller is named %d times, want %d", ratio, n, want)
		}
	}
}

func TestOpen_LogsOneFailureAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		tr, err := Open(t.Context(), Settings{Endpoint: "http://127.0.0.1:1", SampleRatio: 1}, "test", "sandbox", slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tr.Close(t.Context()) }()

		for _, step := range []struct {
			pause time.Duration
			lines int
		}{{0, 1}, {0, 1}, {59 * time.Second, 1}, {time.Second, 2}, {time.Second, 2}} {
			time.Sleep(step.pause)

			otel.Handle(errors.New("no collector"))

			if n := strings.Count(log.String(), "no collector"); n != step.lines {
				t.Errorf("%d lines, want %d: %s", n, step.lines, log.String())
			}
		}
	})
}

func TestOpen_ShowsTheCollectorWhatAVariableOrItsFileHolds(t *testing.T) {
	shown := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		shown <- r.Header.Get("Api-Key") + "|" + r.Header.Get("X-Team")
	}))
	defer server.Close()
	file := filepath.Join(t.TempDir(), "headers")
	if err := os.WriteFile(file, []byte("api-key=geheim%2B1, x-team=a b\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	const both = "api-key=geheim%2B1, x-team=a b"
	for _, c := range []struct{ value, file, want string }{
		{"", "", "|"},
		{both, "", "geheim+1|a b"},
		{"", file, "geheim+1|a b"},
		{both, file, ""},
		{"", file + ".none", ""},
		{"geheim", "", ""},
		{"api-key=geheim%zz", "", ""},
	} {
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS", c.value)
		t.Setenv("OTEL_EXPORTER_OTLP_HEADERS_FILE", c.file)
		tr, err := Open(t.Context(), Settings{Endpoint: server.URL, SampleRatio: 1}, "test", "sandbox", slog.New(slog.DiscardHandler))
		if c.want == "" {
			if err == nil || !strings.Contains(err.Error(), "OTEL_EXPORTER_OTLP_HEADERS") || strings.Contains(err.Error(), "geheim") {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}

		if err != nil {
			t.Fatal(err)
		}

		tr.Record(&Span{Name: "one", Began: time.Now(), Ended: time.Now()})
		if err := tr.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := <-shown; got != c.want {
			t.Errorf("%+v: the collector was shown %q", c, got)
		}
	}
}
