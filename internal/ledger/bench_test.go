package ledger

import (
	"strconv"
	"sync/atomic"
	"testing"

	"vendorapi/internal/delivery"
)

// BenchmarkCreateOrder is the whole call: composing the record, one round trip,
// reading the reply. The server of the tests does not fsync.
func BenchmarkCreateOrder(b *testing.B) {
	l := openTest(b)
	s := newVendor(b, l)
	wide := plenty()
	wide.Orders.Sustained.Count = 1_000_000
	if _, err := l.UpdateAccount(b.Context(), s.account, func(a *delivery.Account) error { a.Limits = wide; return nil }); err != nil {
		b.Fatal(err)
	}
	var n atomic.Int64
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			id := "X-" + strconv.FormatInt(n.Add(1), 10)
			if _, _, err := s.CreateOrder(b.Context(), s.creation(id, id)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
