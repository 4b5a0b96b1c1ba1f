package reports

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

// The reports once more, worked out from the sample in whole kuruş and without
// anything that the reports themselves are made of. Rows are as csv-plain has
// them.

var local = time.FixedZone("", 3*3600)

func dayText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(local).Format("2006-01-02")
}

func timeText(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.In(local).Format("2006-01-02T15:04:05.000-07:00")
}

func lira(kurus int64) string { return fmt.Sprintf("%d.%02d", kurus/100, kurus%100) }

func moneyText(m delivery.Money) string {
	if !m.Set {
		return ""
	}
	return lira(m.Minor)
}

// asked are the parameters as texts; days compare as texts do.
type asked struct{ from, to, account, fleet, store string }

func (q asked) params() Params {
	p, err := Values{From: q.from, To: q.to, Account: q.account, Fleet: q.fleet, Store: q.store}.Parse(time.Time{})
	if err != nil {
		panic(err)
	}
	return p
}

func (q asked) covers(t time.Time) bool {
	day := dayText(t)
	return day != "" && q.from <= day && day <= q.to
}

func (q asked) about(o *archive.Order) bool {
	return (q.account == "" || q.account == o.Account.String()) &&
		(q.fleet == "" || q.fleet == o.Fleet.String()) && (q.store == "" || q.store == o.ExternalStoreID)
}

// oldestFirst are the sample's orders that the question is about,
// by creation, then by id.
func (s sample) oldestFirst(q asked) []*archive.Order {
	var all []*archive.Order
	for i := range s.orders {
		if q.about(&s.orders[i]) {
			all = append(all, &s.orders[i])
		}
	}

	slices.SortFunc(all, func(a, b *archive.Order) int {
		return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), strings.Compare(a.ID.String(), b.ID.String()))
	})

	return all
}

func expected(o *archive.Order) int64 {
	if o.Status == delivery.Delivered && (o.PaymentType == delivery.Cash || o.PaymentType == delivery.Card) {
		return o.Collection.Minor
	}
	return 0
}

func (s sample) ledger(q asked) (rows [][]string) {
	for _, o := range s.oldestFirst(q) {
		if !q.covers(o.CreatedAt) {
			continue
		}

		rows = append(rows, []string{
			o.ID.String(), o.ExternalOrderID, o.ExternalStoreID, o.StoreName, o.TaxNumber, o.Fleet.String(), o.FleetName,
			o.Status.String(), string(o.Failure), timeText(o.CreatedAt), timeText(o.OrderedAt), timeText(o.PickedUpAt), timeText(o.DeliveredAt), timeText(o.EndedAt),
			o.PaymentType.String(), moneyText(o.OrderAmount), moneyText(o.Collection), lira(expected(o)), "TRY",
			string(o.Cancel), o.CourierName, "", "", "", o.Account.String(),
		})
	}

	return rows
}

// figures are what a group, or all, adds up to.
type figures struct {
	created, orders, delivered, failed, cancelled int64
	cashCount, cardCount, prepaidCount            int64
	cashWithoutAmount, noPaymentType              int64
	amount, cash, card, prepaid, untyped          int64
	fleetName, storeName                          string
}

// name takes the names of an order that is younger than all before.
func (f *figures) name(o *archive.Order) {
	f.fleetName = o.FleetName
	if o.StoreName != "" {
		f.storeName = o.StoreName
	}
}

// end counts an order that has ended.
func (f *figures) end(o *archive.Order) {
	f.orders++
	switch o.Status {
	case delivery.Failed:
		f.failed++
	case delivery.Cancelled:
		f.cancelled++
	case delivery.Delivered:
		f.delivered++
		f.amount += o.OrderAmount.Minor
		switch o.PaymentType {
		case delivery.Cash:
			f.cashCount++
			f.cash += expected(o)
			if !o.Collection.Set {
				f.cashWithoutAmount++
			}
		case delivery.Card:
			f.cardCount++
			f.card += expected(o)
		case delivery.Prepaid:
			f.prepaidCount++
			f.prepaid += o.OrderAmount.Minor
		case delivery.PaymentUnknown:
			f.noPaymentType++
			f.untyped += o.OrderAmount.Minor
		}
	}
}

type group struct{ when, account, fleet, store string }

// grouped are the groups in the order of their keys.
func grouped(groups map[group]*figures) (keys []group) {
	for k := range groups {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b group) int {
		return cmp.Or(cmp.Compare(a.when, b.when), cmp.Compare(a.account, b.account), cmp.Compare(a.fleet, b.fleet), cmp.Compare(a.store, b.store))
	})
	return keys
}

func at(groups map[group]*figures, when string, o *archive.Order) *figures {
	k := group{when, o.Account.String(), o.Fleet.String(), o.ExternalStoreID}
	if groups[k] == nil {
		groups[k] = &figures{}
	}
	return groups[k]
}

func number(n int64) string { return fmt.Sprint(n) }

func (s sample) collections(q asked) (rows [][]string) {
	groups := map[group]*figures{}
	for _, o := range s.oldestFirst(q) {
		if o.Status == delivery.Delivered && q.covers(o.DeliveredAt) {
			f := at(groups, dayText(o.DeliveredAt), o)
			f.name(o)
			f.end(o)
		}
	}

	for _, k := range grouped(groups) {
		f := groups[k]
		rows = append(rows, []string{
			k.when, k.account, k.fleet, f.fleetName, k.store, f.storeName, number(f.delivered),
			number(f.cashCount), lira(f.cash), number(f.cardCount), lira(f.card), number(f.prepaidCount), lira(f.prepaid),
			number(f.cashWithoutAmount), number(f.noPaymentType), lira(f.untyped), "",
		})
	}

	return rows
}

func (s sample) statement(q asked) (rows [][]string) {
	groups := map[group]*figures{}
	for _, o := range s.oldestFirst(q) {
		if q.covers(o.CreatedAt) {
			f := at(groups, dayText(o.CreatedAt)[:7], o)
			f.name(o)
			f.created++
		}

		if q.covers(o.EndedAt) {
			f := at(groups, dayText(o.EndedAt)[:7], o)
			f.name(o)
			f.end(o)
		}
	}

	for _, k := range grouped(groups) {
		f := groups[k]
		rows = append(rows, []string{
			k.when, k.account, k.fleet, f.fleetName, k.store, f.storeName,
			number(f.created), number(f.delivered), number(f.failed), number(f.cancelled), lira(f.amount), lira(f.cash), lira(f.card),
			number(f.prepaidCount), lira(f.prepaid), number(f.noPaymentType), lira(f.untyped), "",
		})
	}

	return rows
}

// kinds are those of an order's exceptions, but for LateDelivery.
func kinds(o *archive.Order) (all []string) {
	made := delivery.OrderDraft{OrderAmount: o.OrderAmount, Payment: delivery.Payment{Type: o.PaymentType, CollectionAmount: o.Collection}}
	for warning := range made.PaymentWarnings {
		all = append(all, warning.Kind)
	}

	if (o.Status == delivery.Failed || o.Status == delivery.Cancelled) && o.Collection.Minor > 0 {
		all = append(all, "CollectionUndelivered")
	}

	if o.WithoutCourier {
		all = append(all, "CourierMissing")
	}

	slices.Sort(all)

	return all
}

// exceptions leaves out the second column, the reason.
func (s sample) exceptions(q asked) (rows [][]string) {
	for _, o := range s.oldestFirst(q) {
		if !q.covers(o.CreatedAt) {
			continue
		}

		row := func(kind string, reported time.Time) {
			rows = append(rows, []string{
				kind, o.Account.String(), o.ID.String(), o.ExternalOrderID, o.ExternalStoreID, o.StoreName, o.Fleet.String(), o.FleetName,
				o.Status.String(), string(o.Failure), timeText(o.CreatedAt), timeText(o.EndedAt), timeText(reported),
				o.PaymentType.String(), moneyText(o.OrderAmount), moneyText(o.Collection),
				string(o.Cancel), o.CourierName, "", "",
			})
		}

		all := kinds(o)
		for _, kind := range all {
			if kind < "LateDelivery" {
				row(kind, time.Time{})
			}
		}

		for _, l := range s.late { // in the order of their times
			if l.Order == o.ID {
				row("LateDelivery", l.ReportedAt)
			}
		}

		if slices.Contains(all, "PaymentTypeMissing") {
			row("PaymentTypeMissing", time.Time{})
		}
	}

	return rows
}

// control leaves out the digest.
func (s sample) control(q asked) [][]string {
	var ledger, in, out, ended figures
	var found, withFound int64
	orders := s.oldestFirst(q)
	for _, o := range orders {
		created, over := q.covers(o.CreatedAt), q.covers(o.EndedAt)
		if created {
			ledger.created++
			ledger.end(o)
		}

		if over {
			ended.end(o)
		}

		if !created && over {
			in.end(o)
		}

		if created && !over {
			out.end(o)
		}
	}

	seen := map[string]bool{}
	for _, row := range s.exceptions(q) {
		found++
		if !seen[row[2]] {
			withFound++
		}
		seen[row[2]] = true
	}

	sums := func(f figures) []string {
		return []string{number(f.orders), number(f.delivered), number(f.failed), number(f.cancelled), lira(f.amount), lira(f.cash), lira(f.card), lira(f.prepaid), lira(f.untyped)}
	}
	line := func(name, rows, created string, figures []string, ties string) []string {
		return slices.Insert(append([]string{name, rows, created}, figures...), 11, ties) // the column before the last
	}
	created := number(ledger.created)

	return [][]string{
		line("order-ledger", created, created, sums(ledger), ""),
		line("carried-in", "", "", sums(in), ""),
		line("carried-out", "", "", sums(out), ""),
		line("ended-in-period", "", "", sums(ended), ""),
		line(collections.Name, number(int64(len(s.collections(q)))), "", []string{"", number(ended.delivered), "", "", "", lira(ended.cash), lira(ended.card), lira(ended.prepaid), lira(ended.untyped)}, "yes"),
		line(statement.Name, number(int64(len(s.statement(q)))), created, sums(ended), "yes"),
		line(exceptions.Name, number(found), "", []string{number(withFound), "", "", "", "", "", "", "", ""}, ""),
	}
}
