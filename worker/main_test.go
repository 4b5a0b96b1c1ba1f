package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/internal/webhook"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// nobody is where nothing listens.
const nobody = "127.0.0.1:1"

// setEnvironment is what the shipped settings need of the environment, and more;
// variables that are not named are unset.
func setEnvironment(t *testing.T, more map[string]string) {
	t.Helper()
	env := map[string]string{
		"ENVIRONMENT": "sandbox", "REDIS_URL": "redis://worker:geheim@" + nobody, "WORKER_OPS_ADDR": "127.0.0.1:0",
		"WEBHOOK_KEYS": "k:" + base64.StdEncoding.EncodeToString(make([]byte, 32)),
	}

	for name, value := range more {
		env[name] = value
	}

	for _, name := range append(variables, "WEBHOOK_KEYS", "WEBHOOK_KEYS_FILE") {
		t.Setenv(name, env[name])
	}
}

// worker is the program running in this process.
type worker struct {
	t    *testing.T
	stop func() error
	mu   sync.Mutex
	logs strings.Builder
}

func (w *worker) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.logs.Write(p)
}

// startWorker runs the program on the shipped settings.
func startWorker(t *testing.T, redisURL, courier string) *worker {
	t.Helper()
	setEnvironment(t, map[string]string{"REDIS_URL": redisURL, "COURIER": courier, "COURIER_STEP": "50ms",
		"PARTITIONS": fmt.Sprint(testenv.Partitions), "WORKER_INSTANCE": "w1"})
	ctx, cancel := context.WithCancel(context.Background())
	w := &worker{t: t}
	done := make(chan struct{})
	var failure error
	go func() {
		defer close(done)
		failure = run(ctx, []string{"-config", settingsFile}, io.Discard, w)
	}()

	w.stop = func() error { cancel(); <-done; return failure }
	t.Cleanup(func() { _ = w.stop() })

	return w
}

var opsAddr = regexp.MustCompile(`listening for operators.* address=(\S+)`)

// addr is where /metrics, /healthz and /readyz are.
func (w *worker) addr() (addr string) {
	w.t.Helper()
	testserver.Await(w.t, "the worker logs its address", func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		found := opsAddr.FindStringSubmatch(w.logs.String())
		if found != nil {
			addr = found[1]
		}
		return found != nil
	})

	return addr
}

// get reads a page of the ops listener.
func (w *worker) get(path string) (status int, body string) {
	w.t.Helper()
	resp, err := http.Get("http://" + w.addr() + path)
	if err != nil {
		w.t.Fatal(err)
	}
	defer resp.Body.Close()

	raw, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(raw)
}

func (w *worker) awaitReady(status int) {
	w.t.Helper()
	testserver.Await(w.t, fmt.Sprintf("/readyz answers %d", status), func() bool { got, _ := w.get("/readyz"); return got == status })
}

// end holds the end to be in order.
func (w *worker) end() {
	w.t.Helper()
	if err := w.stop(); err != nil {
		w.t.Errorf("the worker ended with %v\n%s", err, w.logs.String())
	}
}

func TestRun_DeliversASandboxOrderAndTellsTheVendor(t *testing.T) {
	e := testenv.New(t)
	v := e.Vendor()
	var mu sync.Mutex
	var secret string
	var statuses []string
	status := regexp.MustCompile(`"status":"(\w+)"`)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if r.Header.Get(webhook.HeaderSignature) != webhook.Sign(secret, body) {
			t.Errorf("unsigned: %s", body)
		}
		statuses = append(statuses, status.FindStringSubmatch(string(body))[1])
	}))
	defer server.Close()
	_, issued, err := e.Ledger.Webhooks.SetURL(t.Context(), v.Account, server.URL)
	if err != nil {
		t.Fatal(err)
	}

	mu.Lock()
	secret = issued
	mu.Unlock()

	w := startWorker(t, e.ConfigFor(stack.WorkerUser).URL, "auto")
	w.awaitReady(200)
	e.AwaitStatus(v.Order("", time.Now()), delivery.Delivered)
	e.Await("the last webhook", func() bool {
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
		fmt.Sprintf("worker_partitions_owned %d\n", testenv.Partitions),
		fmt.Sprintf("worker_partitions_taken_total %d\n", testenv.Partitions),
		`go_goroutines`,
	} {
		e.Await("metric "+metric, func() bool {
			_, metrics := w.get("/metrics")
			return strings.Contains(metrics, metric)
		})
	}

	if status, _ := w.get("/healthz"); status != 200 {
		t.Errorf("/healthz answers %d", status)
	}

	w.end()
	w.wantPlaying(true)
}

// wantPlaying wants one loud line, or none, about the courier that is played.
func (w *worker) wantPlaying(plays bool) {
	w.t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	loud := strings.Count(w.logs.String(), `level=WARN msg="THE SANDBOX'S COURIER PLAYS`)
	if loud == 1 != plays || loud > 1 {
		w.t.Errorf("the worker says %d times that a courier is played\n%s", loud, &w.logs)
	}
}

func TestRun_WaitsForRedisAndOutlivesIt(t *testing.T) {
	e := testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{}))
	v := e.Vendor()
	e.Server.Stop()
	w := startWorker(t, e.Server.URL, "manual")
	if status, _ := w.get("/healthz"); status != 200 {
		t.Errorf("/healthz answers %d", status)
	}
	if status, reason := w.get("/readyz"); status != 503 || !strings.Contains(reason, "Redis") {
		t.Errorf("/readyz answers %d %s", status, reason)
	}

	acceptedAfterStart := func() *delivery.Order {
		t.Helper()
		if err := e.Server.Start(t.Context()); err != nil {
			t.Fatal(err)
		}

		e.Await("the ledger answers", func() bool { return e.Ledger.Ping(t.Context()) == nil })
		w.awaitReady(200)
		o := v.Order("", time.Now())
		e.Accept(o, time.Now())

		return e.AwaitStatus(o, delivery.Assigned)
	}

	first := acceptedAfterStart()
	e.Server.Kill()
	w.awaitReady(503)
	acceptedAfterStart()
	e.Reach(first, delivery.Delivered, time.Now())
	e.AwaitStatus(first, delivery.Delivered)
	w.end()
	w.wantPlaying(false)
}

func TestRun_StopsWhileItWaitsForRedis(t *testing.T) {
	w := startWorker(t, "redis://"+nobody, "auto")
	w.awaitReady(503)
	w.end()
}

func TestRun_RefusesWhatWaitingCannotMend(t *testing.T) {
	e := testenv.New(t)
	for _, c := range []struct {
		name  string
		args  []string
		env   map[string]string
		names string
	}{
		{"an unknown flag", []string{"-what"}, nil, "what"},
		{"a stray word", []string{"status"}, nil, `"status" is no flag`},
		{"a file that is not there", []string{"-config", "nowhere.yaml"}, nil, "nowhere.yaml"},
		{"no keys", nil, map[string]string{"WEBHOOK_KEYS": ""}, "WEBHOOK_KEYS"},
		{"a wrong log format", nil, map[string]string{"LOG_FORMAT": "xml"}, "xml"},
		{"another number of partitions", nil, map[string]string{"PARTITIONS": "8", "REDIS_URL": e.ConfigFor(stack.WorkerUser).URL}, "partitions"},
	} {
		setEnvironment(t, c.env)
		ctx, cancel := context.WithTimeout(t.Context(), testserver.Timeout)
		defer cancel()
		err := run(ctx, append([]string{"-config", settingsFile}, c.args...), io.Discard, io.Discard)
		if err == nil || !strings.Contains(err.Error(), c.names) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

func TestHealth_IsReadyzOfTheOneThatRuns(t *testing.T) {
	e := testenv.New(t)
	setEnvironment(t, map[string]string{"WORKER_OPS_ADDR": nobody})
	health := func() error {
		return run(t.Context(), []string{"-health", "-config", settingsFile}, io.Discard, io.Discard)
	}
	if health() == nil {
		t.Error("nobody listens, and the worker is healthy")
	}

	w := startWorker(t, e.ConfigFor(stack.WorkerUser).URL, "auto")
	w.awaitReady(200)
	t.Setenv("WORKER_OPS_ADDR", w.addr())
	testserver.Await(t, "healthy", func() bool { return health() == nil })
}
