//go:build long

package reconcile

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/export"
)

// machine is a vendor's orders and everything that may happen to them.
type machine struct {
	*rapid.T
	s        *archiveenv.System
	proxy    *archiveenv.Proxy
	vendor   *testenv.Vendor
	day      time.Time // in the middle of three
	orders   []*expected
	rolled   map[delivery.OrderID]bool // set back and not repaired since
	restored bool                      // ever
	steps    int                       // ever, in all orders
}

func newMachine(rt *rapid.T, s *archiveenv.System, p *archiveenv.Proxy) *machine {
	day := rapid.SampledFrom([]time.Time{
		time.Date(2024, 2, 29, 0, 0, 0, 0, delivery.Istanbul), time.Date(2024, 1, 1, 0, 0, 0, 0, delivery.Istanbul),
		time.Date(2025, 3, 1, 0, 0, 0, 0, delivery.Istanbul), time.Date(2025, 10, 31, 0, 0, 0, 0, delivery.Istanbul),
	}).Draw(rt, "day")
	w := &machine{T: rt, s: s, proxy: p, vendor: s.NewVendor(), day: day, rolled: make(map[delivery.OrderID]bool)}
	w.must(s.Ledger.Fleets.Load(w.ctx()))
	w.clear()
	return w
}

// clear leaves nothing of an earlier machine in the streams.
func (w *machine) clear() {
	w.proxy.Guard(nil, nil)
	for kind, roles := range map[string]string{"e": "'status', 'webhook', 'export'", "v": "'export'", "u": "'status'"} {
		w.s.EachKey(kind, "redis.call('DEL', k) for _, r in ipairs({"+roles+"}) do redis.call('XGROUP', 'CREATE', k, r, '0', 'MKSTREAM') end")
	}
}

func (w *machine) act(do func()) func(*rapid.T) {
	return func(rt *rapid.T) {
		w.T = rt
		do()
	}
}

func (w *machine) ctx() context.Context { return w.s.T.Context() }

func (w *machine) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *machine) pick(label string, fits func(*expected) bool) *expected {
	var some []*expected
	for _, o := range w.orders {
		if !o.retired && fits(o) {
			some = append(some, o)
		}
	}

	if len(some) == 0 {
		return nil
	}

	return rapid.SampledFrom(some).Draw(w.T, label)
}

func (w *machine) create() {
	moments := []time.Duration{-24 * time.Hour, -time.Millisecond, 0, time.Millisecond, 12 * time.Hour, 24*time.Hour - time.Millisecond, 24 * time.Hour,
		48*time.Hour - time.Millisecond}
	at := w.day.Add(rapid.SampledFrom(moments).Draw(w.T, "at"))
	money := func(label string) delivery.Money {
		minor := rapid.SampledFrom([]int64{-1, 0, 1, 10, 12345, 100_000, delivery.MaxMoneyMinor}).Draw(w.T, label)
		if minor < 0 {
			return delivery.Money{}
		}
		return delivery.Money{Minor: minor, Set: true}
	}

	o := &expected{account: w.vendor.Account, created: at, saved: -1, amount: money("amount"), collection: money("collection"),
		payment: delivery.PaymentType(rapid.IntRange(0, 3).Draw(w.T, "payment"))}
	w.vendor.Edit = func(d *delivery.OrderDraft) {
		d.OrderAmount, d.Payment = o.amount, delivery.Payment{Type: o.payment, CollectionAmount: o.collection}
		o.external = d.ExternalOrderID
	}

	o.id = w.vendor.Order("", at).ID
	w.orders = append(w.orders, o)
}

func (w *machine) move() {
	o := w.pick("order", func(o *expected) bool { return !o.status().Terminal() })
	if o == nil {
		return
	}

	last := o.created
	if n := len(o.steps); n > 0 {
		last = o.steps[n-1].at
	}

	at := last.Add(rapid.SampledFrom([]time.Duration{-time.Hour, 0, time.Millisecond, 20 * time.Minute, 24 * time.Hour}).Draw(w.T, "later"))
	stored := w.s.Read(o.id)
	target := rapid.IntRange(int(delivery.Assigned), int(delivery.Delivered)+1).Draw(w.T, "target")
	changes := delivery.Decide(stored, o.moves(target, at), time.Now()).Changes
	if len(changes) == 0 {
		return
	}

	w.s.Change(o.id, changes...)
	w.steps += len(changes)
	written := w.s.Read(o.id).Changes
	for i, c := range changes {
		version := written[len(o.steps)].Version
		if got, want := int(delivery.Sequence(version)), len(o.steps)+2; got != want {
			w.Fatalf("change %d of order %s has sequence %d, want %d", i, o.id, got, want)
		}
		o.steps = append(o.steps, step{c.Status, c.At, c.Failure, c.Cancel, version})
	}
}

// reportLate has a courier report a delivery too late, of which the first counts.
func (w *machine) reportLate() {
	o := w.pick("order", func(o *expected) bool { return o.status() == delivery.Failed })
	if o == nil {
		return
	}

	at := o.steps[len(o.steps)-1].at.Add(time.Duration(1+len(o.late)) * time.Minute)
	w.s.Reach(&delivery.Order{ID: o.id}, delivery.Delivered, at)
	if !o.reported {
		o.late, o.reported = append(o.late, at), true
	}

	w.consumeUpdates()
}

func (w *machine) consumeUpdates() {
	if stats := w.s.Stats(); stats.Unread[ledger.RoleStatus]+stats.Pending[ledger.RoleStatus] > 0 {
		w.s.Decide()
	}
}

func (w *machine) tellWebhooks() { w.s.Send(nil) }

func (w *machine) exporter(name string) *export.Exporter {
	return export.New(w.s.Ledger, w.proxy.Archive, export.Settings{Batch: rapid.SampledFrom([]int{1, 3, 1000}).Draw(w.T, "batch"), Interval: 20 * time.Millisecond, ClaimAfter: time.Second},
		name, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
}

func (w *machine) name() string {
	return rapid.SampledFrom([]string{"x1", "x2", "x3"}).Draw(w.T, "name")
}

func (w *machine) export() {
	w.proxy.Guard(nil, nil)
	stop := w.s.Start(w.exporter(w.name()).Run)
	w.s.AwaitExported()
	stop()
}

// exportBadly runs an exporter for a moment, while ClickHouse refuses, or stores
// and does not say so.
func (w *machine) exportBadly() {
	stored := rapid.Bool().Draw(w.T, "stored")
	table := rapid.SampledFrom([]string{"INTO", "INTO orders ", "INTO order_events"}).Draw(w.T, "table")
	hinders := func(statement string) bool { return !strings.Contains(statement, table) }
	if stored {
		w.proxy.Guard(nil, hinders)
	} else {
		w.proxy.Guard(hinders, nil)
	}

	stop := w.s.Start(w.exporter(w.name()).Run)
	time.Sleep(time.Duration(rapid.IntRange(30, 200).Draw(w.T, "ms")) * time.Millisecond)
	stop()
	w.proxy.Guard(nil, nil)
}

func (w *machine) loseGroup() {
	kind := rapid.SampledFrom([]string{"e", "v"}).Draw(w.T, "kind")
	w.s.EachKey(kind, "redis.call('XGROUP', 'DESTROY', k, 'export')")
}

func (w *machine) trim() {
	w.consumeUpdates()
	w.tellWebhooks()
	for p := range w.s.Ledger.Partitions() {
		_, err := w.s.Ledger.Streams.Trim(w.ctx(), p, 0)
		w.must(err)
	}
}

// retire lets what has ended leave Redis, as if it had ended hours ago. What a
// restored backup has set back is repaired before.
func (w *machine) retire() {
	w.reconcile(true)
	w.consumeUpdates()
	w.tellWebhooks()
	if rapid.Bool().Draw(w.T, "all exported") {
		w.export()
	}

	w.s.EachKey("H", `local p = string.sub(k, 1, -2) for _, h in ipairs(redis.call('ZRANGE', k, 0, -1)) do local old = tostring(tonumber(h) - 3) for _, m in ipairs(redis.call('LRANGE', p .. 'R' .. h, 0, -1)) do redis.call('RPUSH', p .. 'R' .. old, m) end redis.call('DEL', p .. 'R' .. h) redis.call('ZREM', k, h) redis.call('ZADD', k, old, old) end`)
	for p := range w.s.Ledger.Partitions() {
		_, err := w.s.Ledger.Orders.Retire(w.ctx(), p, time.Now(), 10_000)
		w.must(err)
	}

	for _, o := range w.orders {
		found, err := w.s.Ledger.Orders.GetAll(w.ctx(), []delivery.OrderID{o.id})
		w.must(err)
		o.retired = found[0] == nil
		if o.retired && !o.status().Terminal() {
			w.Fatalf("order %s has left Redis in %s", o.id, o.status())
		}
	}
}

func (w *machine) backUp() {
	if o := w.pick("order", func(*expected) bool { return true }); o != nil {
		w.s.Record("o", o.id.Digest(), "redis.call('SET', 'backup:' .. d, redis.call('GET', k))")
		o.saved = len(o.steps)
	}
}

// restore sets an order back to its backup.
func (w *machine) restore() {
	o := w.pick("order", func(o *expected) bool { return o.saved >= 0 && o.saved < len(o.steps) })
	if o == nil {
		return
	}
	w.s.Record("o", o.id.Digest(), "redis.call('SET', k, redis.call('GET', 'backup:' .. d))")
	o.steps, o.saved, o.reported = o.steps[:o.saved:o.saved], -1, false
	w.rolled[o.id], w.restored = true, true
}

func (w *machine) rebuild() {
	w.proxy.Guard(nil, nil)
	_, err := export.Rebuild(w.ctx(), w.s.Ledger, w.proxy.Archive, w.day.AddDate(0, 0, -2), func(export.Rebuilt) {})
	w.must(err)
}
