package systemtest

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/receiver"
)

// binaries are built once for all tests.
var binaries string

func TestMain(m *testing.M) {
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "systemtest-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := stack.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries = dir
	// Most tests wait for the clock most of the time, so more of them run at
	// once than there are processors.
	flag.Parse()
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code := m.Run()
	if undocumented.tell() && code == 0 {
		code = 1
	}
	if shared.stack != nil {
		shared.stack.Stop()
		os.RemoveAll(shared.dir)
	}
	return code
}

// start brings up a system of the test's own.
func start(t *testing.T, o stack.Options) *stack.Stack {
	t.Helper()
	if o.DataDir == "" {
		o.DataDir = t.TempDir()
	}
	o.BinDir = binaries
	o.Out = echo{t}
	s, err := stack.Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Stop)
	t.Cleanup(func() { nothingDenied(t, s) })
	return s
}

// nothingDenied tells whether any program has tried what its user of Redis may
// not do (configs/redis-users.acl): that needs no luck in the test to show.
func nothingDenied(t *testing.T, s *stack.Stack) {
	t.Helper()
	if s.Redis == nil {
		return
	}
	// The test's own context has ended by now.
	log, err := s.Redis.Command(context.WithoutCancel(t.Context()), "ACL", "LOG")
	if err != nil {
		return // a test may have left it stopped
	}
	if log != "" {
		t.Errorf("Redis has refused, to programs that need it:\n%s", log)
	}
}

// echo shows the programs' errors in the test's log. A stack may outlive its
// test by the length of its own shutdown, so it is quiet once the test is over.
type echo struct{ t *testing.T }

func (e echo) Write(b []byte) (int, error) {
	if e.t.Context().Err() == nil {
		e.t.Logf("%s", strings.TrimRight(string(b), "\n"))
	}
	return len(b), nil
}

// shared is one system for the tests that disturb nobody: each works with
// accounts of its own. Its couriers move only when the fleet API says so.
var shared struct {
	once  sync.Once
	stack *stack.Stack
	dir   string
	err   error
}

func sharedStack(t *testing.T) *stack.Stack {
	t.Helper()
	shared.once.Do(func() {
		if shared.dir, shared.err = os.MkdirTemp("", "systemtest-data-"); shared.err != nil {
			return
		}
		shared.stack, shared.err = stack.Start(context.Background(), stack.Options{
			DataDir: shared.dir, BinDir: binaries, Courier: "manual", Out: os.Stderr,
		})
	})
	if shared.err != nil {
		t.Fatal(shared.err)
	}
	return shared.stack
}

// house is a system seen from all three sides.
type house struct {
	*stack.Stack
	admin *client.Client
	fleet *client.Client
}

func newHouse(t *testing.T, s *stack.Stack) *house {
	t.Helper()
	anyone := client.New("", 64)
	anyone.HTTP.Transport = judged{anyone.HTTP.Transport}
	h := &house{Stack: s, admin: anyone.As(s.Demo.OpsURL+"/api/admin/v1", s.Demo.AdminKey)}
	var err error
	h.fleet, err = anyone.As(s.Demo.OpsURL+"/api/fleet/v1", "").Login(t.Context(), "/token", s.Demo.Fleet.ClientID, s.Demo.Fleet.ClientSecret)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// vendor is an account with one Active store.
type vendor struct {
	*client.Client
	accountID, clientID, clientSecret string
	store                             string
	count                             atomic.Int64
}

// raised are limits that no test reaches.
var raised = map[string]any{
	"orders":      both(window(100000, 60), window(100000, 10)),
	"orderStatus": both(window(100000, 60), nil),
	"cancel":      both(window(100000, 60), nil),
	"stores":      both(window(100000, 60), window(100000, 10)),
}

func both(sustained, burst map[string]int) map[string]any {
	limit := map[string]any{"sustained": sustained}
	if burst != nil {
		limit["burst"] = burst
	}
	return limit
}

func window(count, seconds int) map[string]int {
	return map[string]int{"count": count, "seconds": seconds}
}

// vendor creates an account (limits nil: the spec's) and takes its store to
// Active by hand.
func (h *house) vendor(t *testing.T, limits any) *vendor {
	t.Helper()
	account := map[string]any{"name": t.Name()}
	if limits != nil {
		account["limits"] = limits
	}
	var created stack.DemoAccount
	must(t, h.admin.Call(t.Context(), http.MethodPost, "/accounts", account, &created))
	v := h.login(t, created)
	v.openStore(t, h)
	return v
}

func (h *house) login(t *testing.T, a stack.DemoAccount) *vendor {
	t.Helper()
	c, err := h.admin.As(h.Demo.BaseURL+"/api/vendor/v1", "").Login(t.Context(), "/token", a.ClientID, a.ClientSecret)
	must(t, err)
	return &vendor{Client: c, accountID: a.AccountID, clientID: a.ClientID, clientSecret: a.ClientSecret, store: "branch-1"}
}

func (v *vendor) openStore(t *testing.T, h *house) {
	t.Helper()
	var put struct{ Status string }
	must(t, v.Call(t.Context(), http.MethodPut, "/stores/"+v.store, storeBody(h.Demo.Fleet.FleetID), &put))
	if put.Status != "AwaitingFleetApproval" {
		t.Fatalf("store is %s after naming its fleet", put.Status)
	}
	must(t, h.fleet.Call(t.Context(), http.MethodPost, "/stores/"+v.accountID+"/"+v.store+"/confirm", nil, nil))
}

func storeBody(fleetID string) map[string]any {
	return map[string]any{
		"taxNumber": "1234567890", "name": "Moda Şubesi", "phone": "02165550011", "fleetId": fleetID,
		"address": map[string]any{"text": "Moda Caddesi No: 1, Kadıköy", "latitude": 40.9816, "longitude": 29.0258},
	}
}

// order is a valid body with a fresh external id; change is applied to it.
func (v *vendor) order(change func(map[string]any)) map[string]any {
	o := map[string]any{
		"externalStoreId": v.store,
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

// create makes one order and returns its id.
func (v *vendor) create(t *testing.T, change func(map[string]any)) string {
	t.Helper()
	var created struct{ OrderID string }
	must(t, v.Call(t.Context(), http.MethodPost, "/orders", v.order(change), &created))
	return created.OrderID
}

// listener is a webhook receiver in this process. Its secret comes with the
// registration of its URL, so it begins to answer only in serve.
type listener struct {
	net.Listener
	url string
}

func listen(t *testing.T) *listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return &listener{l, "http://" + l.Addr().String() + "/"}
}

func (l *listener) serve(t *testing.T, o receiver.Options) *receiver.Receiver {
	t.Helper()
	r, err := receiver.New(o)
	must(t, err)
	server := &http.Server{Handler: r}
	go func() { _ = server.Serve(l) }() // ends with the listener
	t.Cleanup(func() { server.Close() })
	return r
}

// register makes a receiver for a vendor's webhooks.
func (v *vendor) register(t *testing.T, o receiver.Options) *receiver.Receiver {
	t.Helper()
	l := listen(t)
	var set stack.Webhook
	must(t, v.Call(t.Context(), http.MethodPut, "/webhook", map[string]string{"url": l.url}, &set))
	o.Secrets = []string{set.Secret}
	return l.serve(t, o)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually waits for a condition that becomes true by somebody else's doing.
func eventually(t *testing.T, limit time.Duration, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(limit)
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("waited %v: %s", limit, what)
		case <-t.Context().Done():
			t.FailNow()
		case <-tick.C:
		}
	}
}
