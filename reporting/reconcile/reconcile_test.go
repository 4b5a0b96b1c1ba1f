package reconcile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/archiveenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
)

// compared is a scene with a few orders that have been exported.
type compared struct {
	*archiveenv.Env
	reconciler *Reconciler
	stop       func() // the exporter
	today      time.Time
}

func newCompared(t *testing.T) *compared {
	t.Helper()
	s := &compared{Env: archiveenv.New(t)}
	s.reconciler = New(s.Ledger, s.Archive)
	// Noon, so that no test runs over midnight.
	s.today = archive.BusinessDay(time.Now()).AddDate(0, 0, -1)
	for i := range 10 {
		s.Delivered(s.today.Add(12*time.Hour + time.Duration(i)*time.Second))
	}
	s.startExport()
	s.AwaitExported()
	return s
}

func (s *compared) startExport() {
	e := export.New(s.Ledger, s.Archive, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Second},
		"x1", slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	s.stop = s.Start(e.Run)
}

// compare runs over the day of the orders and its neighbours, and answers the
// differences in words.
func (s *compared) compare(scope Scope) (differences, totals []string) {
	s.T.Helper()
	if scope.From.IsZero() {
		scope.From, scope.To = s.today.AddDate(0, 0, -1), s.today.AddDate(0, 0, 1)
	}
	if scope.Patience == 0 {
		scope.Patience = 20 * time.Second
	}
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

// tied fails the test unless nothing differs.
func (s *compared) tied() {
	s.T.Helper()
	if differences, totals := s.compare(Scope{}); len(differences)+len(totals) > 0 {
		s.T.Errorf("differs: %q %q", differences, totals)
	}
}

// spoil changes rows behind everybody's back.
func (s *compared) spoil(statement string) {
	s.T.Helper()
	s.ClickHouse.Exec(s.T, strings.ReplaceAll(statement, "TABLE ", "TABLE "+s.Database+".")+" SETTINGS mutations_sync = 2")
}

func TestReconcile_TiesWhenAllIsExported(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	s.tied()
	var days []*Day
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today}, func(d *Day) { days = append(days, d) })
	if err != nil || len(days) != 1 || days[0].Compared != 10 || days[0].Retired != 0 || !days[0].Tied() {
		t.Errorf("%+v %v", days, err)
	}
}

//rule:finance/reports-each/5
func TestReconcile_FindsAndRepairsExactlyWhatDiffers(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		statement string // %s is the order
		want      string
	}{
		"an amount":             {"ALTER TABLE orders UPDATE collection_amount = 1 WHERE order_id = '%s'", `orders.collection_amount is "1", should be "123.45"`},
		"a kuruş":               {"ALTER TABLE orders UPDATE order_amount = order_amount + 0.01 WHERE order_id = '%s'", `orders.order_amount is "123.46", should be "123.45"`},
		"a status":              {"ALTER TABLE orders UPDATE status = 'Failed' WHERE order_id = '%s'", `orders.status is "Failed"`},
		"a time":                {"ALTER TABLE orders UPDATE delivered_at = delivered_at + INTERVAL 1 DAY WHERE order_id = '%s'", "orders.delivered_at"},
		"a later version":       {"INSERT INTO TABLE orders SELECT * REPLACE (version + 1000 AS version, 'Searching' AS status) FROM DB.orders WHERE order_id = '%s'", "orders.version"},
		"no row":                {"ALTER TABLE orders DELETE WHERE order_id = '%s'", "no row"},
		"no events":             {"ALTER TABLE order_events DELETE WHERE order_id = '%s'", "order_events[1]"},
		"one event less":        {"ALTER TABLE order_events DELETE WHERE order_id = '%s' AND sequence = 3", "order_events[3]"},
		"one event more":        {"INSERT INTO TABLE order_events SELECT * REPLACE (toUInt32(9) AS sequence) FROM DB.order_events WHERE order_id = '%s' LIMIT 1", "order_events[9]"},
		"an event's time":       {"ALTER TABLE order_events UPDATE at = at + INTERVAL 1 SECOND WHERE order_id = '%s' AND sequence = 2", "order_events[2].at"},
		"nothing at all":        {"ALTER TABLE orders DELETE WHERE order_id = '%[1]s'; ALTER TABLE order_events DELETE WHERE order_id = '%[1]s'", "it is not in ClickHouse"},
		"a stranger":            {"INSERT INTO TABLE orders SELECT * REPLACE ('0190163d-8694-8dbd-8e88-000000000000'::UUID AS order_id) FROM DB.orders LIMIT 1", "Redis never had it"},
		"another account":       {"INSERT INTO TABLE orders SELECT * REPLACE ('0190163d-8694-8dbd-8e88-000000000000'::UUID AS account_id) FROM DB.orders WHERE order_id = '%s'", "it belongs to account"},
		"a row of a day before": {"INSERT INTO TABLE orders SELECT * REPLACE (business_day - 1 AS business_day) FROM DB.orders WHERE order_id = '%s'", "it belongs to account"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCompared(t)
			o := s.Delivered(s.today.Add(13 * time.Hour))
			s.AwaitExported()
			for statement := range strings.SplitSeq(c.statement, "; ") {
				if strings.Contains(statement, "%") {
					statement = fmt.Sprintf(statement, o.ID)
				}
				s.spoil(strings.ReplaceAll(statement, "DB.", s.Database+"."))
			}
			differences, _ := s.compare(Scope{})
			if len(differences) != 1 || !strings.Contains(differences[0], c.want) {
				t.Fatalf("found %q, want one with %q", differences, c.want)
			}
			if fixed, totals := s.compare(Scope{Fix: true, RemoveUnknown: name == "a stranger"}); len(fixed) != 1 || !strings.HasSuffix(fixed[0], "(fixed)") || len(totals) != 0 {
				t.Errorf("repaired %q %q", fixed, totals)
			}
			s.tied()
			s.Want("orders", "count() FROM "+s.Database+".orders", "11")
		})
	}
}

// What is not exported yet is waited for, not called a difference.
func TestReconcile_WaitsForTheExporter(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	s.stop()
	s.Delivered(s.today.Add(13 * time.Hour))
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today, Patience: 300 * time.Millisecond}, func(*Day) {})
	if !errors.Is(err, ErrBehind) || !strings.Contains(err.Error(), "6 entries") {
		t.Errorf("without an exporter: %v", err)
	}
	time.AfterFunc(500*time.Millisecond, s.startExport)
	s.tied()
}

// Orders that are created and move all the time are no differences either.
func TestReconcile_IsQuietUnderLoad(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ctx.Err() == nil; i++ {
			s.Delivered(s.today.Add(13*time.Hour + time.Duration(i)*time.Millisecond))
		}
	}()
	for range 3 {
		s.tied()
	}
	cancel()
	<-done
	s.AwaitExported()
	s.tied()
}

func TestReconcile_KeepsToItsScope(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	s.spoil("ALTER TABLE orders UPDATE status = 'Failed' WHERE 1")
	other := s.NewVendor().Account
	if found, _ := s.compare(Scope{From: s.today.AddDate(0, 0, -1), To: s.today.AddDate(0, 0, -1)}); len(found) != 0 {
		t.Errorf("another day: %q", found)
	}
	if found, _ := s.compare(Scope{From: s.today, To: s.today, Account: other}); len(found) != 0 {
		t.Errorf("another account: %q", found)
	}
	if found, _ := s.compare(Scope{From: s.today, To: s.today, Account: s.Vendor.Account}); len(found) != 10 {
		t.Errorf("this account: %q", found)
	}
}

// What has left Redis is known to have been there.
func TestReconcile_KnowsRetiredOrders(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	// An hour is retired when it is over: an event of a later one says so.
	s.EachKey("e", fmt.Sprintf(`redis.call('XADD', k, '%d-0', 'e', '\2evt_x')`,
		time.Now().Add(3*time.Hour).UnixMilli()))
	s.Consume(ledger.RoleStatus)
	s.Consume(ledger.RoleWebhook)
	s.AwaitExported()
	for p := range s.Ledger.Partitions() {
		if _, err := s.Ledger.Retire(t.Context(), p, time.Now().Add(48*time.Hour), 1000); err != nil {
			t.Fatal(err)
		}
	}
	err := s.reconciler.Run(t.Context(), Scope{From: s.today, To: s.today}, func(d *Day) {
		if d.Compared != 0 || d.Retired != 10 || !d.Tied() {
			t.Errorf("%+v", d)
		}
	})
	if err != nil {
		t.Error(err)
	}
}

func TestReconcile_ClickHouseAwayIsAnError(t *testing.T) {
	t.Parallel()
	engine := testserver.DedicatedClickHouse(t)
	s := archiveenv.On(testenv.New(t), engine)
	engine.Kill(t)
	err := New(s.Ledger, s.Archive).Run(t.Context(), Scope{From: time.Now(), To: time.Now()}, func(*Day) {})
	if !errors.Is(err, delivery.ErrUnavailable) {
		t.Errorf("%v", err)
	}
}
