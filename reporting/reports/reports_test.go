package reports

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// questions are periods that begin and end at turns, each with some filters.
func questions() (all []asked) {
	filters := []asked{
		{account: accounts[1].String()}, {fleet: fleets[0].String()}, {store: storeIDs[0]},
		{account: accounts[0].String(), fleet: fleets[1].String(), store: storeIDs[2]},
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

// unescaped takes off what csv-plain puts before a text like a formula. No text
// of the stories begins with an apostrophe.
func unescaped(rows [][]string) [][]string {
	for _, row := range rows {
		for i := range row {
			row[i] = strings.TrimPrefix(row[i], "'")
		}
	}
	return rows
}

func without(rows [][]string, column int) [][]string {
	for i := range rows {
		rows[i] = slices.Delete(rows[i], column, column+1)
	}
	return rows
}

//rule:what-the-service-does/facts-that/payment-handling-the-service-stores order-creation-request/orderAmount states/a-delivered-reported-after-that
//rule:finance/reports-each/1 finance/reports-each/2 finance/reports-each/3 finance/reports-each/4 finance/reports-each/5
func TestReports_EqualAnIndependentCalculation(t *testing.T) {
	t.Parallel()
	s := stories(900).Example(1)
	a := archiveOf(t, s)
	for i, q := range questions() {
		what := fmt.Sprintf("%+v", q)
		p := q.params()
		sameRows(t, "order-ledger "+what, unescaped(plain(t, a, ledger, p)), s.ledger(q))
		sameRows(t, "expected-collections "+what, unescaped(plain(t, a, collections, p)), s.collections(q))
		sameRows(t, "fleet-statement "+what, unescaped(plain(t, a, statement, p)), s.statement(q))
		sameRows(t, "exceptions "+what, without(unescaped(plain(t, a, exceptions, p)), 1), s.exceptions(q))
		if i%3 == 0 { // it reads the four others
			sameRows(t, "control-totals "+what, without(plain(t, a, control, p), len(control.Columns)-1), s.control(q))
		}
	}
}

// One order after the other, each in a store of its own: which day and month it
// is in.
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
	var s story
	for i, c := range cases {
		created, delivered, name := moment(c.created), moment(c.delivered), fmt.Sprint("store-", i)
		s.orders = append(s.orders, archive.Order{
			Account: accounts[0], ID: delivery.MakeOrderID(1, delivery.DayOf(created), delivery.OrderDigest(accounts[0], name)),
			Version: 7, ExternalOrderID: name, ExternalStoreID: name, Status: delivery.Delivered,
			CreatedAt: created, ReadyAt: created, PickedUpAt: created, DeliveredAt: delivered, EndedAt: delivered, UpdatedAt: delivered,
			PaymentType: delivery.Cash, OrderAmount: delivery.Money{Minor: 24990, Set: true}, Collection: delivery.Money{Minor: 24990, Set: true},
		})
	}
	a := archiveOf(t, s)
	for i, c := range cases {
		first, last := DayOf(moment(c.created)), DayOf(moment(c.delivered))
		p := Params{Store: fmt.Sprint("store-", i)}
		for day := first - 1; day <= last+1; day++ {
			p.From, p.To = day, day
			requireRows(t, a, ledger, p, day.String() == c.createdDay)
			requireRows(t, a, collections, p, day.String() == c.deliveredDay)
			requireRows(t, a, statement, p, day.String() == c.createdDay || day.String() == c.deliveredDay)
		}
		p.From, p.To = first, last
		if rows := plain(t, a, collections, p); len(rows) != 1 || rows[0][0] != c.deliveredDay || rows[0][8] != "249.90" {
			t.Errorf("%+v: %q", c, rows)
		}
		var months []string
		for _, row := range plain(t, a, statement, p) {
			months = append(months, row[0])
		}
		if want := slices.Compact([]string{c.createdDay[:7], c.deliveredDay[:7]}); !slices.Equal(months, want) {
			t.Errorf("%+v: months %v", c, months)
		}
	}
}

func requireRows(t *testing.T, a *archive.Archive, r *Report, p Params, want bool) {
	t.Helper()
	if rows := plain(t, a, r, p); (len(rows) == 1) != want || len(rows) > 1 {
		t.Errorf("%s on %s: %q", r.Name, p.String(), rows)
	}
}

//rule:finance/reports-each/5
func TestControlTotals_HaveTheDigestOfEachReport(t *testing.T) {
	t.Parallel()
	s := stories(120).Example(2)
	a := archiveOf(t, s)
	for _, q := range []asked{{from: "2026-10-01", to: "2028-12-31"}, {from: "2026-11-01", to: "2026-11-30", account: accounts[0].String()}, {from: "2035-01-01", to: "2035-01-01"}} {
		digests := map[string]string{}
		for _, row := range plain(t, a, control, q.params()) {
			digests[row[0]] = row[len(row)-1]
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

func TestReports_AreTheSameBytesEveryTime(t *testing.T) {
	t.Parallel()
	s := stories(200).Example(3)
	one, other := archiveOf(t, s), archiveOf(t, s)
	p := period(t, "2026-10-01", "2028-12-31")
	for _, r := range All() {
		b, _ := written(t, one, r, p, CSVPlain)
		again, _ := written(t, other, r, p, CSVPlain)
		if string(b) != string(again) {
			t.Errorf("%s differs", r.Name)
		}
	}
}

// An order that lasted longer than the reports by day of end look back must not
// be lost in silence.
func TestControlTotals_TellOfAnOrderThatNoReportFinds(t *testing.T) {
	t.Parallel()
	s := stories(50).Example(4)
	o := &s.orders[0]
	o.Status, o.CreatedAt = delivery.Delivered, moment("2026-11-15T12:00:00.000+03:00")
	o.DeliveredAt = o.CreatedAt.AddDate(0, 0, 33)
	o.EndedAt = o.DeliveredAt
	a := archiveOf(t, s)
	for p, want := range map[Params]bool{
		period(t, "2026-12-01", "2026-12-31"): true,  // it reaches back into November
		period(t, "2026-12-18", "2026-12-18"): false, // it does not reach back far enough
		period(t, "2026-11-15", "2026-11-15"): true,
	} {
		got, err := ties(t.Context(), a, p)
		if err != nil || got != want {
			t.Errorf("%s: ties %v, %v", p.String(), got, err)
		}
	}
}

// The parameters bind as values.
func TestReports_TakeNoSQLFromParameters(t *testing.T) {
	t.Parallel()
	a := archiveOf(t, stories(20).Example(5))
	p := period(t, "2026-10-01", "2028-12-31")
	for _, store := range []string{"' OR 1 = 1 --", `\`, "')", "{from:Date}", "moda' --"} {
		p.Store = store
		if rows := plain(t, a, ledger, p); len(rows) != 0 {
			t.Errorf("store %q: %d rows", store, len(rows))
		}
	}
}

func TestSummary_AddsUpWhatTheRowsShow(t *testing.T) {
	t.Parallel()
	s := stories(300).Example(6)
	a := archiveOf(t, s)
	q := asked{from: "2026-10-01", to: "2028-12-31"}
	var steps []int64
	summary, err := ledger.Run(t.Context(), a, q.params(), NewSink(CSVPlain, &strings.Builder{}), func(rows int64) { steps = append(steps, rows) })
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
	if tied, err := ties(t.Context(), a, q.params()); err != nil || !tied {
		t.Errorf("ties %v, %v", tied, err)
	}
}
