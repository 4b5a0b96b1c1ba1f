//go:build long

package export

import (
	"net/http"
	"runtime"
	"testing"
	"time"

	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive/archiveenv"
)

func TestExport_LosesNothingWhileClickHouseIsDown(t *testing.T) {
	t.Parallel()

	engine := testserver.DedicatedClickHouse(t)
	s := &env{archiveenv.NewOn(testenv.New(t), engine)}
	x, _ := s.export("x1")
	s.Vendor.Order("", time.Now())
	s.AwaitExported()
	engine.Kill(t)
	s.Vendor.Order("", time.Now())
	s.awaitFailures(x, 3)
	for range 30 {
		s.Vendor.Order("", time.Now())
	}

	if stats := s.Stats(); stats.Pending[ledger.RoleExport] == 0 || stats.Unread[ledger.RoleExport] == 0 || stats.DeadLetters != 0 {
		t.Errorf("%+v; want few entries pending, the rest unread, none given up", stats)
	}

	engine.Start(t)
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "32")
	s.Want("events", "count() FROM "+s.Database+".order_events", "32")
}

// A ClickHouse that takes the rows and never answers is given up after the read
// time-out.
func TestExport_DoesNotWaitForEver(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	answerWith, open := s.proxy("&read_timeout=1s")
	done := make(chan struct{})
	t.Cleanup(func() { close(done) })
	answerWith(func(http.ResponseWriter, func()) { <-done })
	s.Vendor.Order("", time.Now())
	x, _ := s.export("x1")
	s.awaitFailures(x, 2)
	open()
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "1")
}

// While ClickHouse is unavailable, what waits, waits in the streams: an exporter's
// memory does not grow with it.
func TestExport_MemoryIsBoundedWhileClickHouseIsUnavailable(t *testing.T) {
	s := newEnv(t)
	answerWith, open := s.proxy("")
	answerWith(refuse(500, "252", "Code: 252. DB::Exception: Too many parts (3000). (TOO_MANY_PARTS)\n"))
	const orders = 500
	for range orders {
		s.Vendor.Order("", time.Now())
	}

	// Each event a hundred times over.
	s.EachKey("e", "for _, x in ipairs(redis.call('XRANGE', k, '-', '+')) do for i = 1, 99 do redis.call('XADD', k, '*', x[2][1], x[2][2]) end end")
	runtime.GC()
	var before, m runtime.MemStats
	runtime.ReadMemStats(&before)
	x, _ := s.export("x1")
	peak := uint64(0)
	s.Await("turns have failed", func() bool {
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
		return testenv.Value(t, x.metrics.turns.WithLabelValues(resultFailed)) >= 5
	})

	if grown := (int64(peak) - int64(before.HeapAlloc)) >> 20; grown > 100 {
		t.Errorf("the heap grew by %d MB", grown)
	}

	open()
	s.AwaitExported()
	s.Want("orders", "count(), (SELECT count() FROM "+s.Database+".order_events) FROM "+s.Database+".orders", "500\t500")
}
