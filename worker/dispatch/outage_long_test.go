//go:build long

package dispatch

import (
	"net/http"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

func TestRole_RecordsAnAttemptAfterRedisWasAway(t *testing.T) {
	t.Parallel()
	var once sync.Once
	killed := make(chan struct{})
	env := testenv.NewOn(t, testserver.DedicatedRedis(t, stack.RedisOptions{}))
	e := envOf(env, nil, func(http.ResponseWriter, request) {
		once.Do(func() { env.Server.Kill(); close(killed) })
	})
	e.startRole("w1")
	e.Move(e.vendor.Order("", e.now()), delivery.Assigned, e.now())
	<-killed
	time.Sleep(3 * time.Second) // an outage longer than the client's own retries
	if err := e.Server.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	e.Await("the ledger answers", func() bool { return e.Ledger.Ping(t.Context()) == nil })
	if r := e.awaitAttempts(1)[0]; r.State != "delivered" || r.Attempt != 1 {
		t.Errorf("%+v", r)
	}
	e.moved("", delivery.Assigned) // the role goes on
	if n := len(e.await(2)); n != 2 {
		t.Errorf("%d requests", n)
	}
}

// All the while its endpoint is probed, at least once a minute.
func TestOutage_IsProbedAllTheWhile(t *testing.T) {
	s := newOutage(t, outageBegan)
	s.outlive(s.nextLook)
	probes := 0
	for _, a := range s.attempts() {
		probes += a.Probes
	}
	if probes < 24*60 {
		t.Errorf("%d probes in a day", probes)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := len(nominal) + 1; i < len(s.sent); i++ {
		if pause := s.sent[i].Sub(s.sent[i-1]); pause > time.Minute {
			t.Errorf("not probed for %s", pause)
		}
	}
}
