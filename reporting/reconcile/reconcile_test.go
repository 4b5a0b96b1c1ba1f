package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
	"vendorapi/reporting/export"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// timeout is how long a comparison waits for a running exporter.
const timeout = testserver.Timeout

// env has 10 orders that have been delivered and exported.
type env struct {
	*archiveenv.System
	reconciler *Reconciler
	stop       func() // the exporter
	today      time.Time
}

func newEnv(t *testing.T) *env {
	t.Helper()
	s := &env{System: archiveenv.New(t)}
	s.reconciler = New(s.OpenAs(stack.ReportingUser), s.Archive)
	// Noon, so that no test runs over midnight.
	s.today = archive.BusinessDay(time.Now()).AddDate(0, 0, -1)
	for i := range 10 {
		s.Delivered(s.today.Add(12*time.Hour + time.Duration(i)*time.Second))
	}

	s.startExport()
	s.AwaitExported()

	return s
}

func (s *env) startExport() {
	x := export.New(s.Ledger, s.Archive, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Second},
		"x1", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	s.stop = s.Start(x.Run)
}

// compare runs over the day of the orders and its neighbours, and answers the
// differences in words.
func (s *env) compare(scope Scope) (differences, totals []string) {
	s.T.Helper()
	if scope.From.IsZero() {
		scope.From, scope.To = s.today.AddDate(0, 0, -1), s.today.AddDate(0, 0, 1)
	}

	scope.Timeout = timeout
	err := s.reconciler.Run(s.T.Context(), scope, func(d *Day) {
		for i := range d.Differences {
			differences = append(differences, d.Differences[i].String())
		}
		totals = append(totals, d.Totals...)
	})
	if err != nil {
		s.T.Fatal(err)
	}

	return differences, totals
}

// requireEqual fails the test if anything differs.
func (s *env) requireEqual() {
	s.T.Helper()
	if differences, totals := s.compare(Scope{}); len(differences)+len(totals) > 0 {
		s.T.Errorf("differs: %q %q", differences, totals)
	}
}

// spoil changes rows behind everybody's back; DB is the database.
func (s *env) spoil(statement string) {
	s.T.Helper()
	statement = strings.ReplaceAll(strings.ReplaceAll(statement, "TABLE ", "TABLE "+s.Database+"."), "DB.", s.Database+".")
	s.ClickHouse.Exec(s.T, statement+" SETTINGS mutations_sync = 2")
}

// requireBehind compares today without an exporter, and nothing may be compared then.
func (s *env) requireBehind(r *Reconciler, want string) {
	s.T.Helper()
	err := r.Run(s.T.Context(), Scope{From: s.today, To: s.today, Timeout: 300 * time.Millisecond}, func(d *Day) {
		s.T.Errorf("compared: %+v", d.Differences)
	})
	if !errors.Is(err, ErrBehind) || !strings.Contains(err.Error(), want) {
		s.T.Errorf("without an exporter: %v", err)
	}
}

// one is the only text that names the order.
func one(t *testing.T, differences []string, id string) string {
	t.Helper()
	found := ""
	for _, text := range differences {
		if strings.Contains(text, "order "+id) {
			if found != "" {
				t.Errorf("%s is reported twice", id)
			}
			found = text
		}
	}

	return found
}

//rule:finance/reports-each/5
func TestReconcile_FindsAndRepairsExactlyWhatDiffers(t *testing.T) {
	t.Parallel()

	const unknown, unknownEvents = "0190163d-8694-8dbd-8e88-000000000000", "0190163d-8694-8dbd-8e88-000000000001"
	cases := []struct {
		statement string // %[1]s is the order
		want      string
		id        string // of the difference; empty: the order's
	}{
		{"ALTER TABLE orders UPDATE collection_amount = 1 WHERE order_id = '%[1]s'", `orders.collection_amount is "1", should be "123.45"`, ""},
		{"ALTER TABLE orders UPDATE order_amount = order_amount + 0.01 WHERE order_id = '%[1]s'", `orders.order_amount is "123.46", should be "123.45"`, ""},
		{"ALTER TABLE orders UPDATE status = 'Failed' WHERE order_id = '%[1]s'", `orders.status is "Failed"`, ""},
		{"ALTER TABLE orders UPDATE delivered_at = delivered_at + INTERVAL 1 DAY WHERE order_id = '%[1]s'", "orders.delivered_at", ""},
		{"INSERT INTO TABLE orders SELECT * REPLACE (version + 1000 AS version, 'Searching' AS status) FROM DB.orders WHERE order_id = '%[1]s'", "orders.version", ""},
		{"ALTER TABLE orders DELETE WHERE order_id = '%[1]s'", "no row", ""},
		{"ALTER TABLE order_events DELETE WHERE order_id = '%[1]s'", "order_events[1]", ""},
		{"ALTER TABLE order_events DELETE WHERE order_id = '%[1]s' AND sequence = 3", "order_events[3]", ""},
		{"INSERT INTO TABLE order_events SELECT * REPLACE (toUInt32(9) AS sequence) FROM DB.order_events WHERE order_id = '%[1]s' LIMIT 1", "order_events[9]", ""},
		{"ALTER TABLE order_events UPDATE at = at + INTERVAL 1 SECOND WHERE order_id = '%[1]s' AND sequence = 2", "order_events[2].at", ""},
		{"ALTER TABLE orders DELETE WHERE order_id = '%[1]s'; ALTER TABLE order_events DELETE WHERE order_id = '%[1]s'", "it is not in ClickHouse", ""},
		{"INSERT INTO TABLE orders SELECT * REPLACE ('" + unknown + "'::UUID AS order_id) FROM (SELECT * FROM DB.orders WHERE order_id = '%[1]s' LIMIT 1)", "Redis never had it", unknown},
		{"INSERT INTO TABLE order_events SELECT * REPLACE (business_day - 1 AS business_day, '" + unknownEvents + "'::UUID AS account_id, '" + unknownEvents +
			"'::UUID AS order_id) FROM (SELECT * FROM DB.order_events WHERE order_id = '%[1]s' LIMIT 1)", "Redis never had it", unknownEvents},
		{"INSERT INTO TABLE orders SELECT * REPLACE ('" + unknown + "'::UUID AS account_id) FROM DB.orders WHERE order_id = '%[1]s'", "it belongs to account", ""},
		{"INSERT INTO TABLE orders SELECT * REPLACE (business_day - 1 AS business_day) FROM DB.orders WHERE order_id = '%[1]s'", "it belongs to account", ""},
	}

	s := newEnv(t)
	for i := range cases {
		o := s.Delivered(s.today.Add(13*time.Hour + time.Duration(i)*time.Second))
		s.AwaitExported()
		for statement := range strings.SplitSeq(cases[i].statement, "; ") {
			s.spoil(fmt.Sprintf(statement, o.ID))
		}
		if cases[i].id == "" {
			cases[i].id = o.ID.String()
		}
	}

	differences, _ := s.compare(Scope{})
	fixed, _ := s.compare(Scope{Fix: true})
	if len(differences) != len(cases) || len(fixed) != len(cases) {
		t.Errorf("found %q\nrepaired %q", differences, fixed)
	}

	for _, c := range cases {
		if text := one(t, differences, c.id); !strings.Contains(text, c.want) {
			t.Errorf("%s\nfound %q, want %q", c.statement, text, c.want)
		}
		known := c.want != "Redis never had it"
		if text := one(t, fixed, c.id); strings.HasSuffix(text, "(fixed)") != known {
			t.Errorf("%s\nrepaired %q", c.statement, text)
		}
	}

	if fixed, totals := s.compare(Scope{Fix: true, RemoveUnknown: true}); len(fixed) != 2 || !strings.HasSuffix(fixed[0], "(fixed)") || !strings.HasSuffix(fixed[1], "(fixed)") || len(totals) != 0 {
		t.Errorf("removed %q %q", fixed, totals)
	}

	s.requireEqual()
	s.Want("orders", "count() FROM "+s.Database+".orders", fmt.Sprint(10+len(cases)))
	// A repair that finds nothing changes nothing.
	rows := "count(), sum(order_amount), sum(cityHash64(*)), (SELECT sum(cityHash64(*)) FROM " + s.Database + ".order_events) FROM " + s.Database + ".orders"
	before := s.Ask(rows)
	s.compare(Scope{Fix: true})
	if after := s.Ask(rows); after != before {
		t.Errorf("%q, then %q", before, after)
	}
}

// Of what is paid at the door the amount to collect counts, of everything else the amount of the order.
func TestSums_AreThoseOfTheControlTotals(t *testing.T) {
	t.Parallel()

	order := func(status delivery.Status, payment delivery.PaymentType) *delivery.Order {
		o := &delivery.Order{Status: status}
		o.OrderAmount = delivery.Money{Minor: 100, Set: true}
		o.Payment = delivery.Payment{Type: payment, CollectionAmount: delivery.Money{Minor: 7, Set: true}}
		return o
	}

	for _, c := range []struct {
		status  delivery.Status
		payment delivery.PaymentType
		open    int
		figures [8]int64 // orders, delivered, failed, cancelled, amount delivered, cash, card, prepaid
	}{
		{delivery.Delivered, delivery.Cash, 0, [8]int64{1, 1, 0, 0, 100, 7, 0, 0}},
		{delivery.Delivered, delivery.Card, 0, [8]int64{1, 1, 0, 0, 100, 0, 7, 0}},
		{delivery.Delivered, delivery.Prepaid, 0, [8]int64{1, 1, 0, 0, 100, 0, 0, 100}},
		{delivery.Delivered, delivery.PaymentUnknown, 0, [8]int64{1, 1, 0, 0, 100, 0, 0, 0}},
		{delivery.Failed, delivery.Cash, 0, [8]int64{1, 0, 1, 0, 0, 0, 0, 0}},
		{delivery.Cancelled, delivery.Prepaid, 0, [8]int64{1, 0, 0, 1, 0, 0, 0, 0}},
		{delivery.Searching, delivery.Cash, 1, [8]int64{1, 0, 0, 0, 0, 0, 0, 0}},
		{delivery.Assigned, delivery.Card, 1, [8]int64{1, 0, 0, 0, 0, 0, 0, 0}},
	} {
		var s sums
		s.add(order(c.status, c.payment))
		if s.figures != c.figures || s.open != c.open {
			t.Errorf("%s, %s: %v, %d open, want %v, %d open", c.status, c.payment, s.figures, s.open, c.figures, c.open)
		}
	}
}

// What is not exported yet is waited for, not called a difference. The day was not seen at one moment then, so
// nothing is noted for the closing of its month.
func TestReconcile_WaitsForTheExporter(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	var days []*Day
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today}, func(d *Day) { days = append(days, d) })
	if err != nil || len(days) != 1 || days[0].Compared != 10 || days[0].Retired != 0 || !days[0].Balanced() {
		t.Errorf("%+v %v", days, err)
	}

	s.stop()
	s.Delivered(s.today.Add(13 * time.Hour))
	s.requireBehind(s.reconciler, "2 entries")
	before, err := Comparisons(t.Context(), s.Ledger, s.today, s.today)
	testenv.Must(t, err)
	p := s.NewProxy("")
	var first sync.Once
	p.Guard(nil, func(statement string) bool {
		if isWalk(statement) {
			first.Do(s.startExport)
		}
		return true
	})

	s.reconciler = New(s.Ledger, p.Archive)

	s.requireEqual()

	after, err := Comparisons(t.Context(), s.Ledger, s.today, s.today)
	testenv.Must(t, err)
	if before[0].Clean == nil || !after[0].Clean.At.Equal(before[0].Clean.At) {
		t.Errorf("a day that had to be compared again was noted: %+v, before %+v", after[0].Clean, before[0].Clean)
	}
}

// isWalk reports whether a statement reads the orders of a day.
func isWalk(statement string) bool {
	return strings.HasPrefix(statement, "SELECT * FROM (SELECT account_id")
}

// What changes while the days are being read is not exported yet either. Ids of a
// stream may be ahead of this machine's clock, which may be behind, or Redis's was
// set back, after which ids go on from the last one.
func TestReconcile_OrderMovesDuringTheLook(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.Vendor.Order("", s.today.Add(13*time.Hour))
	s.EachKey("e", fmt.Sprintf(`redis.call('XADD', k, '%d-0', 'e', '\2evt_x')`, time.Now().Add(10*time.Second).UnixMilli()))
	s.AwaitExported()
	s.stop()
	p := s.NewProxy("")
	var once sync.Once
	p.Guard(func(statement string) bool {
		if strings.Contains(statement, "SELECT account_id, business_day, order_id") {
			once.Do(func() { s.Move(o, delivery.Assigned, s.today.Add(14*time.Hour)) })
		}
		return true
	}, nil)

	s.requireBehind(New(s.Ledger, p.Archive), "")
}

func TestReconcile_KeepsToItsScope(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	s.spoil("ALTER TABLE orders UPDATE status = 'Failed' WHERE 1")
	for _, c := range []struct {
		scope Scope
		want  int
	}{
		{Scope{From: s.today.AddDate(0, 0, -1), To: s.today.AddDate(0, 0, -1)}, 0},
		{Scope{From: s.today, To: s.today, Account: s.NewVendor().Account}, 0},
		{Scope{From: s.today, To: s.today, Account: s.Vendor.Account}, 10},
	} {
		if found, _ := s.compare(c.scope); len(found) != c.want {
			t.Errorf("%+v: %q", c.scope, found)
		}
	}
}

// What has left Redis is known to have been there. It had ended, lies where its id
// says, and has as many events as its version counts; no repair removes it.
func TestReconcile_KnowsWhatHasLeftRedis(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	ids := map[string]string{}
	statements := []string{
		"ALTER TABLE orders UPDATE status = 'Delivering', delivered_at = NULL, ended_at = NULL WHERE order_id = '%s'",
		"ALTER TABLE order_events DELETE WHERE order_id = '%s' AND sequence = 3",
		"INSERT INTO TABLE orders SELECT * REPLACE (business_day + 1 AS business_day) FROM DB.orders WHERE order_id = '%s'",
		"INSERT INTO TABLE orders SELECT * REPLACE ('0190163d-8694-8dbd-8e88-000000000000'::UUID AS account_id) FROM DB.orders WHERE order_id = '%s'",
		"ALTER TABLE orders DELETE WHERE order_id = '%s'",
		"ALTER TABLE orders UPDATE order_amount = -1 WHERE order_id = '%s'",
		"INSERT INTO TABLE order_events SELECT * REPLACE (toUInt32(9) AS sequence) FROM DB.order_events WHERE order_id = '%s' LIMIT 1",
	}

	for i, statement := range statements {
		ids[statement] = s.Delivered(s.today.Add(13*time.Hour + time.Duration(i)*time.Second)).ID.String()
	}

	s.RetireAll(s.AwaitExported)
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today}, func(d *Day) {
		if d.Compared != 0 || d.Retired != 10+len(statements) || !d.Balanced() {
			t.Errorf("%+v", d)
		}
	})
	if err != nil {
		t.Error(err)
	}

	// Reports that say another number of orders than there are.
	day := Day{Day: s.today}
	testenv.Must(t, s.reconciler.compareTotals(t.Context(), &Scope{}, &day, &sums{figures: [figureCount]int64{orders: 1}}))
	if want := "order-ledger: orders is 17, should be 1"; !slices.Contains(day.Totals, want) {
		t.Errorf("%q, want %q", day.Totals, want)
	}

	// A row that agrees with its events, and in which reports do not agree with each other.
	move := "ALTER TABLE orders UPDATE ended_at = ended_at %s INTERVAL 40 DAY WHERE order_id = '%s'"
	s.spoil(fmt.Sprintf(move, "+", ids[statements[0]]))
	_, totals := s.compare(Scope{From: s.today, To: s.today})
	if want := "expected-collections does not balance with the orders that ended on the day"; !slices.Contains(totals, want) {
		t.Errorf("%q, want %q", totals, want)
	}

	s.spoil(fmt.Sprintf(move, "-", ids[statements[0]]))

	for statement, id := range ids {
		s.spoil(fmt.Sprintf(statement, id))
	}

	found, _ := s.compare(Scope{})
	for statement, id := range ids {
		if one(t, found, id) == "" {
			t.Errorf("%s\nis not found in %q", statement, found)
		}
	}

	for range 2 {
		found, _ = s.compare(Scope{Fix: true})
		for statement, rows := range map[string]string{statements[4]: "0\t6", statements[5]: "1\t6"} {
			if text := one(t, found, ids[statement]); text == "" || strings.Contains(text, "fixed") {
				t.Errorf("%s\nfound %q; want one, which cannot be fixed", statement, text)
			}
			s.Want("rows", fmt.Sprintf("(SELECT count() FROM %[1]s.orders WHERE order_id = '%[2]s'), (SELECT count() FROM %[1]s.order_events WHERE order_id = '%[2]s')",
				s.Database, ids[statement]), rows)
		}
	}
}

// What the export needs is still there when an order has shrunk.
func TestReconcile_RepairsFromShrunkOrders(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	testenv.Shrink(t, s.Ledger)
	s.requireEqual()
	for _, table := range []string{"orders", "order_events"} {
		s.spoil("ALTER TABLE " + table + " DELETE WHERE true")
	}

	if fixed, totals := s.compare(Scope{Fix: true}); len(fixed) != 10 || len(totals) != 0 {
		t.Errorf("repaired %q %q", fixed, totals)
	}

	s.requireEqual()
	s.Want("events", "count() FROM "+s.Database+".order_events", "60")
}

func TestReconcile_ClickHouseUnavailableIsAnError(t *testing.T) {
	t.Parallel()

	s := archiveenv.New(t)
	p := s.NewProxy("")
	p.Guard(func(string) bool { return false }, nil)
	err := New(s.Ledger, p.Archive).Run(t.Context(), Scope{From: time.Now(), To: time.Now()}, func(*Day) {})
	if !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
