package export

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/stack"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/archive/archiveenv"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// env can start exporters, which have the rights that they ship with.
type env struct{ *archiveenv.System }

func newEnv(t *testing.T) *env {
	t.Helper()
	return &env{archiveenv.New(t)}
}

// export starts an exporter; stop waits for its end.
func (e *env) export(consumer string) (x *Exporter, stop func()) {
	e.T.Helper()
	quick := Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Second}
	x = New(e.OpenAs(stack.ReportingUser), e.Archive, quick, consumer, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return x, e.Start(x.Run)
}

func TestExport_WritesOrdersAndEvents(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	delivered, failed, open := s.Vendor.Order("", time.Now()), s.Vendor.Order("", time.Now()), s.Vendor.Order("", time.Now())
	e, _ := s.export("x1")
	s.AwaitExported()
	s.Want("fresh orders", "count(), countIf(status = 'Searching') FROM "+s.Database+".orders", "3\t3")
	s.Move(delivered, delivery.Delivered, time.Now())
	s.Change(failed.ID, delivery.Change{Status: delivery.Failed, At: time.Now(), Failure: delivery.CourierIncident})
	s.AwaitExported()
	s.Want("orders", "countIf(status = 'Delivered'), countIf(status = 'Failed' AND failure_reason = 'CourierIncident'), sum(expected_collection) FROM "+s.Database+".orders", "1\t1\t123.45")
	s.Want("events", "count(), uniq(event_id) FROM "+s.Database+".order_events", "9\t9")
	s.Want("event ids", fmt.Sprintf("event_id = '%s' FROM %s.order_events WHERE order_id = '%s'", delivery.EventID(open.ID, open.Version), s.Database, open.ID), "1")
	s.Want("the store", "uniq(store_name, tax_number), any(store_name), any(tax_number) FROM "+s.Database+".orders", "1\tKadıköy Şube\t1234567890")
	s.Want("times", fmt.Sprintf("created_at = toDateTime64('%s', 3, 'Etc/GMT-3'), isNull(picked_up_at), isNull(ended_at) FROM %s.orders WHERE order_id = '%s'",
		open.CreatedAt.In(delivery.Istanbul).Format("2006-01-02 15:04:05.000"), s.Database, open.ID), "1\t1\t1")
	if n := testenv.Value(t, e.metrics.rows.WithLabelValues("order_events")); n != 9 {
		t.Errorf("%v rows of events counted", n)
	}
}

func TestExport_WritesOutcomesAndLateDeliveries(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	o := s.Vendor.Order("", time.Now())
	s.Move(o, delivery.Assigned, time.Now())
	s.Send(nil) // no endpoint: not sent
	s.Change(o.ID, delivery.Change{Status: delivery.Failed, At: time.Now(), Failure: delivery.TimedOut})
	s.Reach(o, delivery.Delivered, time.Now())
	s.Decide()
	s.export("x1")
	s.AwaitExported()
	s.Want("outcomes", "count(), any(state), any(order_id) FROM "+s.Database+".webhook_outcomes WHERE order_id IS NOT NULL", "1\tnotSent\t"+o.ID.String())
	s.Want("late deliveries", "count(), any(order_id) FROM "+s.Database+".late_deliveries", "1\t"+o.ID.String())
}

// An entry has one row, with what came of it, however often the streams are exported.
func TestExport_WritesAuditEntriesOnce(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	_, stop := s.export("x1")
	note := func(id string, version int, account delivery.AccountID, outcome string) {
		t.Helper()
		testenv.Must(t, s.Ledger.Audit.Append(t.Context(), &audit.Entry{At: time.Now().Truncate(time.Hour), ID: id, Version: version, Actor: "ayşe",
			Action: "account changed", Account: account, Old: "{}", New: `{"name":"ğ"}`, Outcome: outcome}))
	}

	note("a", 1, s.Vendor.Account, "")
	note("b", 1, delivery.AccountID{}, "")
	s.AwaitExported()
	note("a", 2, s.Vendor.Account, "INTERNAL_ERROR")
	note("b", 1, delivery.AccountID{}, "") // a repetition, because its answer was lost
	s.AwaitExported()
	for range 2 {
		s.Want("entries", "arrayStringConcat(arraySort(groupArray(id || version::String || actor || outcome || new_values)), ' ') FROM "+s.Database+".audit",
			`a2ayşeINTERNAL_ERROR{"name":"ğ"} b1ayşe{"name":"ğ"}`)
		stop()
		s.SetExportBack()
		_, stop = s.export("x2")
		s.AwaitExported()
	}
}

// Every attempt to deliver an event has its row, however often it is exported,
// and not only those that fit into the endpoint's log in Redis.
func TestExport_WritesEveryAttempt(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	_, _, err := s.Ledger.Webhooks.SetURL(t.Context(), s.Vendor.Account, "http://127.0.0.1:1/")
	if err != nil {
		t.Fatal(err)
	}

	_, stop := s.export("x1")
	s.AwaitExported()
	o := s.Vendor.Order("", time.Now())
	s.Move(o, delivery.Assigned, time.Now())
	const failures = 230
	for range failures {
		s.attempt(false)
	}

	s.AwaitExported() // so that the last attempt is in another millisecond: its stream is another one, and ids name the rows
	s.attempt(true)
	s.AwaitExported()
	stop()
	s.SetExportBack()
	s.export("x2")
	s.AwaitExported()
	table := s.Database + ".webhook_outcomes WHERE order_id = '" + o.ID.String() + "'"
	s.Want("attempts", "count(), uniqExact(attempt), min(attempt), max(attempt), uniqExact(event_id) FROM "+table, "231\t231\t1\t231\t1")
	s.Want("failures", "count(), any(http_status), any(error), any(milliseconds) FROM "+table+" AND state = 'retrying'", "230\t500\tstatus: 500\t12")
	s.Want("the end", "attempt, http_status, state FROM "+table+" AND state != 'retrying'", "231\t200\tdelivered")
}

// The streams of tries and of outcomes number their entries apart: an event may
// stand in both under the same number, and has a row of each, exported twice too.
func TestExport_AStreamsEntryNeverReplacesTheOthers(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	var batch archive.Batch
	for _, state := range []string{"retrying", "undelivered", "retrying", "undelivered"} {
		e := &partitions.Entry{ID: "1795284000000-0", Outcomes: []partitions.AttemptRecord{
			{Account: s.Vendor.Account, EventID: "evt_1", At: time.UnixMilli(1_795_284_000_000), State: state}}}
		batch.Outcomes = append(batch.Outcomes, outcomeRows(e)...)
	}

	if err := s.Archive.Insert(t.Context(), &batch); err != nil {
		t.Fatal(err)
	}

	s.Want("rows", "count(), uniqExact(state) FROM "+s.Database+".webhook_outcomes FINAL", "2\t2")
}

// attempt plays the sending of the one event that waits.
func (s *env) attempt(ok bool) {
	s.T.Helper()
	sent := s.Send(func(*partitions.Scheduled) partitions.AttemptRecord {
		if ok {
			return partitions.AttemptRecord{State: partitions.StateDelivered, HTTPStatus: 200, Millis: 12}
		}
		return partitions.AttemptRecord{State: partitions.StateRetrying, HTTPStatus: 500, Error: "status: 500", Answer: "sorry", Millis: 12, NextAt: time.Now()}
	})
	if len(sent) != 1 {
		s.T.Fatalf("%d events were sent", len(sent))
	}
}

// The group may be set back to the beginning at any time: the same rows come
// again and count once.
func TestExport_EverythingTwiceCountsOnce(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	for range 20 {
		s.Move(s.Vendor.Order("", time.Now()), delivery.Delivered, time.Now())
	}

	_, stop := s.export("x1")
	s.AwaitExported()
	totals := "count(), sum(order_amount), sum(expected_collection) FROM " + s.Database + ".orders"
	before := s.Ask(totals)
	stop()
	s.SetExportBack()
	s.export("x2")
	s.AwaitExported()
	if after := s.Ask(totals); after != before || before != "20\t2469\t2469\n" {
		t.Errorf("%q, then %q", before, after)
	}

	s.Want("events", "count() FROM "+s.Database+".order_events", "120")
}

func TestExport_ReplicasShareTheWork(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	s.export("x1")
	s.export("x2")
	for range 50 {
		s.Vendor.Order("", time.Now())
	}

	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "50")
}

func TestExport_CountsEventsWhoseOrderIsGone(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	s.Vendor.Order("", time.Now())
	s.EachRecord("o", "redis.call('DEL', k)")
	s.Vendor.Order("", time.Now())
	e, _ := s.export("x1")
	s.AwaitExported()
	s.Want("orders", "count() FROM "+s.Database+".orders", "1")
	if n := testenv.Value(t, e.metrics.missing); n != 1 {
		t.Errorf("%v missing orders counted", n)
	}
}

func TestRebuild_RestoresWhatRedisHolds(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	for range 30 {
		s.Move(s.Vendor.Order("", time.Now()), delivery.Delivered, time.Now())
	}

	s.Vendor.Order("", time.Now().Add(-48*time.Hour))
	late := s.Vendor.Order("", time.Now().Add(-48*time.Hour))
	s.Change(late.ID, delivery.Change{Status: delivery.Failed, At: late.CreatedAt, Failure: delivery.TimedOut})
	s.Reach(late, delivery.Delivered, time.Now())
	s.Send(nil)
	_, stop := s.export("x1")
	s.AwaitExported()
	stop()
	figures := func() string {
		return s.Ask("count(), sum(expected_collection), (SELECT count() FROM " + s.Database + ".order_events), (SELECT count() FROM " + s.Database +
			".webhook_outcomes), (SELECT count() FROM " + s.Database + ".late_deliveries) FROM " + s.Database + ".orders")
	}

	before := figures()
	for _, table := range []string{"orders", "order_events", "webhook_outcomes", "late_deliveries"} {
		s.ClickHouse.Exec(t, "TRUNCATE TABLE "+s.Database+"."+table)
	}

	today := archive.BusinessDay(time.Now().Add(-time.Hour))
	done, err := Rebuild(t.Context(), s.Ledger, s.Archive, today, func(Rebuilt) {})
	// An order of before that was reported as delivered since comes along.
	if err != nil || done.Orders != 31 || done.Events != 180 || done.Late != 1 || done.Outcomes != 151 {
		t.Errorf("%+v %v", done, err)
	}

	s.Want("orders of today", "count() FROM "+s.Database+".orders", "31")
	for range 2 { // again is harmless
		_, err = Rebuild(t.Context(), s.Ledger, s.Archive, today.AddDate(0, 0, -7), func(Rebuilt) {})
		if err != nil {
			t.Fatal(err)
		}
	}

	if after := figures(); after != before {
		t.Errorf("%q, before %q", after, before)
	}
}
