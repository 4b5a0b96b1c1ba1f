package closing

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// The books once more, in whole kuruş: what was booked when, and what the reports make of it. Nothing
// of it comes from what the reports are made of.

// line is a row of the books.
type line struct {
	order    archive.Order // as it was when it was booked
	entry    int
	sign     int    // 0: a late delivery was reported
	posted   string // a day
	of       string // the first day of the closed month; empty: it is no correction
	cause    string
	recorded string // the day on which it became visible
	late     time.Time
}

type model struct {
	known  map[delivery.OrderID]archive.Order
	late   map[delivery.OrderID][]time.Time
	redis  map[delivery.OrderID]archive.Order // what Redis says of those that it holds
	lines  []line
	closed []Month
}

func newModel() *model {
	return &model{known: map[delivery.OrderID]archive.Order{}, late: map[delivery.OrderID][]time.Time{}, redis: map[delivery.OrderID]archive.Order{}}
}

const never = "9999"

// isClosed reports whether an order belongs to a closed month.
func (m *model) isClosed(o *archive.Order) bool {
	return len(m.closed) > 0 && dayText(o.CreatedAt) <= dayText(m.closed[len(m.closed)-1].LastDay())
}

// open are the lines of orders in months that are not closed.
func (m *model) open() (all []line) {
	for id, o := range m.known {
		if m.isClosed(&o) {
			continue
		}
		all = append(all, line{order: o, entry: 1, sign: 1, posted: dayText(o.CreatedAt)})
		for _, at := range m.late[id] {
			all = append(all, line{order: o, posted: dayText(o.CreatedAt), late: at})
		}
	}

	return all
}

// booked are the lines that were visible at the end of a day.
func (m *model) booked(asOf string) (all []line) {
	for _, l := range m.lines {
		if l.recorded <= asOf {
			all = append(all, l)
		}
	}
	return append(all, m.open()...)
}

type said struct {
	id    delivery.OrderID
	entry int
}

// knownOn are the lines of closed months as they were known at the end of a day.
func (m *model) knownOn(asOf string) (all []line) {
	reversed := map[said]bool{}
	for _, l := range m.lines {
		if l.sign < 0 && l.recorded <= asOf {
			reversed[said{l.order.ID, l.entry}] = true
		}
	}

	for _, l := range m.lines {
		if l.sign > 0 && l.recorded <= asOf && !reversed[said{l.order.ID, l.entry}] {
			l.posted, l.of = dayText(l.order.CreatedAt), ""
			all = append(all, l)
		}
	}

	return all
}

// knownNow are the orders as they are.
func (m *model) knownNow() (all []line) {
	for _, o := range m.known {
		all = append(all, line{order: o, sign: 1, posted: dayText(o.CreatedAt)})
	}
	return all
}

// last is what an order's last entry is, and its number; nil: it was reversed, or there is none.
func (m *model) last(id delivery.OrderID) (*archive.Order, int) {
	var o *archive.Order
	entry := 0
	for i := range m.lines {
		l := &m.lines[i]
		switch {
		case l.order.ID != id:
		case l.sign > 0:
			o, entry = &l.order, l.entry
		case l.sign < 0:
			o = nil
		}
	}

	return o, entry
}

// close freezes all that is open up to the end of the month.
func (m *model) close(month Month, today string) {
	end := dayText(month.LastDay())
	for _, l := range m.open() {
		if l.posted <= end {
			l.recorded = today
			m.lines = append(m.lines, l)
		}
	}

	m.closed = append(m.closed, month)
}

// same compares what is not as it was when a row was exported.
func same(a, b *archive.Order) bool {
	x, y := *a, *b
	for _, o := range []*archive.Order{&x, &y} {
		o.StoreName, o.TaxNumber, o.FleetName, o.CourierName = "", "", "", ""
		o.OrderedAt, o.ReadyAt, o.AssignedAt, o.UpdatedAt = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		for _, at := range []*time.Time{&o.CreatedAt, &o.PickedUpAt, &o.DeliveredAt, &o.EndedAt} {
			if !at.IsZero() {
				*at = time.UnixMilli(at.UnixMilli()).UTC()
			}
		}
	}

	return x == y
}

// pending are the orders of closed months that are not booked as they are known, with the cause, and the late deliveries
// that are not booked.
func (m *model) pending() (orders map[delivery.OrderID]string, late []line) {
	orders = map[delivery.OrderID]string{}
	ids := map[delivery.OrderID]bool{}
	for id := range m.known {
		ids[id] = true
	}

	seen := map[string]bool{}
	for _, l := range m.lines {
		ids[l.order.ID] = true
		seen[fmt.Sprint(l.order.ID, l.late.UnixMilli())] = true
	}

	for id := range ids {
		now, there := m.known[id]
		before, _ := m.last(id)
		switch {
		case before == nil && !there, there && !m.isClosed(&now):
		case before == nil:
			orders[id] = CauseAdded
		case !there:
			orders[id] = CauseRemoved
		case now.Version > before.Version:
			orders[id] = CauseNewer
		case !same(before, &now):
			orders[id] = CauseChanged
		}

		// What is known to be delivered has no delivery that came too late.
		hasFailed := now.Status == delivery.Failed || now.Status == delivery.Cancelled
		if there && m.isClosed(&now) && hasFailed {
			for _, at := range m.late[id] {
				if !seen[fmt.Sprint(id, at.UnixMilli())] {
					late = append(late, line{order: now, late: at, cause: CauseLate})
				}
			}
		}
	}

	return orders, late
}

// correct books what explains itself and what is named; it returns that, as texts, and what is left.
func (m *model) correct(clock time.Time, named ...delivery.OrderID) (booked []string, left []delivery.OrderID) {
	today := dayText(clock)
	orders, late := m.pending()
	monthOf := func(o *archive.Order) string { return dayText(o.CreatedAt)[:8] + "01" }
	for id, cause := range orders {
		held, now := m.redis[id], m.known[id]
		isRecent := clock.Sub(archive.BusinessDay(now.CreatedAt)) < 10*24*time.Hour
		explained := (cause == CauseAdded || cause == CauseNewer) && same(&held, &now) && isRecent
		if !explained && !slices.Contains(named, id) {
			left = append(left, id)
			continue
		}

		booked = append(booked, id.String()+" "+cause)
		before, entry := m.last(id)
		if before != nil {
			m.lines = append(m.lines, line{order: *before, entry: entry, sign: -1, posted: today, of: monthOf(before), cause: cause, recorded: today})
		}

		if now, there := m.known[id]; there {
			m.lines = append(m.lines, line{order: now, entry: entry + 1, sign: 1, posted: today, of: monthOf(&now), cause: cause, recorded: today})
		}
	}

	for _, l := range late {
		booked = append(booked, l.order.ID.String()+" "+CauseLate)
		l.posted, l.of, l.recorded = today, monthOf(&l.order), today
		m.lines = append(m.lines, l)
	}

	slices.Sort(booked)
	slices.SortFunc(left, func(a, b delivery.OrderID) int { return cmp.Compare(a.String(), b.String()) })

	return booked, left
}

// query says which lines a report is about.
type query struct {
	from, to string
	account  delivery.AccountID
	fleet    delivery.FleetID
	store    string
}

func (q *query) covers(day string) bool { return day != "" && q.from <= day && day <= q.to }

func (q *query) about(o *archive.Order) bool {
	return (q.account.IsZero() || q.account == o.Account) && (q.fleet.IsZero() || q.fleet == o.Fleet) && (q.store == "" || q.store == o.ExternalStoreID)
}

func (q *query) params(basis reports.Basis) reports.Params {
	p := reports.Params{Account: q.account, Fleet: q.fleet, Store: q.store, Basis: basis}
	var err error
	p.From, err = reports.ParseDay(q.from)
	if err == nil {
		p.To, err = reports.ParseDay(q.to)
	}

	if err != nil {
		panic(err)
	}
	return p
}

// ended is the day on which a line counts as ended; empty: it has not.
func (l *line) ended() string {
	switch {
	case l.order.EndedAt.IsZero():
		return ""
	case l.of != "":
		return l.posted
	}
	return dayText(l.order.EndedAt)
}

func expected(o *archive.Order) int64 {
	if o.Status == delivery.Delivered && (o.PaymentType == delivery.Cash || o.PaymentType == delivery.Card) {
		return o.Collection.Minor
	}
	return 0
}

// figures are sums, each of a column of reports.
type figures map[string]int64

func (f figures) end(l *line) {
	o, sign := &l.order, int64(l.sign)
	add := func(key string, n int64) { f[key] += sign * n }
	add("orders", 1)
	switch o.Status {
	case delivery.Failed:
		add("failed", 1)
	case delivery.Cancelled:
		add("cancelled", 1)
	case delivery.Delivered:
		add("delivered", 1)
		add("deliveredCount", 1)
		add("orderAmountDelivered", o.OrderAmount.Minor)
		switch o.PaymentType {
		case delivery.Cash:
			add("cashCount", 1)
			add("cashExpected", o.Collection.Minor)
			if !o.Collection.Set {
				add("cashWithoutAmountCount", 1)
			}
		case delivery.Card:
			add("cardCount", 1)
			add("cardExpected", o.Collection.Minor)
		case delivery.Prepaid:
			add("prepaidCount", 1)
			add("prepaidAmount", o.OrderAmount.Minor)
		default:
			add("noPaymentTypeCount", 1)
			add("noPaymentTypeAmount", o.OrderAmount.Minor)
		}
	}
}

// The columns of a report that the model knows. A group whose sums are all 0 has no row.
var (
	collectionSums = strings.Fields("deliveredCount cashCount cashExpected cardCount cardExpected prepaidCount prepaidAmount cashWithoutAmountCount noPaymentTypeCount noPaymentTypeAmount")
	statementSums  = strings.Fields("created delivered failed cancelled orderAmountDelivered cashExpected cardExpected prepaidCount prepaidAmount noPaymentTypeCount noPaymentTypeAmount")
	modelled       = map[string][]string{
		"order-ledger":         strings.Fields("orderId storeName taxNumber fleetId status failureReason createdAt endedAt paymentType orderAmount collectionAmount expectedCollection correctionOf bookedOn booking"),
		"expected-collections": append(strings.Fields("day accountId fleetId externalStoreId correctionOf"), collectionSums...),
		"fleet-statement":      append(strings.Fields("month accountId fleetId externalStoreId correctionOf"), statementSums...),
		"exceptions":           strings.Fields("kind orderId status orderAmount collectionAmount reportedAt correctionOf bookedOn"),
	}
)

func amount(m delivery.Money, sign int) string {
	if !m.Set {
		return "-"
	}
	return strconv.FormatInt(int64(sign)*m.Minor, 10)
}

func orDash(text string) string { return cmp.Or(text, "-") }

func millis(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return strconv.FormatInt(t.UnixMilli(), 10)
}

// ledger are the rows of the order ledger, without an order.
func (q *query) ledger(lines []line) (rows []string) {
	for _, l := range lines {
		if l.sign == 0 || !q.about(&l.order) || !q.covers(l.posted) {
			continue
		}

		bookedOn, booking := "-", ""
		if l.of != "" {
			bookedOn, booking = l.posted, map[int]string{-1: "reversal", 1: "correction"}[l.sign]
		}

		o := &l.order
		rows = append(rows, strings.Join([]string{o.ID.String(), o.StoreName, o.TaxNumber, o.Fleet.String(), o.Status.String(), string(o.Failure), millis(o.CreatedAt),
			millis(o.EndedAt), o.PaymentType.String(), amount(o.OrderAmount, l.sign), amount(o.Collection, l.sign),
			strconv.FormatInt(int64(l.sign)*expected(o), 10), orDash(l.of), bookedOn, booking}, "|"))
	}

	slices.Sort(rows)

	return rows
}

type group struct{ when, account, fleet, store, of string }

func written(groups map[group]figures, keys []string) (rows []string) {
	for g, f := range groups {
		texts := []string{g.when, g.account, g.fleet, g.store, orDash(g.of)}
		all := int64(0)
		for _, key := range keys {
			texts = append(texts, strconv.FormatInt(f[key], 10))
			all |= f[key]
		}

		if all != 0 {
			rows = append(rows, strings.Join(texts, "|"))
		}
	}

	slices.Sort(rows)

	return rows
}

func at(groups map[group]figures, when string, l *line) figures {
	g := group{when, l.order.Account.String(), l.order.Fleet.String(), l.order.ExternalStoreID, l.of}
	if groups[g] == nil {
		groups[g] = figures{}
	}
	return groups[g]
}

func (q *query) collections(lines []line) []string {
	groups := map[group]figures{}
	for _, l := range lines {
		if q.about(&l.order) && l.sign != 0 && l.order.Status == delivery.Delivered && q.covers(l.ended()) {
			at(groups, l.ended(), &l).end(&l)
		}
	}
	return written(groups, collectionSums)
}

func (q *query) statement(lines []line) []string {
	groups := map[group]figures{}
	for _, l := range lines {
		if !q.about(&l.order) || l.sign == 0 {
			continue
		}

		if q.covers(l.posted) {
			at(groups, l.posted[:8]+"01", &l)["created"] += int64(l.sign)
		}

		if q.covers(l.ended()) {
			at(groups, l.ended()[:8]+"01", &l).end(&l)
		}
	}

	return written(groups, statementSums)
}

func (q *query) exceptions(lines []line) (rows []string) {
	for _, l := range lines {
		if l.sign < 0 || !q.about(&l.order) || !q.covers(l.posted) {
			continue
		}

		o := &l.order
		var kinds []string
		if l.sign == 0 {
			kinds = []string{"LateDelivery"}
		} else {
			made := delivery.OrderDraft{OrderAmount: o.OrderAmount, Payment: delivery.Payment{Type: o.PaymentType, CollectionAmount: o.Collection}}
			for warning := range made.PaymentWarnings {
				kinds = append(kinds, warning.Kind)
			}

			if (o.Status == delivery.Failed || o.Status == delivery.Cancelled) && o.Collection.Minor > 0 {
				kinds = append(kinds, "CollectionUndelivered")
			}

			if o.WithoutCourier {
				kinds = append(kinds, "CourierMissing")
			}
		}

		bookedOn := "-"
		if l.of != "" {
			bookedOn = l.posted
		}

		for _, kind := range kinds {
			rows = append(rows, strings.Join([]string{kind, o.ID.String(), o.Status.String(), amount(o.OrderAmount, 1), amount(o.Collection, 1), millis(l.late), orDash(l.of), bookedOn}, "|"))
		}
	}

	slices.Sort(rows)

	return rows
}

// control are the control totals: of each line what it has of the figures.
func (q *query) control(lines []line) map[string]figures {
	all := map[string]figures{"order-ledger": {}, "carried-in": {}, "carried-out": {}, "ended-in-period": {}, "exceptions": {}}
	for _, l := range lines {
		if l.sign == 0 || !q.about(&l.order) {
			continue
		}

		created, ended := q.covers(l.posted), q.covers(l.ended())
		if created {
			all["order-ledger"]["created"] += int64(l.sign)
			all["order-ledger"].end(&l)
		}

		switch {
		case created && !ended:
			all["carried-out"].end(&l)
		case !created && ended:
			all["carried-in"].end(&l)
		}

		if ended {
			all["ended-in-period"].end(&l)
		}
	}

	rows := func(line string, n []string) { all[line]["rows"] = int64(len(n)) }
	all["expected-collections"], all["fleet-statement"] = maps.Clone(all["ended-in-period"]), maps.Clone(all["ended-in-period"])
	all["fleet-statement"]["created"] = all["order-ledger"]["created"]
	rows("order-ledger", q.ledger(lines))
	rows("expected-collections", q.collections(lines))
	rows("fleet-statement", q.statement(lines))
	rows("exceptions", q.exceptions(lines))

	return all
}

// sums is the sum of the lines by a key, whatever the day on which they are booked.
func sums(lines []line, key func(*line) string) map[string]figures {
	all := map[string]figures{}
	for _, l := range lines {
		if l.sign == 0 {
			continue
		}

		k := key(&l)
		if all[k] == nil {
			all[k] = figures{}
		}

		all[k].end(&l)
		all[k]["expected"] += int64(l.sign) * expected(&l.order)
	}

	for k, f := range all {
		maps.DeleteFunc(f, func(_ string, n int64) bool { return n == 0 })
		if len(f) == 0 {
			delete(all, k)
		}
	}

	return all
}
