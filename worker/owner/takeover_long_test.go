//go:build long

package owner

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// How long it takes until partitions have another owner, and until all are spread evenly.
func TestTakeover_IsSoon(t *testing.T) {
	e := newEnv(t)
	e.Do("FLUSHDB") // the number of partitions is fixed at a ledger's first start
	open := func(user string, url func(*ledger.Config)) *ledger.Ledger {
		config := e.ConfigFor(user)
		config.Partitions = 16
		config.Timeout = 0 // the real ones: how soon is the subject
		url(&config)
		l, err := ledger.Open(t.Context(), config)
		testenv.Must(t, err)
		t.Cleanup(func() { _ = l.Close() })

		return l
	}

	direct := open(stack.OperatorUser, func(*ledger.Config) {})
	p := newProxy(t, e.Env, stack.WorkerUser)
	proxied := open(stack.WorkerUser, func(c *ledger.Config) { c.URL = p.URL })
	owned := func() map[string]int {
		tokens, err := direct.Ownership.Tokens(t.Context())
		testenv.Must(t, err)
		owned := make(map[string]int)
		for _, stored := range tokens {
			token, err := stored.Token()
			testenv.Must(t, err)
			name, _, _ := strings.Cut(token.Owner, " ")
			owned[name]++
		}

		return owned
	}

	var changed time.Time
	soon := func(what string, limit time.Duration, condition func() bool) {
		t.Helper()
		e.Await(what, condition)
		took := time.Since(changed)
		t.Logf("%s after %.2f s", what, took.Seconds())
		if took > limit {
			t.Errorf("%s after %s, want at most %s", what, took, limit)
		}
	}

	even := func(names ...string) {
		t.Helper()
		soon("evenly with "+strings.Join(names, ", "), 10*time.Second, func() bool {
			owned, sum := owned(), 0
			for _, name := range names {
				if n := owned[name]; n < 16/len(names) || n > (16+len(names)-1)/len(names) {
					return false
				}
				sum += owned[name]
			}
			return sum == 16
		})
	}

	start := func(l *ledger.Ledger, name string) (r *Role, stop func()) {
		changed, r = time.Now(), e.roleOf(l, name)
		r.endTimeout = endTimeout // the real one, too
		return r, e.Start(r.Run)
	}

	start(direct, "first")
	even("first")
	start(proxied, "second")
	even("first", "second")
	third, stop := start(direct, "third")
	even("first", "second", "third")
	changed = time.Now()
	p.kill()
	soon("nothing is the killed worker's", 5*time.Second, func() bool { return owned()["second"] == 0 })
	even("first", "third")
	// One that it is told of after it was stopped would end with its lease.
	e.Await("the third knows all that it has", func() bool { return len(third.Owned()) == owned()["third"] })
	changed = time.Now()
	go stop()
	soon("all is handed over", 2*time.Second, func() bool { return owned()["first"] == 16 })
}

// A process that stands still for 10 s, its connections open, writes nothing when it goes on, and sends
// nothing of what it had.
func TestTakeover_AStoppedProcessSendsNothingWhenItGoesOn(t *testing.T) {
	stopped := make(chan struct{})
	release := sync.OnceFunc(func() { close(stopped) })
	defer release()
	var arrived atomic.Int64
	h := newHooks(t, func(http.ResponseWriter, request) {
		if arrived.Add(1) <= 8 { // in flight when it stops
			<-stopped
		}
	})

	testenv.Must(t, h.Ledger.Webhooks.SetLimits(t.Context(), h.vendor.Account, partitions.EndpointLimits{InFlight: 8}))
	addr := stack.FreeAddr()
	config := h.ConfigFor(stack.WorkerUser)
	worker := &stack.Program{Name: "worker", Path: filepath.Join(testserver.Programs(t), "worker"), Args: []string{"-config", "../../configs/worker.yaml"},
		Log: filepath.Join(t.TempDir(), "log"), Ready: "http://" + addr + "/readyz", Env: []string{"ENVIRONMENT=sandbox", "WORKER_INSTANCE=stopped",
			"REDIS_URL=" + config.URL, fmt.Sprintf("PARTITIONS=%d", config.Partitions), "WORKER_OPS_ADDR=" + addr, "COURIER=manual",
			"WEBHOOK_KEYS=k:" + base64.StdEncoding.EncodeToString(config.Secrets.Keys["k"])}}

	testenv.Must(t, worker.Start(t.Context()))
	t.Cleanup(worker.Kill)
	h.awaitOwners(testenv.Partitions, "stopped")
	events := h.cancelAll(40)
	h.await(8)
	testenv.Must(t, syscall.Kill(worker.PID(), syscall.SIGSTOP))
	goesOn := time.After(10 * time.Second)
	h.start("w2")
	h.awaitOwners(testenv.Partitions, "w2")
	release() // by now it stands: a signal takes effect later than it is sent
	h.awaitAll(events)
	h.awaitAttempts(40)
	<-goesOn
	testenv.Must(t, syscall.Kill(worker.PID(), syscall.SIGCONT))
	h.awaitOwners(testenv.Partitions/2, "stopped", "w2") // it has seen that it was replaced
	h.awaitTally(tally{delivered: 40})
	if sent, recorded := len(h.received()), len(h.attempts()); sent != 48 || recorded != 40 {
		t.Errorf("%d sent, want 40 and again the 8 that were in flight; %d recorded", sent, recorded)
	}
}
