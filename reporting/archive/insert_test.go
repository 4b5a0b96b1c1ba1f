package archive

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

//rule:finance/database-delivery-tables-orders-and
func TestInsert_SameBatchTwiceCountsOnce(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	var all []*delivery.Order
	for i := range 200 {
		all = append(all, newOrder(account(i%7), i, noon.AddDate(0, -(i%14), 0), toDelivered[:i%6]...))
	}

	b := batchOf(all...)
	for range 2 {
		noError(t, a.Insert(t.Context(), b))
		requireStored(t, a, noon.AddDate(-2, 0, 0), noon, all...)
	}

	noError(t, a.InsertAgain(t.Context(), b))
	requireStored(t, a, noon.AddDate(-2, 0, 0), noon, all...)
}

// Recognising repeated inserts as a cluster's tables do; the statements are those of
// a single server otherwise.
func TestInsert_ClusterRecognisesRepetitions(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	for _, table := range []string{"orders", "order_events"} {
		noError(t, a.exec(t.Context(), "ALTER TABLE "+table+" MODIFY SETTING non_replicated_deduplication_window = 1000"))
	}

	a.cluster = "main"
	var all []*delivery.Order
	for i := range 200 {
		all = append(all, newOrder(account(i%7), i, noon.AddDate(0, -(i%14), 0), toDelivered[:i%6]...))
	}

	b := batchOf(all...)
	for range 3 {
		noError(t, a.Insert(t.Context(), b))
	}

	// In every month.
	if n := one[uint64](t, a, "SELECT count() FROM orders"); n != 200 {
		t.Errorf("%d rows of orders are stored", n)
	}
	if n := one[uint64](t, a, "SELECT count() FROM order_events"); n != uint64(len(b.Events)) {
		t.Errorf("%d rows of events are stored, %d were sent", n, len(b.Events))
	}

	// Once more, they are stored again and count once all the same.
	noError(t, a.InsertAgain(t.Context(), b))
	if n := one[uint64](t, a, "SELECT count() FROM orders"); n == 200 {
		t.Error("InsertAgain stored nothing")
	}

	requireStored(t, a, noon.AddDate(-2, 0, 0), noon, all...)
	// Only equal content is ever dropped.
	o := newOrder(account(1), 1000, noon)
	for _, name := range []string{"A", "B", "A"} {
		noError(t, a.Insert(t.Context(), &Batch{Orders: []Order{OrderOf(o, &delivery.Store{Name: name})}}))
	}

	if n := one[uint64](t, a, "SELECT count() FROM orders WHERE order_id = '"+o.ID.String()+"'"); n != 2 {
		t.Errorf("%d rows, sent were two that differ, one of them twice", n)
	}
}

// A token changes with every column of every row, and with where a value ends.
func TestToken_StandsForTheWholeContent(t *testing.T) {
	t.Parallel()

	o := newOrder(account(1), 1, noon, toDelivered...)
	row := OrderOf(o, kebap)
	rows := func(change func(*Order)) []Order {
		second := row
		change(&second)
		return []Order{row, second}
	}

	tokenOf := func(rows []Order) string {
		values, err := orders.values(reflect.ValueOf(rows))
		noError(t, err)
		return token(orders.name, values)
	}

	seen := map[string]string{tokenOf(rows(func(*Order) {})): "nothing"}
	for what, change := range map[string]func(*Order){
		"account": func(o *Order) { o.Account[15]++ }, "id": func(o *Order) { o.ID[0]++ }, "version": func(o *Order) { o.Version++ },
		"external id": func(o *Order) { o.ExternalOrderID += "x" }, "store": func(o *Order) { o.ExternalStoreID += "x" },
		"border": func(o *Order) {
			o.ExternalOrderID, o.ExternalStoreID = o.ExternalOrderID+o.ExternalStoreID[:1], o.ExternalStoreID[1:]
		},
		"store name": func(o *Order) { o.StoreName = "" }, "tax": func(o *Order) { o.TaxNumber = "" }, "fleet": func(o *Order) { o.Fleet[1]++ },
		"fleet name": func(o *Order) { o.FleetName = "" }, "status": func(o *Order) { o.Status-- }, "failure": func(o *Order) { o.Failure = "x" },
		"cancel": func(o *Order) { o.Cancel = "x" }, "created": func(o *Order) { o.CreatedAt = o.CreatedAt.Add(time.Millisecond) },
		"ordered": func(o *Order) { o.OrderedAt = noon }, "ready": func(o *Order) { o.ReadyAt = noon }, "assigned": func(o *Order) { o.AssignedAt = time.Time{} },
		"picked up": func(o *Order) { o.PickedUpAt = noon }, "delivered": func(o *Order) { o.DeliveredAt = noon }, "ended": func(o *Order) { o.EndedAt = noon },
		"updated": func(o *Order) { o.UpdatedAt = noon }, "type": func(o *Order) { o.PaymentType = 0 }, "amount": func(o *Order) { o.OrderAmount = delivery.Money{} },
		"zero amount": func(o *Order) { o.OrderAmount = money(0) }, "collection": func(o *Order) { o.Collection.Minor++ }, "courier": func(o *Order) { o.CourierName = "x" },
		"no courier": func(o *Order) { o.WithoutCourier = !o.WithoutCourier },
	} {
		token := tokenOf(rows(change))
		if other, known := seen[token]; known {
			t.Errorf("%s and %s have one token", what, other)
		}
		seen[token] = what
	}

	if len(seen) < len(orders.columns)+2 {
		t.Errorf("%d tokens for %d columns", len(seen), len(orders.columns))
	}
}

func TestInsert_VersionsOutOfOrder(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	var all []*delivery.Order
	var rows []Order
	var events []Event
	for i := range 100 {
		o := newOrder(account(i%3), i, noon, toDelivered...)
		all = append(all, o)
		for n := range 6 {
			rows = append(rows, OrderOf(newOrder(account(i%3), i, noon, toDelivered[:n]...), kebap))
		}
		events = append(events, EventsOf(o)...)
	}

	random := rand.New(rand.NewPCG(testserver.Seed(t), 0))
	for range 2 {
		random.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		random.Shuffle(len(events), func(i, j int) { events[i], events[j] = events[j], events[i] })
		for i := range 6 {
			noError(t, a.Insert(t.Context(), &Batch{Orders: rows[i*100 : i*100+100], Events: events[i*100 : i*100+100]}))
		}
	}

	// After a restored backup the history goes another way, in later versions.
	before := newOrder(account(1), 1000, noon, delivery.Assigned, delivery.PickingUp)
	after := newOrder(account(1), 1000, noon, delivery.Assigned, delivery.Cancelled)
	after.Version = delivery.NextVersion(after.Changes[0].Version, noon.Add(time.Hour), 0)
	after.Changes[1].Version = after.Version
	for _, o := range []*delivery.Order{after, before} {
		noError(t, a.Insert(t.Context(), batchOf(o)))
	}

	requireStored(t, a, noon, noon, append(all, after)...)
}

func TestInsert_KeepsEveryValue(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	long := strings.Repeat("çğıöşü", 83) + "İI"
	texts := []string{"", "Şişli Çığırtkan", "🥙🇹🇷\u200d", long, "a\tb\nc\\d'e\"f`;--", "=1+1", "\x00", "  "}
	amounts := []delivery.Money{{}, money(0), money(1), money(100), money(12_50), money(delivery.MaxMoneyMinor)}
	times := []time.Time{
		time.Date(2026, 2, 28, 23, 59, 59, 999e6, delivery.Istanbul),
		time.Date(2026, 3, 1, 0, 0, 0, 0, delivery.Istanbul),
		time.Date(2028, 2, 29, 0, 0, 0, 1e6, delivery.Istanbul),
		time.Date(2026, 12, 31, 21, 0, 0, 0, time.UTC), // the first moment of 2027 there
		time.Date(2000, 1, 1, 0, 0, 0, 0, delivery.Istanbul),
	}

	var all []*delivery.Order
	for i := range 240 {
		o := newOrder(account(i%5), i, times[i%len(times)], toDelivered[:i%6]...)
		o.ExternalStoreID, o.Fleet.Name = texts[i%len(texts)], texts[(i+3)%len(texts)]
		o.OrderAmount, o.Payment.CollectionAmount = amounts[i%len(amounts)], amounts[(i/6)%len(amounts)]
		o.Payment.Type = delivery.PaymentType(i % 4)
		if i%2 == 0 {
			o.OrderedAt = o.CreatedAt.Add(-time.Hour - 7*time.Millisecond)
		}
		all = append(all, o)
	}

	noError(t, a.Insert(t.Context(), batchOf(all...)))
	requireStored(t, a, time.Date(2000, 1, 1, 0, 0, 0, 0, delivery.Istanbul), noon.AddDate(5, 0, 0), all...)
	for day, query := range map[string]string{
		"2026-02-28": "created_at = toDateTime64('2026-02-28 20:59:59.999', 3, 'UTC')",
		"2026-03-01": "created_at = toDateTime64('2026-02-28 21:00:00.000', 3, 'UTC')",
		"2028-02-29": "created_at = toDateTime64('2028-02-28 21:00:00.001', 3, 'UTC')",
		"2027-01-01": "created_at = toDateTime64('2026-12-31 21:00:00.000', 3, 'UTC')",
	} {
		if got := one[string](t, a, "SELECT arrayStringConcat(groupUniqArray(toString(business_day))) FROM orders FINAL WHERE "+query); got != day {
			t.Errorf("%s has the day %q", query, got)
		}
	}

	// What the reports add up, by the engine's own arithmetic.
	var sum int64
	for _, o := range all {
		if o.Status == delivery.Delivered && (o.Payment.Type == delivery.Cash || o.Payment.Type == delivery.Card) {
			sum += o.Payment.CollectionAmount.Minor
		}
	}

	if got := one[int64](t, a, "SELECT toInt64(sum(expected_collection) * 100) FROM orders FINAL"); got != sum {
		t.Errorf("%d kuruş are expected, the orders say %d", got, sum)
	}
	if n := one[uint64](t, a, "SELECT countIf(order_amount IS NULL) FROM orders FINAL"); n != 40 {
		t.Errorf("%d orders without an amount", n)
	}
}

func TestInsert_LateDeliveriesAndOutcomes(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	o := newOrder(account(1), 1, noon)
	full := Outcome{
		Account: o.Account, At: noon.Add(time.Millisecond), EventID: delivery.EventID(o.ID, o.Version), Event: delivery.StatusChanged,
		Order: o.ID, State: "delivered", Attempt: 14, HTTPStatus: 204, Error: "süre aşımı", Milliseconds: 9_999,
		Replay: true, Probe: true, Partition: 1023, Entry: "1795000000000-12", Line: 7,
	}

	bare := Outcome{Account: o.Account, At: noon, EventID: "evt_x", State: "notSent", Entry: "1-1"}
	b := &Batch{
		Late:     []LateDelivery{{Account: o.Account, CreatedAt: o.CreatedAt, Order: o.ID, ReportedAt: noon.Add(2 * time.Hour)}},
		Outcomes: []Outcome{full, bare, full},
	}
	if b.Rows() != 4 {
		t.Errorf("%d rows", b.Rows())
	}

	noError(t, a.Insert(t.Context(), b))
	noError(t, a.InsertAgain(t.Context(), b))
	if got := one[string](t, a, "SELECT toString(reported_at) FROM late_deliveries FINAL"); got != "2026-11-21 14:00:00.000" {
		t.Error(got)
	}

	const row = `SELECT arrayStringConcat([toString(account_id), toString(day), event_id, event, ifNull(toString(order_id), 'none'), toString(at), state,
		toString(attempt), toString(http_status), error, toString(milliseconds), toString(replay), toString(probe), toString(partition), entry, toString(line)], '|')
		FROM webhook_outcomes FINAL WHERE attempt `
	if got, want := one[string](t, a, row+"> 0"), o.Account.String()+"|2026-11-21|"+full.EventID+"|delivery.status_changed|"+o.ID.String()+
		"|2026-11-21 12:00:00.001|delivered|14|204|süre aşımı|9999|true|true|1023|1795000000000-12|7"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}

	if got, want := one[string](t, a, row+"= 0"), o.Account.String()+"|2026-11-21|evt_x||none|2026-11-21 12:00:00.000|notSent|0|0||0|false|false|0|1-1|0"; got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}

// A row that would be stored as something else fails the whole batch, before
// anything is sent.
func TestInsert_RefusesWhatClickHouseCannotHold(t *testing.T) {
	t.Parallel()

	a := idleArchive(t)
	good := newOrder(account(1), 1, noon, delivery.Assigned)
	for want, spoil := range map[string]func(*Batch){
		"order_amount is 1000000000 kuruş": func(b *Batch) { b.Orders[0].OrderAmount.Minor = delivery.MaxMoneyMinor + 1 },
		"collection_amount is -1 kuruş":    func(b *Batch) { b.Orders[0].Collection.Minor = -1 },
		"0001-01-01T00:00:00Z":             func(b *Batch) { b.Orders[0].CreatedAt = time.Time{} },
		"2150":                             func(b *Batch) { b.Orders[0].OrderedAt = time.Date(2150, 1, 1, 0, 0, 0, 0, time.UTC) },
		"status is Status(0), no status":   func(b *Batch) { b.Orders[0].Status = 0 },
		"order_events (":                   func(b *Batch) { b.Events[1].At = time.Time{} },
		"late_deliveries (":                func(b *Batch) { b.Late = []LateDelivery{{}} },
		"http_status is 65536":             func(b *Batch) { b.Outcomes = []Outcome{{At: noon, HTTPStatus: 65536}} },
		"milliseconds is -1":               func(b *Batch) { b.Outcomes = []Outcome{{At: noon, Milliseconds: -1}} },
	} {
		b := batchOf(good)
		spoil(b)
		if err := a.Insert(t.Context(), b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}

	if n := one[uint64](t, a, "SELECT (SELECT count() FROM orders) + (SELECT count() FROM order_events)"); n != 0 {
		t.Errorf("%d rows are stored", n)
	}
}

func TestInsert_MoreRowsThanOneInsertTakes(t *testing.T) {
	t.Parallel()

	a := newArchive(t)
	b := &Batch{}
	for i := range rowsAtOnce + 1 {
		b.Orders = append(b.Orders, OrderOf(newOrder(account(i%100), i, noon), nil))
	}

	noError(t, a.Insert(t.Context(), b))
	noError(t, a.Insert(t.Context(), &Batch{}))
	if n := one[uint64](t, a, "SELECT count() FROM orders FINAL"); n != rowsAtOnce+1 {
		t.Errorf("%d rows", n)
	}
}
