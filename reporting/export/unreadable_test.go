package export

import (
	"fmt"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
)

// cutOff shortens an order's record k.
const cutOff = "redis.call('SET', k, string.sub(redis.call('GET', k), 1, 150))"

// handedOut makes every unread entry one that this consumer was handed out so
// often and has not settled, as after a long absence of ClickHouse.
func (s *env) handedOut(consumer string, times int) {
	s.T.Helper()
	s.EachKey("e", fmt.Sprintf("redis.call('XREADGROUP', 'GROUP', 'export', '%[1]s', 'COUNT', 100000, 'STREAMS', k, '>') for _, p in ipairs(redis.call('XPENDING', k, 'export', '-', '+', 100000)) do redis.call('XCLAIM', k, 'export', '%[1]s', 0, p[1], 'RETRYCOUNT', %[2]d, 'JUSTID') end",
		consumer, times))
}

// After hours without ClickHouse everything pending has been handed out many
// times. It is still exported in batches.
func TestExport_CatchesUpInBatches(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
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

	s := newEnv(t)
	bad := s.Vendor.Order("", time.Now())
	for range 20 {
		s.Vendor.Order("", time.Now())
	}

	s.Record("o", bad.ID.Digest(), cutOff)
	s.export("x1")
	s.Await("the others", func() bool { return s.Ask("count() FROM "+s.Database+".orders") == "20\n" })
	s.Vendor.Order("", time.Now())
	s.Await("the next", func() bool { return s.Ask("count() FROM "+s.Database+".orders") == "21\n" })
	s.Await("nothing but the bad one is unsettled", func() bool {
		stats := s.Stats()
		return stats.Unread[ledger.RoleExport] == 0 && stats.Pending[ledger.RoleExport]+stats.DeadLetters == 1
	})
}

// Such an order ends among the dead letters, where it is counted.
func TestExport_UnreadableOrderIsDeadLettered(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	bad := s.Vendor.Order("", time.Now())
	s.Vendor.Order("", time.Now())
	s.Record("o", bad.ID.Digest(), cutOff)
	s.handedOut("x1", 24)
	s.export("x1")
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "1")
	if n := s.Stats().DeadLetters; n != 1 {
		t.Errorf("%d dead letters", n)
	}
}

// A store's name is no reason to keep its orders' money out of the reports.
func TestExport_UnreadableStoreLeavesItsNameEmpty(t *testing.T) {
	t.Parallel()

	for name, spoil := range map[string]string{"cut off": "redis.call('SET', k, string.sub(redis.call('GET', k), 1, 60))", "missing": "redis.call('DEL', k)"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()

			s := newEnv(t)
			s.Vendor.Order("", time.Now())
			s.NewVendor().Order("", time.Now())
			s.Record("s", delivery.OrderDigest(s.Vendor.Account, s.Vendor.Store.ExternalID), spoil)
			s.export("x1")
			s.AwaitExported()
			s.Want("orders", "groupArray(store_name), sum(order_amount) FROM (SELECT store_name, order_amount FROM "+s.Database+".orders ORDER BY 1)",
				"['','Kadıköy Şube']\t246.9")
		})
	}
}

// An entry of the stream that nobody can read.
func TestExport_UnreadableEntryIsDeadLettered(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
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
