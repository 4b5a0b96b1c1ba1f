package finance

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/xuri/excelize/v2"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth"
	"vendorapi/reporting/layout"
	"vendorapi/reporting/reports"
)

// downloaded are the totals of the JSON file, by the headings of the page.
func (e *env) downloaded(report *reports.Report, query string) (sums map[string]string, rows int64) {
	e.T.Helper()
	a := e.client.Get("/reports/" + report.Name + ".json?" + query)
	var file struct {
		Data struct{ Totals map[string]json.RawMessage }
	}
	must(e.T, json.Unmarshal([]byte(a.Text), &file))
	sums = map[string]string{}
	for key, raw := range file.Data.Totals {
		if key == "rows" {
			must(e.T, json.Unmarshal(raw, &rows))
			continue
		}
		sums[report.Columns[report.Column(key)].Heading] = strings.Trim(string(raw), `"`)
	}

	return sums, rows
}

// plain takes the thousands' separators out.
func plain(sums map[string]string) map[string]string {
	for key := range sums {
		sums[key] = strings.ReplaceAll(sums[key], ",", "")
	}
	return sums
}

// rowsPath is where a report's rows are without scripts.
func rowsPath(r *reports.Report) string {
	if r == control {
		return linesPath
	}
	return home + "/" + r.Name
}

func TestPages_HaveTheTotalsOfTheDownload(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(300)
	for i, query := range []string{
		november, "from=2030-01-01&to=2030-12-31",
		november + "&account=" + e.account.String() + "&fleet=" + e.fleets[2].String() + "&store=branch-1",
	} {
		for _, report := range reports.All() {
			if report == control && i > 0 {
				continue // its totals are those of the others
			}

			d := e.page(rowsPath(report) + "?" + query)
			sums, rows := e.downloaded(report, query)
			if report.Name == "control-totals" {
				if got := len(d.rows()); int64(got) != rows {
					t.Errorf("%s?%s: %d lines, the file has %d", report.Name, query, got, rows)
				}
				continue
			}

			if total := d.total(); total != fmt.Sprint(rows) {
				t.Errorf("%s?%s: the page says %s rows, the file has %d", report.Name, query, total, rows)
			}

			if rows == 0 {
				sums = map[string]string{}
			}

			if got := plain(d.totals()); fmt.Sprint(got) != fmt.Sprint(sums) {
				t.Errorf("%s?%s:\n got %v\nwant %v", report.Name, query, got, sums)
			}
		}
	}
}

// Where amounts to collect are not the order amounts, what remains is said.
func TestBalance_NamesWhatRemains(t *testing.T) {
	t.Parallel()

	r := statement
	s := reports.Summary{Totals: make([]reports.Cell, len(r.Columns))}
	set := func(key string, n int64) { s.Totals[r.Column(key)].Number = n }
	set("orderAmountDelivered", 100_00)
	set("cashExpected", 60_00)
	set("prepaidAmount", 30_00)
	for card, rest := range map[int64]string{10_00: "", 8_00: " + 2.00 of cash and card orders that was not to be collected", 11_00: " - 1.00 of cash and card orders that was to be collected beyond the order amounts"} {
		set("cardExpected", card)
		want := "Amount delivered 100.00 = cash expected 60.00 + card expected " + layout.Money(card) + " + prepaid 30.00 + without payment type 0.00" + rest + "."
		if got := balance(r, s); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// inNovember tells a moment of the month that the tests are about.
func inNovember(o *archive.Order, ended bool) bool {
	at := o.CreatedAt
	if ended {
		at = o.EndedAt
	}
	return !at.IsZero() && at.In(delivery.Istanbul).Format("2006-01") == "2026-11"
}

// One sequence: a month of orders, and every page of it.
func TestPages_AddUpToTheOrders(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(700)
	var cash, card, prepaid, untyped, delivered, amount int64
	for i := range e.orders {
		o := &e.orders[i]
		if inNovember(o, false) {
			amount += o.OrderAmount.Minor
		}

		if o.Status != delivery.Delivered || !inNovember(o, true) {
			continue
		}

		delivered += o.OrderAmount.Minor
		switch o.PaymentType {
		case delivery.PaymentUnknown:
			untyped += o.OrderAmount.Minor
		case delivery.Cash:
			cash += o.Collection.Minor
		case delivery.Card:
			card += o.Collection.Minor
		case delivery.Prepaid:
			prepaid += o.OrderAmount.Minor
		}
	}

	ended := func(s delivery.Status) string {
		return layout.Count(e.kept(func(o *archive.Order) bool { return o.Status == s && inNovember(o, true) }))
	}
	want := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}

	d := e.page("/payments?" + november)
	sums := d.totals()
	want("cash", sums["Cash expected"], layout.Money(cash))
	want("card", sums["Card expected"], layout.Money(card))
	want("prepaid", sums["Prepaid amount"], layout.Money(prepaid))
	want("delivered", sums["Delivered"], ended(delivery.Delivered))
	for fleet, got := range d.fleets() {
		var cash int64
		for i := range e.orders {
			if o := &e.orders[i]; o.Status == delivery.Delivered && o.PaymentType == delivery.Cash && inNovember(o, true) &&
				(fleet == "Total of all fleets" || fleet == o.FleetName || fleet == e.Fleet.Name && o.Fleet == e.Fleet.ID) {
				cash += o.Collection.Minor
			}
		}
		want("cash of "+fleet, got["Cash expected"], layout.Money(cash))
	}

	if fleets := len(d.fleets()); fleets != 4 {
		t.Errorf("%d fleets with their total", fleets)
	}

	for tile, sum := range map[string]int64{"Cash expected": cash, "Card expected": card, "Prepaid": prepaid} {
		want(tile, strings.Fields(d.tile(tile))[0], layout.Money(sum)+"TRY")
	}

	_, exceptions := e.downloaded(exceptions, november)
	want("exceptions", d.tile("Exceptions to look at"), layout.Count(exceptions)+"rows, of orders created in the period")
	var drawn int64
	for _, figures := range d.chart("collections") {
		drawn += kurus(t, figures[0]) + kurus(t, figures[1])
	}

	want("what is drawn", layout.Money(drawn), layout.Money(cash+card))
	if bars := len(d.chart("collections")); bars != 30 {
		t.Errorf("%d days are drawn", bars)
	}

	sums = e.page("/payments/order-ledger?" + november).totals()
	want("order amounts", sums["Order amount"], layout.Money(amount))
	want("expected", sums["Expected"], layout.Money(cash+card))
	d = e.page("/payments/fleet-statement?" + november)
	sums = d.totals()
	want("amount delivered", sums["Amount delivered"], layout.Money(delivered))
	want("what it is made of", testenv.Words(d.ByID("balance")), fmt.Sprintf("Amount delivered %s = cash expected %s + card expected %s + prepaid %s + without payment type %s.",
		layout.Money(delivered), layout.Money(cash), layout.Money(card), layout.Money(prepaid), layout.Money(untyped)))
	for heading, status := range map[string]delivery.Status{"Delivered": delivery.Delivered, "Failed": delivery.Failed, "Cancelled": delivery.Cancelled} {
		want(heading, sums[heading], ended(status))
	}

	outcomes := d.chart("outcomes")
	if figures := outcomes[e.Fleet.Name]; len(outcomes) != 3 || figures[0] != layout.Count(e.kept(func(o *archive.Order) bool {
		return o.Fleet == e.Fleet.ID && o.Status == delivery.Delivered && inNovember(o, true)
	})) {
		t.Errorf("outcomes by fleet: %v", outcomes)
	}
}

// kurus reads 1,234.56.
func kurus(t *testing.T, s string) (n int64) {
	t.Helper()
	_, err := fmt.Sscan(strings.NewReplacer(",", "", ".", "").Replace(s), &n)
	must(t, err)
	return n
}

func TestPages_ShowEveryRowOnce(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(2*pageRows + 50)
	for _, report := range reports.All() {
		var rows [][]string
		pages := 0
		for next := rowsPath(report) + "?" + november; next != ""; pages++ {
			d := e.page(next)
			shown := d.rows()
			if len(shown) == 0 || len(shown) > pageRows || next != "" && d.Link("Next") != "" && len(shown) != pageRows {
				t.Fatalf("%s: %d rows", next, len(shown))
			}
			rows = append(rows, shown...)
			next = d.Link("Next")
		}

		file := strings.Split(strings.TrimSpace(e.client.Get("/reports/"+report.Name+".csv?plain=1&"+november).Text), "\n")[1:]
		if len(rows) != len(file) || pages != (len(file)+pageRows-1)/pageRows {
			t.Fatalf("%s: %d rows on %d pages, the file has %d", report.Name, len(rows), pages, len(file))
		}

		if report.Name == "order-ledger" || report.Name == "exceptions" {
			for i := range rows {
				lines := strings.Split(rows[i][0], "|")
				if id := strings.TrimSuffix(lines[len(lines)-2], "…"); !strings.Contains(file[i], id) {
					t.Fatalf("%s: row %d is %s, in the file %s", report.Name, i, id, file[i])
				}
			}
			continue
		}

		joined := make([]string, len(rows))
		for i := range rows {
			joined[i] = strings.Join(rows[i][:5], "|")
		}

		slices.Sort(joined)
		if report.Name != "fleet-statement" && len(slices.Compact(joined)) != len(rows) {
			t.Errorf("%s: a row is there twice", report.Name)
		}
	}

	// A page beyond the end is the last one, and what is no number the first.
	last := e.page("/payments/order-ledger?" + november + "&page=999999").rows()
	if len(last) != 50 || e.page(fmt.Sprintf("/payments/order-ledger?%s&page=%d", november, 3)).rows()[0][0] != last[0][0] {
		t.Errorf("the last page has %d rows", len(last))
	}

	for _, page := range []string{"0", "-1", "x", "99999999999999999999999", "1.5"} {
		if rows := e.page("/payments/order-ledger?" + november + "&page=" + page).rows(); len(rows) != pageRows {
			t.Errorf("page %s has %d rows", page, len(rows))
		}
	}
}

func TestPages_KeepTheFiltersInEveryLink(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(300)
	e.Vendor.NewStore("şube & 2", delivery.Active)
	d := e.page("/payments/order-ledger?from=2026-11-02&to=2026-11-29&account=" + e.account.String() + "&fleet=" + e.Fleet.ID.String())
	for _, name := range []string{"Expected collections", "Fleet statement", "Exceptions", "Control totals", "XLSX", "CSV with ;", "CSV with ,", "JSON", "Today", "Last 7 days", "Last month"} {
		u, err := url.Parse(d.Link(name))
		must(t, err)
		q := u.Query()
		if q.Get("account") != e.account.String() || q.Get("fleet") != e.Fleet.ID.String() || q.Get("from") == "" || q.Get("to") == "" {
			t.Errorf("%s leads to %s", name, u)
		}
		if name != "Today" && name != "Last 7 days" && name != "Last month" && q.Get("from") != "2026-11-02" {
			t.Errorf("%s leads to %s", name, u)
		}

		e.page(d.Link(name))
	}

	if got := testenv.Attribute(d.ByID("from"), "value"); got != "2026-11-02" {
		t.Errorf("from is %q", got)
	}

	for id, want := range map[string]string{"account": "Test", "fleet": e.Fleet.Name} {
		chosen := ""
		for _, o := range testenv.All(d.ByID(id), "option") {
			if testenv.Has(o, "selected") {
				chosen = testenv.Words(o)
			}
		}

		if chosen != want {
			t.Errorf("%s: %q is chosen, want %q", id, chosen, want)
		}
	}

	var offered []string
	for _, o := range testenv.All(d.ByID("stores"), "option") {
		offered = append(offered, testenv.Attribute(o, "value"))
	}

	if !slices.Equal(offered, []string{"branch-1", "şube & 2"}) {
		t.Errorf("stores %q are offered", offered)
	}

	// An account may be typed by its name, too.
	if got := e.page("/payments/order-ledger?" + november + "&account=test").total(); got != "150" {
		t.Errorf("%s rows of the account", got)
	}
}

//rule:finance/downloads-get-panel-reports-name-.-csv-xlsx-json-from-to
func TestFilters_TakeNamesOnPagesAndInDownloads(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(300)
	store := e.Vendor.NewStore("branch-3", delivery.Active)
	store.Name = "Moda Şubesi"
	must(t, e.Ledger.Stores.Write(t.Context(), store))
	for named, byID := range map[string]string{
		"account=test": "account=" + e.account.String(),
		"fleet=" + url.QueryEscape(strings.ToUpper(e.Fleet.Name)): "fleet=" + e.Fleet.ID.String(),
		"store=" + url.QueryEscape("moda şubesi"):                 "store=branch-3",
	} {
		total := e.page("/payments/order-ledger?" + november + "&" + named).total()
		if want := e.page("/payments/order-ledger?" + november + "&" + byID).total(); total != want || total == "0" || total == "300" {
			t.Errorf("%s: %s rows, %s: %s", named, total, byID, want)
		}
		if file := e.client.Get("/reports/order-ledger.csv?plain=1&" + november + "&" + named).Want(200); fmt.Sprint(strings.Count(file.Text, "\n")-1) != total {
			t.Errorf("%s: %d lines in the file, %s rows on the page", named, strings.Count(file.Text, "\n"), total)
		}
	}

	e.client.Get("/payments?"+november+"&store=MODA-9").Want(200, "Unknown store", "MODA-9").Lacks("Try a longer period")
	e.client.Get("/payments?from=2020-01-01&to=2020-01-02&store=branch-3").Want(200, "No order was delivered in this period with these filters. Try").Lacks("Unknown store")
	e.client.Get("/payments?from=2030-01-01&to=2030-01-02").Want(200, "This period lies in the future.").Lacks("Try a longer period")
	e.client.Get("/reports/order-ledger.csv?fleet=nobody", "Accept: application/json").Want(422, `"field":"fleet"`)
}

// A mistake in a filter is none in a file without rows; a browser gets a page.
func TestDownloads_RefuseWhatNobodyIsCalled(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(20) // branch-2 and two of the fleets are in ClickHouse alone
	file := "/reports/expected-collections.csv?plain=1&" + november
	nobody := delivery.NewFleetID().String()
	for query, want := range map[string]string{
		"&store=yoktur": "Unknown store: no store has the id or the name “yoktur”.", "&fleet=" + nobody: "Unknown fleet: no fleet has the id " + nobody,
	} {
		e.client.Get(file+query, "Accept: application/json").Want(422, "VALIDATION_FAILED", want)
		e.client.Get(file+query).Want(422, "<html", want).Carries(map[string]string{"Content-Disposition": "", "Content-Type": "text/html; charset=utf-8", "Content-Security-Policy": auth.PolicyScripts})
		e.client.Get("/payments?"+november+query).Want(200, want)
	}

	for _, query := range []string{"&store=branch-2", "&fleet=" + e.fleets[1].String()} {
		if a := e.client.Get(file + query).Want(200); strings.Count(a.Text, "\n") < 2 {
			t.Errorf("%s: %s", query, a.Text)
		}
	}

	e.client.Get("/reports/expected-collections.csv?from=2026-11-23&to=2026-11-10").Want(422, "<html", "10 Nov 2026 is before the first day, 23 Nov 2026").Lacks("VALIDATION_FAILED")
	// What was found stands in the title and the name of the file.
	a := e.client.Get("/reports/order-ledger.xlsx?" + november + "&account=" + e.account.String() + "&fleet=" + e.Fleet.ID.String()).Want(200)
	if got, want := a.Header.Get("Content-Disposition"), "; filename*=UTF-8''order-ledger_2026-11-01_2026-11-30_Test_"; !strings.Contains(got, want) {
		t.Errorf("%q, want %q in it", got, want)
	}

	book, err := excelize.OpenReader(strings.NewReader(a.Text))
	must(t, err)
	defer book.Close()
	if title, err := book.GetCellValue("order-ledger", "A1"); err != nil || title != "Order ledger, 2026-11-01 to 2026-11-30, account Test, fleet "+e.Fleet.Name {
		t.Errorf("%q, %v", title, err)
	}
}

// A Redis that has no account at all says nothing about those that are in ClickHouse.
func TestFindNames_JudgesNoAccountWhereThereIsNone(t *testing.T) {
	asked := delivery.NewAccountID()
	others := layout.Names{delivery.NewAccountID().String(): "Another"}
	for _, c := range []struct {
		name    string
		known   directory
		unknown bool
	}{
		{"no account at all", directory{accountsRead: true, few: layout.Names{}}, false},
		{"others", directory{accountsRead: true, few: others}, true},
		{"too many to list", directory{accountsRead: true}, true},
		{"Redis was not read", directory{few: others}, false},
	} {
		params := reports.Params{Account: asked}

		unknown := new(Pages).findNames(t.Context(), &c.known, &params)

		if (unknown != nil) != c.unknown {
			t.Errorf("%s: %v", c.name, unknown)
		}
	}
}

// What is to be done, how much it is, and the rows of one kind, here and in files.
func TestExceptions_ByKind(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(300)
	d := e.page("/payments/exceptions?" + november)
	orders := map[string]bool{}
	var amount int64
	all, err := csv.NewReader(strings.NewReader(e.client.Get("/reports/exceptions.csv?plain=1&" + november).Text)).ReadAll()
	must(t, err)
	all = all[1:]
	var rows int
	for _, cells := range all {
		orders[cells[3]] = true
		if cells[0] == "PaymentTypeMissing" {
			rows++
		}
	}

	for i := range e.orders {
		if o := &e.orders[i]; o.PaymentType == delivery.PaymentUnknown && inNovember(o, false) {
			amount += o.OrderAmount.Minor
		}
	}

	if said, want := testenv.Words(d.ByID("orders")), fmt.Sprintf("%d rows of %d orders", len(all), len(orders)); !strings.HasPrefix(said, want) || len(orders) == len(all) {
		t.Errorf("%q, want %q", said, want)
	}

	d.Says("Ask the vendor how it was paid. Orders that were not delivered are listed, too", "Order amounts "+layout.Money(amount)+" TRY")
	only := e.page(d.Link("PaymentTypeMissing"))
	if only.total() != fmt.Sprint(rows) || only.totals()["Order amount"] != layout.Money(amount) || only.ByID("orders") != nil {
		t.Errorf("%s rows, %v, want %d, %s", only.total(), only.totals(), rows, layout.Money(amount))
	}
	if file := e.client.Get(only.Link("JSON")).Want(200); strings.Count(file.Text, `"kind":"PaymentTypeMissing"`) != rows || strings.Count(file.Text, `"kind":`) != rows {
		t.Errorf("the file has %d rows", strings.Count(file.Text, `"kind":`))
	}
	if link := only.Link("Order ledger"); strings.Contains(link, "kind") {
		t.Errorf("the order ledger is at %s", link)
	}

	for _, refused := range []string{"/payments/order-ledger?kind=LateDelivery", "/payments/exceptions?kind=late", "/reports/order-ledger.csv?kind=LateDelivery", "/reports/exceptions.csv?kind=late"} {
		e.client.Get(refused).Want(422)
	}
}

// What an order does not have is said, also where each row is a card of its own.
func TestRows_SayWhatIsNotGiven(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order(8, local("2026-11-15 12:00:00.000"))
	o.PaymentType, o.Collection = delivery.PaymentUnknown, delivery.Money{}
	e.store(o)
	for _, report := range []string{"order-ledger", "exceptions"} {
		d := e.page("/payments/" + report + "?" + november)
		row := headed(d.report(), d.rows()[0])
		if row["Payment"] != "not given" || row["To collect"] != "–" {
			t.Errorf("%s: %v", report, row)
		}

		headings := cellsOf(testenv.All(d.report(), "tr")[0])
		if headings[0] != "Order, vendor's order" || !slices.ContainsFunc(headings, func(h string) bool { return strings.HasPrefix(h, "Fleet, courier") }) || !slices.Contains(headings, "Status, reason") {
			t.Errorf("%s: %q", report, headings)
		}
	}

	d := e.page("/payments?" + november)
	if heading := cellsOf(testenv.All(d.report(), "tr")[0])[0]; heading != "Day, store, fleet, account" {
		t.Error(heading)
	}
}
