package reports

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/journal"
)

// questions are periods that begin and end at turns, each with some filters.
func questions() (all []asked) {
	filters := []asked{
		{account: sampleAccounts[1].String()}, {fleet: fleets[0].String()}, {store: storeIDs[0]},
		{account: sampleAccounts[0].String(), fleet: fleets[1].String(), store: storeIDs[2]},
	}

	for i, days := range [][2]string{
		{"2026-10-29", "2028-03-05"}, {"2026-11-01", "2026-11-30"}, {"2026-10-31", "2026-11-01"}, {"2026-11-15", "2026-11-15"},
		{"2026-12-31", "2026-12-31"}, {"2027-01-01", "2027-01-01"}, {"2026-12-31", "2027-01-01"}, {"2027-02-28", "2027-03-01"},
		{"2028-02-28", "2028-02-28"}, {"2028-02-29", "2028-02-29"}, {"2028-02-01", "2028-02-29"}, {"2028-03-01", "2028-03-31"}, {"2030-01-01", "2030-01-31"},
	} {
		for _, q := range []asked{{}, filters[i%len(filters)]} {
			q.from, q.to = days[0], days[1]
			all = append(all, q)
		}
	}

	for _, q := range filters {
		q.from, q.to = "2026-10-29", "2028-03-05"
		all = append(all, q)
	}

	return all
}

func without(rows [][]string, column int) [][]string {
	for i := range rows {
		rows[i] = slices.Delete(rows[i], column, column+1)
	}
	return rows
}

//rule:what-the-service-does/facts-that/payment-handling-the-service-stores order-creation-request/orderAmount states/a-delivered-reported-after-that states/a-delivered-without-a-courier
//rule:finance/reports-each/1 finance/reports-each/2 finance/reports-each/3 finance/reports-each/4 finance/reports-each/5
func TestReports_EqualAnIndependentCalculation(t *testing.T) {
	t.Parallel()

	a, s := exampleArchive(t)
	for i, q := range questions() {
		if !testserver.Long && i < 26 && (i/2+i)%2 > 0 { // of each period one of its two questions
			continue
		}
		requireReports(t, a, live, s, q)
		if i%10 == 0 || testserver.Long && i%3 == 0 { // it reads the four others
			requireControl(t, a, s, q)
		}
	}
}

func requireControl(t *testing.T, a *archive.Archive, s sample, q asked) {
	t.Helper()
	sameRows(t, fmt.Sprintf("control-totals %+v", q), without(plain(t, a, control, q.params()), control.Column("sha256")), s.control(q))
}

// As long as nothing changes, booked reports are what live ones are, before a month is closed and after it, and so is what
// is known of closed months.
func TestBookedReports_EqualTheSameCalculation(t *testing.T) {
	t.Parallel()

	open, s := exampleArchive(t)
	closed := archiveOf(t, s)
	closeUntil(t, closed, "2027-01-31")
	whole, november := asked{from: "2026-10-29", to: "2028-03-05"}, asked{from: "2026-11-01", to: "2026-11-30", fleet: fleets[0].String()}
	aYearsEnd, afterClosing := asked{from: "2026-12-31", to: "2027-01-01"}, asked{from: "2027-02-28", to: "2027-03-01"}
	carriesIn := asked{from: "2026-11-30", to: "2027-01-01"} // orders of the weeks before

	for _, c := range []struct {
		archive   *archive.Archive
		books     books
		questions []asked
	}{
		{open, asBooked, []asked{whole, carriesIn, aYearsEnd}},
		{closed, asBooked, []asked{whole, carriesIn, afterClosing}},
		{closed, asKnown, []asked{november, carriesIn}},
	} {
		for _, q := range c.questions {
			requireReports(t, c.archive, c.books, s, q)
			rows := plainOf(t, c.archive, control, c.books, q.params())
			sameRows(t, fmt.Sprintf("control-totals%s %+v", c.books, q), without(rows, control.Column("sha256")), s.control(q))
		}
	}
}

// closeUntil freezes what there is until a day, and writes an entry that says so.
func closeUntil(t *testing.T, a *archive.Archive, day string) {
	t.Helper()
	last := moment(day + "T00:00:00.000+03:00")
	batch := uuid.New()
	noError(t, a.Freeze(t.Context(), batch, last.AddDate(-1, 0, 0), last))
	noError(t, a.InsertDays(t.Context(), batch))
	entry := journal.Entry{Text: fmt.Sprintf(`{"sequence":1,"kind":"close","month":"%s","batch":"%s","at":"2028-06-01T12:00:00+03:00"}`, day[:len("2027-01")], batch)}
	noError(t, a.InsertEntry(t.Context(), &entry))
}

// requireReports compares four reports, from the views of some books, with the sample.
func requireReports(t *testing.T, a *archive.Archive, b books, s sample, q asked) {
	t.Helper()
	what, p := fmt.Sprintf("%s, %+v", b, q), q.params()
	sameRows(t, ledger.Name+what, plainOf(t, a, ledger, b, p), s.ledger(q))
	sameRows(t, collections.Name+what, plainOf(t, a, collections, b, p), s.collections(q))
	sameRows(t, statement.Name+what, plainOf(t, a, statement, b, p), s.statement(q))
	sameRows(t, exceptions.Name+what, without(plainOf(t, a, exceptions, b, p), 1), s.exceptions(q))
}

// plainOf are the rows of a report as csv-plain has them, from the views of some books, whichever count now.
func plainOf(t *testing.T, a *archive.Archive, r *Report, b books, p Params) [][]string {
	t.Helper()
	var out bytes.Buffer
	sink := CSVPlain.Sink(&out)
	noError(t, sink.Begin(r, p))
	noError(t, r.readRows(t.Context(), a, r.selection(b)+b.settings(), &p, sink.Row))
	noError(t, sink.End(r.nothing()))

	return readCSV(t, out.Bytes(), ',', r)
}

// Which day and month an order is in: each is in a store of its own.
//
//rule:finance/days-are-cut-at-00-00
func TestReports_CutDaysAtLocalMidnight(t *testing.T) {
	t.Parallel()

	cases := []struct{ created, delivered, createdDay, deliveredDay string }{
		{"2026-11-21T23:59:59.999+03:00", "2026-11-22T00:00:00.000+03:00", "2026-11-21", "2026-11-22"},
		{"2026-11-30T23:59:59.999+03:00", "2026-11-30T23:59:59.999+03:00", "2026-11-30", "2026-11-30"},
		{"2026-11-30T23:59:59.999+03:00", "2026-12-01T00:00:00.000+03:00", "2026-11-30", "2026-12-01"},
		{"2026-12-31T23:59:59.999+03:00", "2027-01-01T00:00:00.000+03:00", "2026-12-31", "2027-01-01"},
		{"2028-02-28T23:59:59.999+03:00", "2028-02-29T00:00:00.000+03:00", "2028-02-28", "2028-02-29"},
		{"2028-02-29T23:59:59.999+03:00", "2028-03-01T00:00:00.000+03:00", "2028-02-29", "2028-03-01"},
		{"2027-02-28T23:59:59.999+03:00", "2027-03-01T00:00:00.000+03:00", "2027-02-28", "2027-03-01"},
	}

	var s sample
	var collected, months [][]string
	for i, c := range cases {
		created, delivered, name := moment(c.created), moment(c.delivered), fmt.Sprint("store-", i)
		s.orders = append(s.orders, archive.Order{
			Account: sampleAccounts[0], ID: delivery.MakeOrderID(1, delivery.DayOf(created), delivery.OrderDigest(sampleAccounts[0], name)),
			Version: 7, ExternalOrderID: name, ExternalStoreID: name, Status: delivery.Delivered,
			CreatedAt: created, ReadyAt: created, PickedUpAt: created, DeliveredAt: delivered, EndedAt: delivered, UpdatedAt: delivered,
			PaymentType: delivery.Cash, OrderAmount: delivery.Money{Minor: 24990, Set: true}, Collection: delivery.Money{Minor: 24990, Set: true},
		})

		collected = append(collected, []string{c.deliveredDay, name})
		for _, month := range slices.Compact([]string{c.createdDay[:7], c.deliveredDay[:7]}) {
			months = append(months, []string{month, name})
		}
	}

	a := archiveOf(t, s)
	for i, c := range cases {
		p := Params{Store: fmt.Sprint("store-", i)}
		created, delivered := period(t, c.createdDay, c.createdDay).From, period(t, c.deliveredDay, c.deliveredDay).From
		for _, look := range []struct {
			report *Report
			day    Day
			rows   int
		}{{ledger, created, 1}, {ledger, created + 1, 0}, {collections, delivered - 1, 0}, {collections, delivered, 1}} {
			p.From, p.To = look.day, look.day
			if rows := plain(t, a, look.report, p); len(rows) != look.rows {
				t.Errorf("%s on %s: %q", look.report.Name, p.String(), rows)
			}
		}
	}

	periodAndStore := func(r *Report) (rows [][]string) {
		for _, row := range plain(t, a, r, allDays.params()) {
			rows = append(rows, []string{row[0], row[4]})
		}
		return rows
	}

	slices.SortFunc(collected, slices.Compare)
	slices.SortFunc(months, slices.Compare)
	sameRows(t, "collections", periodAndStore(collections), collected)
	sameRows(t, "statement", periodAndStore(statement), months)
}

//rule:finance/reports-each/5
func TestControlTotals_HaveTheDigestOfEachReport(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	for _, q := range []asked{{from: "2026-11-01", to: "2026-11-30", account: sampleAccounts[0].String()}, {from: "2035-01-01", to: "2035-01-01"}} {
		digests := map[string]string{}
		for _, row := range plain(t, a, control, q.params()) {
			digests[row[0]] = row[control.Column("sha256")]
		}

		for _, r := range []*Report{ledger, collections, statement, exceptions} {
			b, _ := written(t, a, r, q.params(), CSVPlain)
			if sum := sha256.Sum256(b); digests[r.Name] != hex.EncodeToString(sum[:]) {
				t.Errorf("%s: %s, the file has %x", r.Name, digests[r.Name], sum)
			}
		}

		if len(digests) != 7 || digests["carried-in"] != "" {
			t.Errorf("%v", digests)
		}
	}
}

// untied returns the control totals that should equal those of another report, and do not.
func untied(t *testing.T, a *archive.Archive, p Params) string {
	t.Helper()
	var lines []string
	for _, row := range plain(t, a, control, p) {
		if verdict := row[control.Column("ties")]; verdict != "" && verdict != "yes" {
			lines = append(lines, row[0])
		}
	}
	return strings.Join(lines, " ")
}

// An order that lasted longer than the reports by day of end look back must not
// be lost in silence.
//
//rule:finance/reports-each/5
func TestControlTotals_TellOfAnOrderThatNoReportFinds(t *testing.T) {
	t.Parallel()

	s := samples(50).Example(4)
	o := &s.orders[0]
	o.Status, o.CreatedAt = delivery.Delivered, moment("2026-11-15T12:00:00.000+03:00")
	o.DeliveredAt = o.CreatedAt.AddDate(0, 0, 33)
	o.EndedAt = o.DeliveredAt
	a := archiveOf(t, s)
	for p, want := range map[Params]string{
		period(t, "2026-12-01", "2026-12-31"): "",                                     // it reaches back into November
		period(t, "2026-12-18", "2026-12-18"): "expected-collections fleet-statement", // it does not reach back far enough
	} {
		if got := untied(t, a, p); got != want {
			t.Errorf("%s: %q do not tie, want %q", p.String(), got, want)
		}
	}
}

// A kind that the view has and the list lacks could not be asked for.
func TestExceptionKinds_AreThoseOfTheReport(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	counts := map[string]int{}
	for _, row := range plain(t, a, exceptions, p) {
		counts[row[0]]++
	}

	for p.Kind = range ExceptionKinds() {
		if got := len(plain(t, a, exceptions, p)); got == 0 || got != counts[p.Kind] {
			t.Errorf("%s: %d rows, want %d", p.Kind, got, counts[p.Kind])
		}
		delete(counts, p.Kind)
	}

	if len(counts) > 0 {
		t.Errorf("not in the list: %v", counts)
	}
}

// The parameters bind as values.
func TestReports_TakeNoSQLFromParameters(t *testing.T) {
	t.Parallel()

	a, _ := exampleArchive(t)
	p := allDays.params()
	for _, store := range []string{"' OR 1 = 1 --", `\`, "')", "{from:Date}", "moda' --"} {
		p.Store = store
		if rows := plain(t, a, ledger, p); len(rows) != 0 {
			t.Errorf("store %q: %d rows", store, len(rows))
		}
	}
}

func TestSummary_AddsUpWhatTheRowsShow(t *testing.T) {
	t.Parallel()

	a, s := exampleArchive(t)
	q := allDays
	var steps []int64
	summary, err := ledger.Run(t.Context(), a, q.params(), CSVPlain.Sink(&strings.Builder{}), func(rows int64) { steps = append(steps, rows) })
	noError(t, err)
	var orders, amount, collection, expect int64
	for i := range s.orders {
		if o := &s.orders[i]; q.covers(o.CreatedAt) {
			orders++
			amount, collection, expect = amount+o.OrderAmount.Minor, collection+o.Collection.Minor, expect+expected(o)
		}
	}

	if summary.Rows != orders || ledger.Total(summary, "orderAmount") != amount ||
		ledger.Total(summary, "collectionAmount") != collection || ledger.Total(summary, "expectedCollection") != expect {
		t.Errorf("%+v, wanted %d rows, %d, %d, %d", summary, orders, amount, collection, expect)
	}

	if len(steps) == 0 || steps[len(steps)-1] != orders {
		t.Errorf("progress said %v", steps)
	}
	if untied(t, a, q.params()) != "" {
		t.Error("the control totals do not equal each other")
	}
}

// Finance has built upon these names and their order; what is added comes besides.
//
//rule:finance/reports-each/1 finance/reports-each/2 finance/reports-each/3 finance/reports-each/4 finance/reports-each/5
func TestReports_HaveTheColumnsThatWereDecided(t *testing.T) {
	t.Parallel()

	decided := map[string]string{
		"order-ledger": "orderId externalOrderId externalStoreId storeName taxNumber fleetId fleetName status failureReason createdAt orderedAt " +
			"pickedUpAt deliveredAt endedAt paymentType orderAmount collectionAmount expectedCollection currency",
		"expected-collections": "deliveredCount cashCount cashExpected cardCount cardExpected prepaidCount prepaidAmount",
		"fleet-statement":      "created delivered failed cancelled orderAmountDelivered cashExpected cardExpected",
		"exceptions":           "kind orderId orderAmount collectionAmount",
		"control-totals":       "rows orderAmountDelivered sha256",
	}

	for _, r := range All() {
		keys := slices.DeleteFunc(keysOf(r), func(key string) bool { return !slices.Contains(strings.Fields(decided[r.Name]), key) })
		if got := strings.Join(keys, " "); got != decided[r.Name] {
			t.Errorf("%s has %s", r.Name, got)
		}
	}

	if n := len(All()); n != len(decided) {
		t.Errorf("%d reports", n)
	}
}
