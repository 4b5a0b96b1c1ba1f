package ledger

import (
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/accounts"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/partitions"
)

// heapOf returns how many bytes of memory so many values of newValue keep.
func heapOf[T any](n int, newValue func() T) int {
	var before, after runtime.MemStats
	values := make([]T, n)
	runtime.GC()
	runtime.GC() // what the first one has only marked for reuse
	runtime.ReadMemStats(&before)
	for i := range values {
		values[i] = newValue()
	}

	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(values)

	return int(after.HeapAlloc) - int(before.HeapAlloc)
}

// orderRecord is the record of an order with these changes, in which each change of a courier was accepted.
func orderRecord(draft *delivery.OrderDraft, fleetName string, changes []delivery.Change) string {
	at := time.UnixMilli(1_795_000_000_000)
	o := &delivery.Order{OrderDraft: *draft, CreatedAt: at, Version: delivery.FirstVersion(at)}
	record := core.AppendOrderRecord(nil, o, &delivery.FleetTerms{Name: fleetName}, 0, 0, [16]byte{})

	version := o.Version
	for i := range changes {
		change := &changes[i]
		version = delivery.NextVersion(version, at, 1)
		change.Version, change.At, change.ETA, change.Location = version, at, at, delivery.Location{Point: taksim, At: at}
		if change.Kind == delivery.CourierReplaced {
			record = core.AppendAccepted(record, change.Courier)
		}
		record = core.AppendChange(record, change)
	}

	return string(record)
}

func TestDelivery_BytesAreAboutWhatItTakes(t *testing.T) {
	const number = 3
	usual := testDraft("ORDER-2026-000123")
	usual.Recipient.Name, usual.Dropoff.Note, usual.PackageNote = "Ayşe Öztürk", "zile basmayın", "soğuk zincir"
	longest := func(characters int) string { return strings.Repeat("ş", characters) }
	largest := &delivery.OrderDraft{
		ExternalStoreID: longest(64), ExternalOrderID: longest(64),
		Recipient: delivery.Recipient{Name: longest(200), Phone: "5321234567"},
		Dropoff: delivery.Dropoff{Text: longest(1000), BuildingNo: longest(32), DoorNo: longest(32), Floor: longest(32),
			Note: longest(500)},
		PackageNote: longest(500),
	}

	courier := delivery.Courier{Name: "Mehmet Yılmaz", Phone: "5329876543", VehicleType: "motorcycle"}
	longCourier := delivery.Courier{Name: longest(200), Phone: "5329876543", VehicleType: longest(32)}
	small := &delivery.OrderDraft{ExternalStoreID: "1", ExternalOrderID: "2", Recipient: delivery.Recipient{Phone: "5321234567"}}

	orders := map[string]string{
		"a small order":                  orderRecord(small, "F", slices.Repeat([]delivery.Change{{}}, 1)),
		"a usual order":                  orderRecord(usual, "Fleet of Beyoğlu", slices.Repeat([]delivery.Change{{Courier: courier}}, 5)),
		"a usual order of many versions": orderRecord(usual, "Fleet of Beyoğlu", slices.Repeat([]delivery.Change{{Courier: courier}}, 200)),
		"the largest document":           orderRecord(largest, longest(200), slices.Repeat([]delivery.Change{{}}, 2)),
		"the largest order": orderRecord(largest, longest(200),
			slices.Repeat([]delivery.Change{{Kind: delivery.CourierReplaced, Courier: longCourier}}, 200)),
	}

	for name, record := range orders {
		o := get(core.DecodeOrder(record, number))(t)
		last := o.Changes[len(o.Changes)-1]
		key := partitions.VersionKey(o.ID, last.Version, last.Kind)
		isWithin(t, name, func() *partitions.Delivery {
			own := &partitions.SharedOrder{Record: stringReply(strings.Clone(record))}
			own.Decode(core.Partition{Number: number})
			d, _ := own.Event(key)
			return d
		})
	}

	for name, size := range map[string]int{"a small notice": 20, "the largest notice": 110_000} {
		record := string(accounts.EncodeNotice(&accounts.Notice{Type: delivery.StoreActivated, OccurredAt: time.Now(), Data: make([]byte, size)}))
		isWithin(t, name, func() *partitions.Delivery {
			d, _ := partitions.DecodeNoticeEvent(partitions.NoticeKey(accounts.NewNoticeID()), stringReply(strings.Clone(record)))
			return d
		})
	}

	account := delivery.NewAccountID()
	isWithin(t, "a ping", func() *partitions.Delivery { return partitions.Ping(account, time.Now()) })
}

func isWithin(t *testing.T, name string, newEvent func() *partitions.Delivery) {
	t.Helper()
	d := newEvent()
	require(t, d != nil, "%s: no event", name)
	counted := d.Bytes()
	n := max(50, 8<<20/counted) // so many that what else the process keeps or lets go does not count

	taken := heapOf(n, newEvent) / n

	check(t, counted >= taken/2 && counted <= 2*taken, "%s: %d bytes are counted, and %d taken", name, counted, taken)
	equal(t, testing.AllocsPerRun(10, func() { d.Bytes() }), 0, name+": allocations")
	t.Logf("%s: %d bytes are counted, and %d taken", name, counted, taken)
}

// Events that share an order count it each: together never too little.
func TestDelivery_BytesOfASharedOrderAreAnUpperBound(t *testing.T) {
	const versions = 50
	record := orderRecord(testDraft("X-1"), "F", make([]delivery.Change, versions))
	o := get(core.DecodeOrder(record, 0))(t)
	readAll := func() []*partitions.Delivery {
		shared := &partitions.SharedOrder{Record: stringReply(strings.Clone(record))}
		shared.Decode(core.Partition{})
		all := make([]*partitions.Delivery, versions)
		for i := range all {
			all[i], _ = shared.Event(partitions.VersionKey(o.ID, o.Changes[i].Version, o.Changes[i].Kind))
		}
		return all
	}

	const n = 100
	taken := heapOf(n, readAll) / n

	counted := 0
	for _, d := range readAll() {
		counted += d.Bytes()
	}

	check(t, counted >= taken, "%d bytes are counted, and %d taken", counted, taken)
}

func stringReply(value string) *redis.StringCmd {
	return redis.NewStringResult(value, nil)
}
