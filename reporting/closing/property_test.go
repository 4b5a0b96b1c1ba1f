package closing

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

// Whatever becomes known of closed months, in whatever order: nothing that was booked changes, and what was booked is in
// the end what is known, to the kuruş. The model of model_test.go says what each report must be.
func TestBooks_AreWhatTheModelSays(t *testing.T) {
	t.Parallel()
	seed := testserver.Seed(t)
	for i := range playsWanted() {
		t.Run(strconv.Itoa(i), func(t *testing.T) { newPlay(t).run(plays.Example(int(seed%1_000_000_000) + i)) })
	}
}

// In the gate one play of a few actions a month, else several with more.
func playsWanted() int   { return longOr(4, 1) }
func actionsAMonth() int { return longOr(10, 4) }

func longOr(long, gate int) int {
	if testserver.Long {
		return long
	}
	return gate
}

// draft is what is drawn of an order; numbers choose among what the play has.
type draft struct {
	account, store, fleet, storeName int
	status                           delivery.Status
	payment                          delivery.PaymentType
	amount, collection               delivery.Money
	offset, life                     time.Duration
	withoutCourier, inRedis          bool
}

type action struct {
	kind  string
	which int // of the orders that it can be about
	draft draft
	later time.Duration
	count int
}

// plan is some months, each with the orders that it begins with and what happens before it is closed.
type plan [][]action

var amounts = rapid.Custom(func(t *rapid.T) delivery.Money {
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		return delivery.Money{}
	case 1:
		return delivery.Money{Set: true, Minor: rapid.SampledFrom([]int64{0, 1, delivery.MaxMoneyMinor}).Draw(t, "edge")}
	}
	return delivery.Money{Set: true, Minor: rapid.Int64Range(0, 100_000).Draw(t, "amount")}
})

const monthsMilliseconds = 30 * 86400_000

var drafts = rapid.Custom(func(t *rapid.T) draft {
	d := draft{
		account: rapid.IntRange(0, 1).Draw(t, "account"), store: rapid.IntRange(0, 2).Draw(t, "store"), fleet: rapid.IntRange(0, 1).Draw(t, "fleet"),
		storeName: rapid.IntRange(0, 2).Draw(t, "name"),
		status:    rapid.SampledFrom([]delivery.Status{delivery.Delivered, delivery.Delivered, delivery.Delivered, delivery.Failed, delivery.Cancelled}).Draw(t, "status"),
		payment:   delivery.PaymentType(rapid.IntRange(0, int(delivery.Prepaid)).Draw(t, "payment")),
		amount:    amounts.Draw(t, "amount"), collection: amounts.Draw(t, "collection"),
		withoutCourier: rapid.IntRange(0, 4).Draw(t, "courier") == 0, inRedis: rapid.IntRange(0, 3).Draw(t, "redis") == 0,
	}

	if rapid.Bool().Draw(t, "collection is the amount") {
		d.collection = d.amount
	}

	// Many lie at the edges of days and of months.
	day := 86400_000
	d.offset = time.Millisecond * time.Duration(rapid.SampledFrom([]int{0, monthsMilliseconds - 1, 3 * day, 3*day - 1, 29*day + 86_000_000,
		rapid.IntRange(0, monthsMilliseconds-1).Draw(t, "offset"), rapid.IntRange(0, monthsMilliseconds-1).Draw(t, "other offset")}).Draw(t, "created"))
	d.life = time.Millisecond * time.Duration(rapid.SampledFrom([]int{0, 1, rapid.IntRange(0, 90*60_000).Draw(t, "life"),
		rapid.IntRange(0, 40*3600_000).Draw(t, "long life")}).Draw(t, "lasts"))

	return d
})

var kindsOfActions = []string{"order", "late", "late", "newer", "newer", "confirmed", "added", "added in Redis", "added open", "removed", "back", "changed", "renamed",
	"exported again", "correct", "correct", "book some", "book some", "book all", "next day", "next day"}

var plays = rapid.Custom(func(t *rapid.T) plan {
	p := make(plan, rapid.IntRange(2, longOr(4, 2)).Draw(t, "months"))
	for i := range p {
		for range rapid.IntRange(5, 9).Draw(t, "orders") {
			p[i] = append(p[i], action{kind: "order", draft: drafts.Draw(t, "order")})
		}
		for range actionsAMonth() {
			p[i] = append(p[i], action{kind: rapid.SampledFrom(kindsOfActions).Draw(t, "kind"), which: rapid.IntRange(0, 1000).Draw(t, "which"),
				draft: drafts.Draw(t, "draft"), later: time.Duration(rapid.IntRange(1, 47).Draw(t, "hours")) * time.Hour, count: rapid.IntRange(1, 3).Draw(t, "count")})
		}
	}

	return p
})

// play is a plan being carried out.
type play struct {
	*env
	*model
	t        *testing.T
	accounts []*testenv.Vendor
	fleets   []delivery.FleetID
	frozen   map[Month]map[string]string // each report of a closed month, as it was
	asked    []answer
	did      []string
}

// answer is one as of a day, which must stay what it is.
type answer struct {
	name  string
	q     query
	basis reports.Basis
	asOf  string
	text  string
}

func newPlay(t *testing.T) *play {
	e := newEnvWithReports(t)
	return &play{env: e, model: newModel(), t: t, accounts: []*testenv.Vendor{e.Vendor, e.NewVendor()}, fleets: []delivery.FleetID{e.Fleet.ID, delivery.NewFleetID()}, frozen: map[Month]map[string]string{}}
}

func (p *play) run(all plan) {
	m := month("2025-10")
	p.clock = m.Add(36 * time.Hour)
	defer func() {
		if p.t.Failed() {
			p.t.Logf("what was done:\n%s", strings.Join(p.did, "\n"))
		}
	}()

	for n, actions := range all {
		for i := range actions {
			p.act(m, &actions[i])
			if p.t.Failed() {
				return
			}
		}

		// What is booked between the end of a month and its closing is booked in the next one.
		p.tick(m.Next().Add(time.Hour).Sub(p.clock))
		p.act(m, &action{kind: "book some", which: 1, count: 2})
		p.tick(m.Next().Add(Grace + time.Hour).Sub(p.clock))
		p.closeMonth(m)
		isLast := n == len(all)-1
		if isLast || testserver.Long {
			p.requireAll()
		}

		if p.t.Failed() {
			return
		}

		m = m.Next()
	}

	p.tick(24 * time.Hour)
	p.act(m, &action{kind: "book all"})
	p.requireAll()
	p.requireBalance()
	for i := range p.asked {
		a := &p.asked[i]
		if now := p.text(a.name, a.q, a.basis, a.asOf); now != a.text {
			p.t.Errorf("%s, %s, as of %s was\n%s\nand is\n%s", a.name, a.basis, a.asOf, a.text, now)
		}
	}
}

func (p *play) today() string { return dayText(p.clock) }

// tick moves the clock; what was known on a day that ends is asked for.
func (p *play) tick(by time.Duration) {
	before := p.today()
	p.clock = p.clock.Add(by)
	if p.today() == before || len(p.closed) == 0 {
		return
	}

	q := query{from: dayText(p.closed[0].Time), to: dayText(p.closed[len(p.closed)-1].LastDay())}
	for _, basis := range []reports.Basis{reports.Known, reports.Booked} {
		lines := p.knownOn(before)
		if basis == reports.Booked {
			lines = p.booked(before)
		}
		name := names[len(p.asked)%len(names)]
		p.require(name, q, basis, before, lines)
		p.asked = append(p.asked, answer{name, q, basis, before, p.text(name, q, basis, before)})
	}
}

func (p *play) note(form string, args ...any) {
	p.did = append(p.did, p.clock.In(delivery.Istanbul).Format("2006-01-02 15:04 ")+fmt.Sprintf(form, args...))
}

// choose is one of the orders for which the condition holds; false: there is none.
func (p *play) choose(which int, condition func(o *archive.Order) bool) (archive.Order, bool) {
	var all []archive.Order
	for _, o := range p.known {
		if condition(&o) {
			all = append(all, o)
		}
	}

	slices.SortFunc(all, func(a, b archive.Order) int { return strings.Compare(a.ExternalOrderID, b.ExternalOrderID) })
	if len(all) == 0 {
		return archive.Order{}, false
	}

	return all[which%len(all)], true
}

func (p *play) act(m Month, a *action) {
	p.note("%s", a.kind)
	inClosed := p.isClosed
	switch a.kind {
	case "order":
		p.put(p.make(m, &a.draft))
	case "added", "added in Redis", "added open":
		if len(p.closed) == 0 {
			return
		}

		d, of := a.draft, p.closed[a.which%len(p.closed)]
		d.inRedis = false
		if a.kind == "added in Redis" { // so late that Redis can still hold it
			d.inRedis = true
			of = p.closed[len(p.closed)-1]
			d.offset = monthsMilliseconds*time.Millisecond - 1 - d.offset%(4*24*time.Hour)
		}

		if a.kind == "added open" {
			d.status = delivery.Assigned
		}

		p.put(p.later(p.make(of, &d)))
	case "confirmed":
		if o, found := p.choose(a.which, func(o *archive.Order) bool { return p.redis[o.ID].Version > o.Version && inClosed(o) }); found {
			p.put(p.later(o))
		}
	case "late":
		if o, found := p.choose(a.which, func(o *archive.Order) bool { return o.Status == delivery.Failed || o.Status == delivery.Cancelled }); found {
			at := time.UnixMilli(o.EndedAt.Add(a.later + time.Duration(len(p.late[o.ID]))*time.Second).UnixMilli())
			if slices.ContainsFunc(p.late[o.ID], at.Equal) {
				return
			}
			p.late[o.ID] = append(p.late[o.ID], at)
			p.reportLate(&o, at)
		}
	case "newer", "changed":
		if o, found := p.choose(a.which, func(o *archive.Order) bool { return p.redis[o.ID].Version == 0 }); found {
			d := a.draft
			d.offset = o.CreatedAt.Sub(month(dayText(o.CreatedAt)[:7]).Time)
			other := p.fill(o, &d)
			if a.kind == "newer" {
				other.Version++
			}
			p.put(other)
		}
	case "removed":
		if o, found := p.choose(a.which, inClosed); found {
			p.ClickHouse.Exec(p.t, fmt.Sprintf("DELETE FROM %s.orders WHERE order_id = '%s' SETTINGS lightweight_deletes_sync = 2", p.Database, o.ID))
			delete(p.known, o.ID)
		}
	case "back": // what was removed
		for i := range p.lines {
			if o := p.lines[i].order; p.lines[i].sign != 0 && p.known[o.ID].Version == 0 {
				p.put(o)
				break
			}
		}
	case "renamed":
		if o, found := p.choose(a.which, func(*archive.Order) bool { return true }); found {
			o.StoreName, o.TaxNumber, o.FleetName = "Çiğköfteci Ünal", "9876543210", "Şimşek"
			p.put(o)
		}
	case "exported again":
		all := slices.Collect(maps.Values(p.known))
		p.store(all...)
		for i := range all {
			all[i].Version--
			all[i].Status, all[i].Failure, all[i].Cancel, all[i].EndedAt, all[i].DeliveredAt = delivery.Searching, "", "", time.Time{}, time.Time{}
		}
		p.store(all...)
	case "correct":
		p.correct()
	case "book some", "book all":
		_, left := newPending(p.model)
		if a.kind == "book some" && len(left) > a.count {
			left = left[:a.count]
		}
		p.correct(left...)
	case "next day":
		// The month is not over before its actions are.
		if p.clock.Add(a.later + 24*time.Hour).Before(m.Next().Time) {
			p.tick(a.later + 24*time.Hour)
		}
	default:
		p.t.Fatal(a.kind)
	}

	p.requireFrozen(a.kind)
}

// newPending are the orders that wait for a person, in their order.
func newPending(m *model) (late int, left []delivery.OrderID) {
	orders, lines := m.pending()
	left = slices.SortedFunc(maps.Keys(orders), func(a, b delivery.OrderID) int { return strings.Compare(a.String(), b.String()) })
	return len(lines), left
}

// put stores an order as it is known now.
func (p *play) put(o archive.Order) {
	p.known[o.ID] = o
	p.store(o)
}

// later is what Redis says of an order, if it is in Redis.
func (p *play) later(o archive.Order) archive.Order {
	if now, found := p.redis[o.ID]; found {
		return now
	}
	return o
}

// make is a new order of a month. Of one that is in Redis it is an earlier version than that has.
func (p *play) make(m Month, d *draft) archive.Order {
	at := m.Add(d.offset)
	if d.inRedis {
		v := p.accounts[d.account]
		o := v.Order("", at)
		p.Move(o, delivery.Delivered, at.Add(d.life%time.Hour))
		row := archive.OrderOf(p.Read(o.ID), nil)
		row.StoreName, row.TaxNumber = "Moda", "0123456789"
		p.redis[o.ID] = row
		testenv.Must(p.t, p.Archive.InsertAgain(p.t.Context(), &archive.Batch{Events: archive.EventsOf(p.Read(o.ID))}))
		row.Version--
		row.Status, row.Failure, row.DeliveredAt, row.WithoutCourier = delivery.Failed, delivery.OtherFailure, time.Time{}, false
		return row
	}

	o := p.order(at, d.status, 0)
	o.Account, o.ExternalStoreID = p.accounts[d.account].Account, []string{"moda", "kadıköy", "=1+1"}[d.store]
	o.ID = delivery.MakeOrderID(p.made%testenv.Partitions, delivery.DayOf(at), delivery.OrderDigest(o.Account, o.ExternalOrderID))

	return p.fill(o, d)
}

// fill gives an order what the draft says; its place stays.
func (p *play) fill(o archive.Order, d *draft) archive.Order {
	o.Fleet, o.FleetName = p.fleets[d.fleet], fmt.Sprint("Kurye ", d.fleet)
	o.StoreName = []string{"Moda", "Moda Sahil", ""}[d.storeName]
	o.Status, o.PaymentType, o.OrderAmount, o.Collection = d.status, d.payment, d.amount, d.collection
	o.EndedAt, o.DeliveredAt, o.Failure, o.Cancel, o.WithoutCourier = time.Time{}, time.Time{}, "", "", false
	if d.status.Terminal() {
		o.EndedAt = o.CreatedAt.Add(d.life)
	}

	switch d.status {
	case delivery.Delivered:
		o.DeliveredAt, o.WithoutCourier = o.EndedAt, d.withoutCourier
	case delivery.Failed:
		o.Failure = delivery.TimedOut
	case delivery.Cancelled:
		o.Cancel = delivery.CustomerRequest
	}

	return o
}

func (p *play) correct(named ...delivery.OrderID) {
	if len(p.closed) == 0 {
		return
	}

	wantBooked, wantLeft := p.model.correct(p.clock, named...)
	booked, left, err := correct(p.t.Context(), p.books, "ece", "", named...)
	testenv.Must(p.t, err)
	got := make([]string, len(booked))
	for i := range booked {
		got[i] = booked[i].Order.String() + " " + booked[i].Cause
	}

	slices.Sort(got)
	var ids []delivery.OrderID
	for i := range left {
		ids = append(ids, left[i].Order)
	}

	slices.SortFunc(ids, func(a, b delivery.OrderID) int { return strings.Compare(a.String(), b.String()) })
	if !slices.Equal(got, wantBooked) || !slices.Equal(ids, wantLeft) {
		p.t.Errorf("booked %v\nwant %v\nleft %v\nwant %v", got, wantBooked, ids, wantLeft)
	}

	p.note("booked %v", got)
}

func (p *play) closeMonth(m Month) {
	p.note("close %s", m)
	before := map[string]string{}
	q := query{from: dayText(m.Time), to: dayText(m.LastDay())}
	for _, name := range names {
		before[name] = p.text(name, q, reports.Booked, "")
	}

	p.close(m)
	p.model.close(m, p.today())
	p.frozen[m] = before
	p.requireFrozen("closing")
}

// close is the environment's, not the model's.
func (p *play) close(m Month) { p.env.close(m) }

func (p *play) text(name string, q query, basis reports.Basis, asOf string) string {
	var out strings.Builder
	p.report(name, q, basis, asOf, reports.CSVPlain.Sink(&out))
	return out.String()
}

func (p *play) report(name string, q query, basis reports.Basis, asOf string, sink reports.Sink) {
	p.t.Helper()
	r, _ := reports.Find(name)
	params := q.params(basis)
	if asOf != "" {
		var err error
		params.AsOf, err = reports.ParseDay(asOf)
		testenv.Must(p.t, err)
	}

	_, err := r.Run(p.t.Context(), p.Archive, params, sink, nil)
	testenv.Must(p.t, err)
}

// requireFrozen holds the reports of every closed month: byte for byte what they were.
func (p *play) requireFrozen(after string) {
	p.t.Helper()
	for m, reportsOf := range p.frozen {
		q := query{from: dayText(m.Time), to: dayText(m.LastDay())}
		for i, name := range names {
			if after != "closing" && (!testserver.Long || i != len(p.did)%len(names)) {
				continue // after each action another one, in the gate none
			}
			was := reportsOf[name]
			if is := p.text(name, q, reports.Booked, ""); is != was {
				p.t.Errorf("after %s: %s of %s was\n%s\nand is\n%s", after, name, m, was, is)
			}
		}
	}
}

// cells takes some columns of a report, as the model writes them.
type cells struct {
	columns []string
	of      *reports.Report
	rows    []string
	byLine  map[string]figures
	balance map[string]string
}

func (c *cells) Begin(r *reports.Report, _ reports.Params) error { c.of = r; return nil }
func (c *cells) End(reports.Summary) error                       { return nil }
func (c *cells) Abort()                                          {}
func (c *cells) Row(row []reports.Cell) error {
	if c.byLine != nil {
		f := figures{}
		for i := range row {
			if c.of.Columns[i].Numeric() && row[i].Given {
				f[c.of.Columns[i].Key] = row[i].Number
			}
		}

		line := row[c.of.Column("line")].Text
		c.byLine[line], c.balance[line] = f, row[c.of.Column("ties")].Text
		return nil
	}

	texts := make([]string, len(c.columns))
	for i, key := range c.columns {
		n := c.of.Column(key)
		cell := row[n]
		kind := c.of.Columns[n].Kind
		switch {
		case kind == reports.Text:
			texts[i] = cell.Text
		case !cell.Given:
			texts[i] = "-"
		case kind == reports.DayOnly || kind == reports.Month:
			texts[i] = reports.Day(cell.Number).String()
		default:
			texts[i] = strconv.FormatInt(cell.Number, 10)
		}
	}

	c.rows = append(c.rows, strings.Join(texts, "|"))

	return nil
}

// require compares a report with what the model makes of lines.
func (p *play) require(name string, q query, basis reports.Basis, asOf string, lines []line) {
	p.t.Helper()
	var want []string
	switch name {
	case "order-ledger":
		want = q.ledger(lines)
	case "expected-collections":
		want = q.collections(lines)
	case "fleet-statement":
		want = q.statement(lines)
	case "exceptions":
		if basis == reports.Known { // late deliveries stand there as they were booked, or of orders that are not there any more
			return
		}
		want = q.exceptions(lines)
	}

	got := &cells{columns: modelled[name]}
	p.report(name, q, basis, asOf, got)
	slices.Sort(got.rows)
	if !slices.Equal(got.rows, want) {
		p.t.Errorf("%s, %s as of %q, %+v:\n%s\nwant\n%s\nof %s", name, basis, asOf, q, strings.Join(got.rows, "\n"), strings.Join(want, "\n"), strings.Join(modelled[name], "|"))
	}
}

// requireAll compares everything with the model.
func (p *play) requireAll() {
	p.t.Helper()
	first, last := p.closed[0], p.closed[len(p.closed)-1]
	whole := query{from: dayText(first.Time), to: dayText(last.Next().Next().LastDay())}
	some := query{from: dayText(first.Add(17 * 24 * time.Hour)), to: dayText(last.Next().Add(3 * 24 * time.Hour)), account: p.accounts[len(p.lines)%2].Account}
	if len(p.lines)%3 > 0 {
		some.fleet = p.fleets[len(p.lines)%2]
	} else {
		some.store = "moda"
	}

	for _, q := range []query{whole, some} {
		for _, name := range names {
			p.require(name, q, reports.Booked, "", p.booked(never))
			if q == whole {
				p.require(name, q, reports.Known, "", p.knownNow())
			}
		}
	}

	p.requireControl(first, last)
	v := p.verify()
	if len(v.Findings) > 0 {
		p.t.Errorf("verify found %s", strings.Join(v.Findings, "\n"))
	}

	orders, late := p.pending()
	if len(v.Pending) != len(orders)+len(late) {
		p.t.Errorf("%d are pending: %v\nwant %d orders, %d late deliveries", len(v.Pending), v.Pending, len(orders), len(late))
	}

	for id := range orders {
		if !slices.ContainsFunc(v.Pending, func(text string) bool { return strings.Contains(text, id.String()) }) {
			p.t.Errorf("order %s is not among those that are pending: %v", id, v.Pending)
		}
	}
}

// requireControl compares the control totals of closed months, as they were stored, with what the views calculate and with the model.
func (p *play) requireControl(first, last Month) {
	p.t.Helper()
	periods := []query{{from: dayText(last.Time), to: dayText(last.LastDay())}}
	if first != last {
		periods = append(periods, query{from: dayText(first.Time), to: dayText(last.LastDay())})
	}

	for _, q := range periods {
		stored := &cells{byLine: map[string]figures{}, balance: map[string]string{}}
		p.report("control-totals", q, reports.Booked, "", stored)
		calculated, err := reports.CloseLines(p.t.Context(), p.Archive, q.params(reports.Booked))
		testenv.Must(p.t, err)
		want := q.control(p.booked(never))
		for _, c := range calculated {
			have := stored.byLine[c.Line]
			sameFigures := maps.Equal(have, figures(c.Figures))
			if c.Line == "exceptions" && first != last { // orders are counted month by month
				sameFigures = have["rows"] == c.Figures["rows"]
			}

			if !sameFigures || stored.balance[c.Line] != c.Ties || c.Ties == "no" {
				p.t.Errorf("%+v, %s: stored are %v %q, calculated %v %q", q, c.Line, have, stored.balance[c.Line], c.Figures, c.Ties)
			}

			for key, n := range c.Figures {
				if c.Line == "exceptions" && key == "orders" {
					continue
				}
				if want[c.Line][key] != n {
					p.t.Errorf("%+v, %s, %s is %d, want %d", q, c.Line, key, n, want[c.Line][key])
				}
			}
		}
	}
}

// requireBalance: once nothing is left, what was booked, over all months in which it was booked, is what is known.
func (p *play) requireBalance() {
	p.t.Helper()
	if orders, late := p.pending(); len(orders)+len(late) > 0 {
		p.t.Fatalf("%v %v are left", orders, late)
	}

	for what, key := range map[string]func(*line) string{
		"orders": func(l *line) string { return l.order.ID.String() },
		"stores": func(l *line) string { return l.order.Account.String() + l.order.ExternalStoreID },
		"fleets": func(l *line) string { return l.order.Fleet.String() },
		"months": func(l *line) string { return dayText(l.order.CreatedAt)[:7] },
		"all":    func(*line) string { return "" },
	} {
		booked, known := sums(p.booked(never), key), sums(p.knownNow(), key)
		if !maps.EqualFunc(booked, known, func(a, b figures) bool { return maps.Equal(a, b) }) {
			p.t.Errorf("by %s, booked are %v\nknown are %v", what, booked, known)
		}
	}
}
