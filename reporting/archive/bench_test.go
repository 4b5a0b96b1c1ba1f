package archive

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

// How many rows a second go in, acknowledged and stored, from rows in Go: orders
// alone, and as the exporter sends them, with as many events. The engine and
// this process share the machine.
func BenchmarkInsert(b *testing.B) {
	for _, writers := range []int{1, 2} {
		for _, withEvents := range []bool{false, true} {
			b.Run(fmt.Sprintf("writers=%d/events=%t", writers, withEvents), func(b *testing.B) {
				e := testserver.DedicatedClickHouse(b)
				a := open(b, e, e.NewDatabase(b))
				_, err := a.Migrate(b.Context())
				noError(b, err)
				benchmarkInsert(b, a, writers, withEvents)
			})
		}
	}
}

func benchmarkInsert(b *testing.B, a *Archive, writers int, withEvents bool) {
	var sent, batches atomic.Int64
	var failed atomic.Pointer[error]
	var running sync.WaitGroup
	prepared := make([]*Batch, writers)
	for w := range prepared {
		prepared[w] = manyOrders(w, withEvents)
	}
	b.ResetTimer()
	for _, batch := range prepared {
		running.Go(func() {
			for batches.Add(1) <= int64(b.N) {
				anew(batch)
				if err := a.Insert(b.Context(), batch); err != nil {
					failed.Store(&err)
					return
				}
				sent.Add(int64(batch.Rows()))
			}
		})
	}
	running.Wait()
	if err := failed.Load(); err != nil {
		b.Fatal(*err)
	}
	b.ReportMetric(float64(sent.Load())/b.Elapsed().Seconds(), "rows/s")
}

// manyOrders is a batch of 10,000 orders of 200 accounts.
func manyOrders(seed int, withEvents bool) *Batch {
	batch := &Batch{}
	for i := range rowsAtOnce {
		o := newOrder(account(i%200), seed*rowsAtOnce+i, noon.Add(time.Duration(i)*time.Second), toDelivered...)
		batch.Orders = append(batch.Orders, OrderOf(o, kebap))
		if withEvents {
			events := EventsOf(o)
			batch.Events = append(batch.Events, events[i%len(events)])
		}
	}
	return batch
}

// anew makes other orders of a batch.
func anew(batch *Batch) {
	for i := range batch.Orders {
		o := &batch.Orders[i]
		digest := delivery.OrderDigest(o.Account, o.ID.String())
		o.ID = delivery.MakeOrderID(0, delivery.DayOf(o.CreatedAt), digest)
		if i < len(batch.Events) {
			batch.Events[i].Order = o.ID
		}
	}
}

// The client's own share: columns and token, no ClickHouse.
func BenchmarkColumns(b *testing.B) {
	rows := manyOrders(0, false).Orders
	b.ReportAllocs()
	for b.Loop() {
		_ = orders.token(rows)
		for _, c := range orders.columns {
			_ = c.values(rows)
		}
	}
	b.ReportMetric(float64(b.N)*rowsAtOnce/b.Elapsed().Seconds(), "rows/s")
}

// Reading a day for reconciliation.
func BenchmarkStored(b *testing.B) {
	e := testserver.DedicatedClickHouse(b)
	a := open(b, e, e.NewDatabase(b))
	_, err := a.Migrate(b.Context())
	noError(b, err)
	batch := &Batch{}
	for i := range 20 * rowsAtOnce {
		o := newOrder(account(i%200), i, noon, toDelivered[:i%6]...)
		batch.Orders = append(batch.Orders, OrderOf(o, kebap))
		batch.Events = append(batch.Events, EventsOf(o)...)
	}
	noError(b, a.Insert(b.Context(), batch))
	n := 0
	for b.Loop() {
		for _, err := range a.Stored(b.Context(), Selection{From: noon, To: noon}) {
			noError(b, err)
			n++
		}
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "orders/s")
}
