package export

import (
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
)

// cut shortens a record to so many bytes.
func (s *exporting) cut(kind string, digest [delivery.OrderDigestSize]byte, bytes int) {
	s.T.Helper()
	s.Record(kind, digest, fmt.Sprintf("redis.call('SET', k, string.sub(redis.call('GET', k), 1, %d))", bytes))
}

// handedOut makes every unread entry one that this consumer was handed out so
// often and has not settled, as after a long absence of ClickHouse.
func (s *exporting) handedOut(consumer string, times int) {
	s.T.Helper()
	s.EachKey("e", fmt.Sprintf("redis.call('XREADGROUP', 'GROUP', 'export', '%[1]s', 'COUNT', 100000, 'STREAMS', k, '>') for _, p in ipairs(redis.call('XPENDING', k, 'export', '-', '+', 100000)) do redis.call('XCLAIM', k, 'export', '%[1]s', 0, p[1], 'RETRYCOUNT', %[2]d, 'JUSTID') end",
		consumer, times))
}

// After hours without ClickHouse everything pending has been handed out many
// times. It is still exported in batches.
func TestExport_CatchesUpInBatches(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	for range 300 {
		s.Vendor.Order("", time.Now())
	}
	s.handedOut("x1", 30)
	e, _ := s.export("x1")
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "300")
	if n := testenv.Value(t, e.metrics.turns.WithLabelValues(resultStored)); n > 20 {
		t.Errorf("300 entries took %v inserts", n)
	}
}

// An order that nobody can read holds up only itself.
func TestExport_UnreadableOrderHoldsUpNobody(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	bad := s.Vendor.Order("", time.Now())
	for range 20 {
		s.Vendor.Order("", time.Now())
	}
	s.cut("o", bad.ID.Digest(), 150)
	began := time.Now()
	s.export("x1")
	s.Await("the others", func() bool { return s.Ask("count() FROM "+s.Database+".orders") == "20\n" })
	s.Vendor.Order("", time.Now())
	s.Await("the next", func() bool { return s.Ask("count() FROM "+s.Database+".orders") == "21\n" })
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the others were held up for %s", took)
	}
	s.Await("nothing but the bad one is unsettled", func() bool {
		stats := s.Stats()
		return stats.Unread[ledger.RoleExport] == 0 && stats.Pending[ledger.RoleExport]+stats.DeadLetters == 1
	})
}

// Such an order ends among the dead letters, where it is counted.
func TestExport_UnreadableOrderIsBuried(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	bad := s.Vendor.Order("", time.Now())
	s.Vendor.Order("", time.Now())
	s.cut("o", bad.ID.Digest(), 150)
	s.handedOut("x1", 24)
	s.export("x1")
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "1")
	if n := s.Stats().DeadLetters; n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// A store's name is no reason to keep its orders' money out of the reports.
func TestExport_UnreadableStoreHoldsUpNoOrder(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	s.Vendor.Order("", time.Now())
	s.NewVendor().Order("", time.Now())
	s.cut("s", delivery.OrderDigest(s.Vendor.Account, s.Vendor.Store.ExternalID), 60)
	s.export("x1")
	s.Await("both orders", func() bool { return s.Ask("count() FROM "+s.Database+".orders") == "2\n" })
	s.Want("names", "groupArray(store_name) FROM (SELECT store_name FROM "+s.Database+".orders ORDER BY 1)", "['','Kadıköy Şube']")
}

func TestExport_MissingStoreLeavesItsNameEmpty(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	s.Vendor.Order("", time.Now())
	s.EachRecord("s", "redis.call('DEL', k)")
	s.export("x1")
	s.AwaitExported()
	s.Want("the order", "count(), any(store_name), sum(order_amount) FROM "+s.Database+".orders", "1\t\t123.45")
}

// An entry of the stream that nobody can read.
func TestExport_UnreadableEntryIsBuried(t *testing.T) {
	t.Parallel()
	s := newScene(t, testserver.SharedClickHouse(t))
	s.EachKey("e", "redis.call('XADD', k, '*', 'e', 'nonsense') redis.call('XADD', k, '*', 'x', 'y')")
	s.EachKey("v", "redis.call('XADD', k, '*', 'a', 'short') redis.call('XADD', k, '*', 'e', '')")
	s.Vendor.Order("", time.Now())
	s.export("x1")
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "1")
	if n := s.Stats().DeadLetters; n != 16 {
		t.Errorf("%d dead letters, want 16", n)
	}
}
