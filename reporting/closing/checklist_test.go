package closing

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/promises"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
	"vendorapi/reporting/reconcile"
)

// compareAll notes a clean look at each day of a month, as it is now.
func (e *env) compareAll(m Month) {
	e.T.Helper()
	stored, err := e.Archive.DigestRows(e.T.Context(), m.Time, m.LastDay())
	testenv.Must(e.T, err)
	digests := map[string]archive.Digest{}
	for _, day := range stored {
		digests[day.Day] = day.Orders
	}

	for day := m.Time; !day.After(m.LastDay()); day = day.AddDate(0, 0, 1) {
		e.noteLook(day, reconcile.Comparison{Clean: &reconcile.Look{At: m.Next().Time, Digest: digests[day.Format(time.DateOnly)]}})
	}
}

// noteLook replaces what is noted of a day's comparisons.
func (e *env) noteLook(day time.Time, c reconcile.Comparison) {
	e.T.Helper()
	name := day.Format(time.DateOnly)
	before, err := e.Ledger.Books.Comparisons(e.T.Context(), []string{name})
	testenv.Must(e.T, err)
	text, err := json.Marshal(c)
	testenv.Must(e.T, err)
	testenv.Must(e.T, e.Ledger.Books.SetComparison(e.T.Context(), name, before[0], string(text)))
}

// Each line of the checklist by itself: what breaks it, and whether a note is enough to hold the month all the same.
func TestChecklist_EachLineHoldsUpTheMonth(t *testing.T) {
	t.Parallel()

	e, october := newEnv(t), month("2025-10")
	over := october.Next().Add(48 * time.Hour)
	at := october.AddDate(0, 0, 20).Add(12 * time.Hour)
	e.store(e.order(at, delivery.Delivered, 100))

	// An order that breaks a line ends like any other, and is compared, before the next line is broken.
	var breaking archive.Order
	add := func(change func(o *archive.Order)) {
		breaking = e.order(at, delivery.Delivered, 100)
		whole := breaking
		change(&breaking)
		e.store(breaking)
		e.compareAll(october)
		breaking = whole
		breaking.Version = 1<<32 | 8
	}

	repair := func() { e.store(breaking) }
	e.Vendor.Order("", at) // waits for the exporter
	unexported, err := e.Ledger.Streams.Lag(t.Context(), ledger.RoleExport)
	testenv.Must(t, err)
	e.compareAll(october)

	for _, c := range []struct {
		what   string
		change func()
		repair func()
		broken string // the key of a line; empty: none is
		note   bool   // is enough

		// reports are calculated, as they always are outside of tests.
		reports bool
	}{
		{
			what:   "an entry that has waited for the exporter for less than a minute",
			change: func() { e.clock = unexported.Oldest.Add(59 * time.Second) },
		},
		{
			what:   "an entry that has waited for the exporter for a minute",
			change: func() { e.clock = unexported.Oldest.Add(time.Minute) },
			repair: func() { e.Consume(ledger.RoleExport) },
			broken: "exported",
		},
		{what: "nothing", reports: true},
		{
			what:   "a second before 48 hours have passed",
			change: func() { e.clock = over.Add(-time.Second) },
			broken: "over",
		},
		{
			what: "an order that searches",
			change: func() {
				add(func(o *archive.Order) {
					o.Status, o.EndedAt, o.DeliveredAt = delivery.Searching, time.Time{}, time.Time{}
				})
			},
			repair: repair,
			broken: "ended",
		},
		{
			what: "an order that is on its way",
			change: func() {
				add(func(o *archive.Order) {
					o.Status, o.EndedAt, o.DeliveredAt = delivery.Delivering, time.Time{}, time.Time{}
				})
			},
			repair: repair,
			broken: "ended",
		},
		{
			what:   "an order that ended before its month began",
			change: func() { add(func(o *archive.Order) { o.EndedAt = o.EndedAt.AddDate(0, 0, -40) }) },
			repair: repair,
			broken: "balanced", reports: true,
		},
		{
			what:   "cash without an amount to collect",
			change: func() { add(func(o *archive.Order) { o.Collection = delivery.Money{} }) },
			repair: repair,
			broken: "exceptions", note: true, reports: true,
		},
		{
			what:   "a day that was never compared",
			change: func() { e.noteLook(october.AddDate(0, 0, 30), reconcile.Comparison{}) },
			broken: "compared", note: true,
		},
		{
			what: "a day with an open difference beside a clean look",
			change: func() {
				e.noteLook(october.Time, reconcile.Comparison{Clean: &reconcile.Look{}, Open: &reconcile.Look{Differences: 1}})
			},
			broken: "compared", note: true,
		},
		{
			what: "a day whose orders are not those that were compared",
			change: func() {
				e.noteLook(october.AddDate(0, 0, 20), reconcile.Comparison{Clean: &reconcile.Look{Digest: archive.Digest{Rows: 1, SHA256: "x"}}})
			},
			broken: "compared", note: true,
		},
		{
			what: "a dead letter",
			change: func() {
				e.Do("EVAL", testenv.PrefixesLua+"redis.call('XADD', prefixes()[1] .. 'z', '*', 'stream', 'x', 'entry', '1-1')", 0)
			},
			repair: func() { e.Do("EVAL", testenv.PrefixesLua+"redis.call('DEL', prefixes()[1] .. 'z')", 0) },
			broken: "dead-letters", note: true,
		},
	} {
		e.clock = over
		e.books.reports = oneReport
		if c.reports {
			e.books.reports = everyReport
		}

		if c.change != nil {
			c.change()
		}

		list, err := e.books.Checklist(t.Context(), e.log(), october)
		testenv.Must(t, err)

		var broken []string
		for _, line := range list {
			if !line.OK {
				broken = append(broken, line.Key)
			}
		}

		if got := strings.Join(broken, " "); got != c.broken {
			t.Errorf("%s breaks %q, want %q: %+v", c.what, got, c.broken, list)
		}

		isAllowed := c.broken == ""
		if without := allowsHold(list, ""); (without == nil) != isAllowed {
			t.Errorf("%s, without a note: %v", c.what, without)
		}
		if with := allowsHold(list, "seen"); (with == nil) != (isAllowed || c.note) {
			t.Errorf("%s, with a note: %v", c.what, with)
		}

		if c.repair != nil {
			c.repair()
		}

		e.compareAll(october)
	}

	// What is refused is not held; and a month of which all is as it has to be needs no note.
	e.clock = over.Add(-time.Second)
	refused := decide(t.Context(), e.books, KindHold, october, "ayse", "seen")
	if !errors.Is(refused, ErrRefused) || !strings.Contains(fmt.Sprint(refused), "not so: The month is over") {
		t.Errorf("a second too early: %v", refused)
	}

	e.clock = over
	testenv.Must(t, decide(t.Context(), e.books, KindHold, october, "ayse", ""))
	held := e.log().Held
	if held == nil || slices.ContainsFunc(held.Checklist, func(c Check) bool { return !c.OK }) {
		t.Errorf("%+v", held)
	}

	e.noteLook(at, reconcile.Comparison{Open: &reconcile.Look{Differences: 1}}) // found after the hold
	refused = decide(t.Context(), e.books, KindClose, october, "ece", "")
	if !errors.Is(refused, ErrRefused) || !strings.Contains(fmt.Sprint(refused), "are not any more those that were compared with Redis") {
		t.Errorf("closed beside a difference: %v", refused)
	}

	e.compareAll(october)
	e.closeLosesTheRace(october)
}

// The month before must be closed, and none twice; the first hold is of whatever month.
func TestCheckPrevious_MonthsAreClosedInTheirOrder(t *testing.T) {
	t.Parallel()

	october := month("2025-10")
	november := october.Next()
	closed := &Log{Last: &Entry{Manifest: Manifest{Month: october}}}
	for _, c := range []struct {
		what   string
		log    *Log
		months []Month
		want   bool
	}{
		{"the first", &Log{}, []Month{october}, true},
		{"the first, with the month before", &Log{}, []Month{october, november}, true},
		{"the next one", closed, []Month{november}, true},
		{"one that is closed", closed, []Month{october}, false},
		{"one before it", closed, []Month{month("2025-09")}, false},
		{"a month is left out", closed, []Month{november.Next()}, false},
	} {
		var held []HeldMonth
		for _, m := range c.months {
			held = append(held, HeldMonth{Month: m})
		}
		check := checkPrevious(c.log, held)
		if check.OK != c.want || check.NeedsNote || check.Key != "previous" {
			t.Errorf("%s: %+v", c.what, check)
		}
	}
}

// The documents name these.
func TestPromises_Figures(t *testing.T) {
	t.Parallel()

	closing := promises.In(t, promises.Closing)
	closing.Promises(Grace, 48*time.Hour, "From 48 hours after a month's end")
	closing.Promises(exportedWithin, time.Minute, "everything exported (at most a minute behind)")
	closing.Promises(confirmedWithin, 10*24*time.Hour, "if Redis confirms it within ten days of creation")
	closing.Promises(mostDays, 396, "Missed days come later, at most 396")

	operations := promises.In(t, promises.Operations)
	operations.Promises(lookInterval, time.Minute, "Each target is looked at every minute")
	operations.Promises(setsAtOnce, 20, "a look delivers at most 20 sets of files")
	operations.Promises(failuresAtOnce, 3, "and ends after 3 failures")
	operations.Promises(foldersAtOnce, 9, "tries at most 9 folders for one day")
	operations.Promises(permanentPause, time.Hour, "within an hour after any other error")
	operations.Promises(clockTolerance, time.Hour, "by a clock that was more than an hour ahead")

	security := promises.In(t, promises.Security)
	security.Promises(ordersAtOnce, 500, "it books at most 500 corrections")
	security.Promises(journal.MaxNamed, 100, "names at most 100 rows")
	security.Promises(journal.MaxText, 524_288, "512 kB: it books")
}

// Reports of a day are due at the local time that deliver.daily names, after the day's end.
func TestParseDaily_HasHoursAndMinutes(t *testing.T) {
	t.Parallel()

	for text, want := range map[string]time.Duration{"07:00": 7 * time.Hour, "07:30": 450 * time.Minute, "00:00": 0, "23:59": 1439 * time.Minute} {
		if got := parseDaily(text); got == nil || *got != want {
			t.Errorf("%s: %v, want %s", text, got, want)
		}
	}

	if got := parseDaily(""); got != nil {
		t.Errorf("without a time: %s", *got)
	}
}

// A closing is refused, or somebody releases the month meanwhile, or it cannot be signed any more: nothing was decided,
// and no row of it stays. The month must be held, with every day compared.
func (e *env) closeLosesTheRace(m Month) {
	e.T.Helper()
	lose := func(what string, meanwhile func(), want error) {
		e.T.Helper()
		e.books.step = func(step string) {
			if step == "added up" {
				meanwhile()
			}
		}

		err := decide(e.T.Context(), e.books, KindClose, m, "ece", "")
		e.books.step = func(string) {}
		if !errors.Is(err, want) {
			e.T.Errorf("%s: %v", what, err)
		}

		e.Want(what+": rows, sums", "(SELECT count() FROM "+e.Database+".closed_orders), (SELECT count() FROM "+e.Database+".closed_days)", "0\t0")
	}

	_, err := e.books.Decide(e.T.Context(), Decision{Kind: KindClose, Month: m, By: "ece", Held: "the seal of another hold"}, func(string) {})
	if !errors.Is(err, ErrChanged) {
		e.T.Errorf("another hold than was seen: %v", err)
	}

	e.noteLook(m.Time, reconcile.Comparison{Clean: &reconcile.Look{}, Open: &reconcile.Look{Differences: 1}})
	lose("a day does not count as compared any more", func() {}, ErrRefused)
	e.compareAll(m)

	keys := e.books.keys
	lose("the keys are gone", func() { e.books.keys = journal.Keys{} }, errNotSigned)
	e.books.keys = keys
	other := e.newBooks()
	lose("it was released", func() { testenv.Must(e.T, decide(e.T.Context(), other, KindRelease, m, "ayse", "")) }, ErrChanged)
}
