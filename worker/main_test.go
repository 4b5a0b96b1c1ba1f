package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/webhook"
)

// worker is the program running in this process.
type worker struct {
	opsURL string
	stop   func() error
	logs   *logBuffer
}

type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func freeAddr(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// startWorker runs the program on the shipped settings against the Redis.
func startWorker(t *testing.T, redisURL string, args ...string) *worker {
	t.Helper()
	addr := freeAddr(t)
	for _, name := range variables {
		t.Setenv(name, "")
	}
	for name, value := range map[string]string{
		"ENVIRONMENT": "sandbox", "REDIS_URL": redisURL, "WORKER_OPS_ADDR": addr, "COURIER_STEP": "50ms",
		"PARTITIONS": fmt.Sprint(testenv.Partitions), "WORKER_INSTANCE": "w1",
		"WEBHOOK_KEYS": "k:" + base64.StdEncoding.EncodeToString(make([]byte, 32)), "WEBHOOK_KEYS_FILE": "",
	} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{opsURL: "http://" + addr, logs: &logBuffer{}}
	done := make(chan struct{})
	var failure error
	go func() {
		defer close(done)
		failure = run(ctx, append([]string{"-config", settingsFile}, args...), io.Discard, w.logs)
	}()
	w.stop = func() error { cancel(); <-done; return failure }
	t.Cleanup(func() { _ = w.stop() })
	return w
}

// get reads a page of the ops listener; status 0 while nobody listens.
func (w *worker) get(path string) (status int, body string) {
	resp, err := http.Get(w.opsURL + path)
	if err != nil {
		return 0, ""
	}
	defer resp.Body.Close()
	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

func (w *worker) awaitReady(b *testenv.Env) {
	b.T.Helper()
	b.Await("/readyz answers 200", func() bool { status, _ := w.get("/readyz"); return status == 200 })
}

func TestRun_DeliversASandboxOrderAndTellsTheVendor(t *testing.T) {
	b := testenv.New(t)
	v := b.Vendor()
	var mu sync.Mutex
	var secret string
	var statuses []string
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if !webhook.Verify(secret, r.Header.Get(webhook.HeaderSignature), body) {
			t.Errorf("unsigned: %s", body)
		}
		for s := delivery.Searching; s <= delivery.Cancelled; s++ {
			if strings.Contains(string(body), `"status":"`+s.String()+`"`) {
				statuses = append(statuses, s.String())
			}
		}
	}))
	defer server.Close()
	_, issued, err := b.Ledger.SetWebhookURL(t.Context(), v.Account, server.URL)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	secret = issued
	mu.Unlock()

	w := startWorker(t, b.Redis.URL)
	w.awaitReady(b)
	b.AwaitStatus(v.Order("", time.Now()), delivery.Delivered)
	b.Await("the last webhook", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(statuses) == 5
	})
	if got := strings.Join(statuses, " "); got != "Assigned PickingUp PickedUp Delivering Delivered" {
		t.Error(got)
	}
	for _, metric := range []string{
		`worker_entries_total{result="moved",role="status"} 5`,
		`worker_webhook_attempts_total{outcome="delivered"} 5`,
		`worker_webhook_latency_seconds_count 5`,
		`worker_webhook_queue_events{state="healthy"} 0`,
		`worker_webhook_breakers_open{state="failing"} 0`,
		`worker_courier_reports_total{status="Delivered"} 1`,
		`worker_feed_lag{role="webhook"}`,
		`go_goroutines`,
	} {
		b.Await("metric "+metric, func() bool {
			_, metrics := w.get("/metrics")
			return strings.Contains(metrics, metric)
		})
	}
	if status, _ := w.get("/healthz"); status != 200 {
		t.Errorf("/healthz answers %d", status)
	}
	if err := w.stop(); err != nil {
		t.Errorf("the worker ended with %v\n%s", err, w.logs)
	}
}

func TestRun_WaitsForRedisAndOutlivesIt(t *testing.T) {
	b := testenv.New(t)
	v := b.Vendor()
	b.Redis.Stop()
	w := startWorker(t, b.Redis.URL, "-roles", "status")
	b.Await("/healthz answers while Redis is away", func() bool { status, _ := w.get("/healthz"); return status == 200 })
	if status, reason := w.get("/readyz"); status != 503 || !strings.Contains(reason, "Redis") {
		t.Errorf("/readyz answers %d %s", status, reason)
	}
	restart := func() {
		if err := b.Redis.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		b.Await("the ledger answers", func() bool { return b.Ledger.Ping(t.Context()) == nil })
		w.awaitReady(b)
	}
	restart()
	first := v.Order("", time.Now())
	b.Accept(first, time.Now())
	b.AwaitStatus(first, delivery.Assigned)

	b.Redis.Kill()
	b.Await("/readyz tells that Redis is away", func() bool { status, _ := w.get("/readyz"); return status == 503 })
	restart()
	second := v.Order("", time.Now())
	b.Accept(second, time.Now())
	b.AwaitStatus(second, delivery.Assigned)
	if err := w.stop(); err != nil {
		t.Errorf("the worker ended with %v\n%s", err, w.logs)
	}
}

func TestRun_StopsWhileItWaitsForRedis(t *testing.T) {
	w := startWorker(t, "redis://"+freeAddr(t))
	if err := w.stop(); err != nil {
		t.Error(err)
	}
}

func TestRun_RefusesWhatWaitingCannotMend(t *testing.T) {
	b := testenv.New(t)
	for _, c := range []struct {
		name  string
		args  []string
		env   map[string]string
		names string
	}{
		{"an unknown role", []string{"-roles", "panel"}, nil, "panel"},
		{"an unknown flag", []string{"-what"}, nil, "what"},
		{"a file that is not there", []string{"-config", "nowhere.yaml"}, nil, "nowhere.yaml"},
		{"no keys", nil, map[string]string{"WEBHOOK_KEYS": ""}, "WEBHOOK_KEYS"},
		{"a wrong log format", nil, map[string]string{"LOG_FORMAT": "xml"}, "xml"},
		{"another number of partitions", nil, map[string]string{"PARTITIONS": "8"}, "partitions"},
	} {
		for _, name := range variables {
			t.Setenv(name, "")
		}
		t.Setenv("ENVIRONMENT", "sandbox")
		t.Setenv("REDIS_URL", b.Redis.URL)
		t.Setenv("WORKER_OPS_ADDR", freeAddr(t))
		t.Setenv("WEBHOOK_KEYS", "k:"+base64.StdEncoding.EncodeToString(make([]byte, 32)))
		for name, value := range c.env {
			t.Setenv(name, value)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		err := run(ctx, append([]string{"-config", settingsFile}, c.args...), io.Discard, io.Discard)
		cancel()
		if err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}
