package closing

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/journal"
)

// Every night one closed month is verified, each in its turn, and what was falsified is found whichever
// month it is in.
func TestVerifyInTurn_FindsWhatIsFalsifiedInAnyMonth(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	for _, m := range []Month{october, october.Next()} {
		e.store(e.order(m.Add(12*time.Hour), delivery.Delivered, 25000))
		e.close(m)
	}

	night := func() (string, []string) {
		t.Helper()
		e.clock = e.clock.Add(24 * time.Hour)
		m, findings := e.verifyInTurn()
		return m.String(), findings
	}

	wantNight := func(month string, findings int) {
		t.Helper()
		got, found := night()
		if got != month || len(found) != findings {
			t.Errorf("%s was verified and has %q, want %s and %d findings", got, found, month, findings)
		}
	}

	wantNight("2025-10", 0)
	wantNight("2025-11", 0)

	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".closed_days UPDATE cash_expected = cash_expected - 100 WHERE day = '2025-11-01' SETTINGS mutations_sync = 2")

	wantNight("2025-10", 0)
	verified, findings := night()
	if verified != "2025-11" || len(findings) == 0 || !strings.Contains(strings.Join(findings, "\n"), "the sums of 2025-11-01") {
		t.Errorf("%s: %q", verified, findings)
	}

	_, r, err := e.books.readReview(t.Context())
	testenv.Must(t, err)
	if found, _ := summarize(e.log(), r, e.clock); found != len(findings) {
		t.Errorf("%d findings are shown, want %d", found, len(findings))
	}

	e.ClickHouse.Exec(t, "ALTER TABLE "+e.Database+".closed_days UPDATE cash_expected = cash_expected + 100 WHERE day = '2025-11-01' SETTINGS mutations_sync = 2")
	e.clock = e.clock.Add(24 * time.Hour)
	months, err := e.books.MonthsToVerify(t.Context())
	testenv.Must(t, err)
	if !slices.Equal(months, []Month{october, october.Next()}) {
		t.Errorf("%v are verified, want October, whose turn it is, and November, which has findings", months)
	}

	_, err = e.books.VerifyMonth(t.Context(), months[1], nil)
	testenv.Must(t, err)
	_, r, err = e.books.readReview(t.Context())
	testenv.Must(t, err)
	if found, _ := summarize(e.log(), r, e.clock); found != 0 {
		t.Errorf("%d findings are shown after a repair", found)
	}
}

func TestMonthsToVerify_AreThoseOfTheLog(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	months, err := e.books.MonthsToVerify(t.Context())
	testenv.Must(t, err)
	if len(months) > 0 {
		t.Errorf("without a closed month: %v", months)
	}
	if got := e.verify().String(); got != "nothing is decided yet" {
		t.Errorf("of books in which nothing was decided: %q", got)
	}

	e.store(e.order(october.Add(12*time.Hour), delivery.Delivered, 25000))
	e.close(october)
	madeUp := e.order(october.AddDate(-5, 0, 0), delivery.Failed, 100)
	e.storeLate(&madeUp, madeUp.EndedAt) // whoever can write to ClickHouse makes up a month of long ago
	months, err = e.books.MonthsToVerify(t.Context())
	testenv.Must(t, err)
	if !slices.Equal(months, []Month{october}) {
		t.Errorf("%v are verified, want October alone", months)
	}

	// A turn that was noted by a clock that was ahead is none.
	now := time.Now()
	tried := map[string]verification{"2025-10": {Tried: now.Add(time.Hour)}, "2025-11": {Tried: now.Add(-time.Hour)}}
	if next := nextToVerify([]Month{october.Next(), october}, tried, now); next != october {
		t.Errorf("%s is next, want October", next)
	}
}

// The books cannot stand still in silence, and what the last night found is shown by whichever process, from its start on.
func TestWatch_ShowsTheBooksAndWhatTheLastNightFound(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	o := e.order(october.Add(12*time.Hour), delivery.Delivered, 25000)
	e.store(o)
	e.close(october)

	shows := func(what, name string, value float64) {
		t.Helper()
		reg := prometheus.NewRegistry()
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan struct{})
		go func() {
			defer close(watched)
			e.books.Watch(ctx, reg)
		}()

		e.Await(what, func() bool { return gauge(t, reg, name) == value })
		cancel()
		<-watched
	}

	const readable = "reporting_books_readable"
	shows("as they are", readable, 1)

	o.Collection.Minor++
	e.store(o)
	NewNightly(e.books, nil, prometheus.NewRegistry())(t.Context())
	shows("when the night ended", "reporting_closings_last_completed_timestamp_seconds", float64(e.clock.Unix()))
	shows("what waits for a person", "reporting_closed_orders_unexplained", 1)

	foreign := journal.Entry{Text: "nonsense"}
	testenv.Must(t, e.Archive.InsertEntry(t.Context(), &foreign))
	shows("with a foreign row", readable, 0)
	e.ClickHouse.Exec(t, "DELETE FROM "+e.Database+".journal WHERE text = 'nonsense' SETTINGS lightweight_deletes_sync = 2")

	e.ClickHouse.Exec(t, "DELETE FROM "+e.Database+".journal WHERE sequence = 1 SETTINGS lightweight_deletes_sync = 2")
	shows("without an entry", readable, 0)
}

// gauge is the value of a gauge; -1 while it is not there.
func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	testenv.Must(t, err)
	for _, family := range families {
		if family.GetName() == name {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}
