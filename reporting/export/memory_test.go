package export

import (
	"runtime"
	"testing"
	"time"

	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// While ClickHouse is away, what waits, waits in the streams: an exporter's
// memory does not grow with it.
func TestExport_MemoryIsBoundedWhileClickHouseIsAway(t *testing.T) {
	s := newScene(t, testserver.SharedClickHouse(t))
	d := newDoor(t, s, "")
	d.answer(refuse(500, "252", "Code: 252. DB::Exception: Too many parts (3000). (TOO_MANY_PARTS)\n"))
	const orders, copies = 500, 100
	for range orders {
		s.Vendor.Order("", time.Now())
	}
	// Each event a hundred times over.
	s.EachKey("e", "for _, x in ipairs(redis.call('XRANGE', k, '-', '+')) do for i = 1, 99 do redis.call('XADD', k, '*', x[2][1], x[2][2]) end end")
	runtime.GC()
	var before, m runtime.MemStats
	runtime.ReadMemStats(&before)
	e, _ := s.export("x1")
	peak := uint64(0)
	for began := time.Now(); time.Since(began) < 4*time.Second; time.Sleep(50 * time.Millisecond) {
		runtime.ReadMemStats(&m)
		peak = max(peak, m.HeapAlloc)
	}
	if n := testenv.Value(t, e.metrics.turns.WithLabelValues(resultFailed)); n < 2 {
		t.Errorf("%v turns have failed", n)
	}
	grown := (int64(peak) - int64(before.HeapAlloc)) >> 20
	t.Logf("the heap grew by %d MB, %d inserts tried", grown, d.inserts.Load())
	if grown > 100 {
		t.Errorf("the heap grew by %d MB", grown)
	}
	d.open()
	began := time.Now()
	s.AwaitExported()
	t.Logf("%d entries exported in %s", orders*copies, time.Since(began))
	s.Want("orders", "count(), (SELECT count() FROM "+s.Database+".order_events) FROM "+s.Database+".orders", "500\t500")
}
