package finance

import (
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/export"
	"vendorapi/reporting/frame"
	"vendorapi/reporting/reports"
)

func mustParams(t testing.TB, from, to string) reports.Params {
	t.Helper()
	p, err := reports.Values{From: from, To: to}.Parse(time.Now())
	must(t, err)
	return p
}

// hostile are texts that vendors, fleets and operators might write.
var hostile = []string{
	`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `' onmouseover='alert(1)`, `</table></main><h1>x</h1>`,
	`</select><script>alert(1)</script>`, `</datalist>`, `javascript:alert(1)`, `{{.CSRF}}`, "\u202Etxt.exe", `&lt;b&gt;`, `</data>`, `a&b=c#d`,
}

func TestPages_ShowHostileTextsAsText(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var orders []archive.Order
	for i, name := range hostile {
		account := &delivery.Account{ID: delivery.NewAccountID(), Name: name, CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
		must(t, w.Ledger.CreateAccount(t.Context(), account, [32]byte{1}))
		fleet := &delivery.Fleet{ID: delivery.NewFleetID(), Name: name, SubRegion: "x", DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: w.Fleet.Coverage}
		must(t, w.Ledger.CreateFleet(t.Context(), fleet, [32]byte{1}))
		must(t, w.Ledger.WriteStore(t.Context(), &delivery.Store{Account: w.account, ExternalID: name, Name: name, State: delivery.Active, TaxNumber: "1234567890",
			Phone: "2161112233", Address: "Moda Cd. 1", Point: w.Vendor.Store.Point, SubRegion: "x", Fleet: fleet.ID, FleetName: name, UpdatedAt: time.Now()}))
		o := w.order(i, local("2026-11-15 12:00:00.000"))
		o.Status, o.PaymentType, o.DeliveredAt = delivery.Delivered, delivery.PaymentUnknown, o.CreatedAt // an exception, too
		o.EndedAt = o.DeliveredAt
		o.Account, o.Fleet, o.FleetName, o.StoreName, o.ExternalStoreID, o.ExternalOrderID, o.TaxNumber = account.ID, fleet.ID, name, name, name, name, name
		o.ID = delivery.MakeOrderID(i, delivery.DayOf(o.CreatedAt), delivery.OrderDigest(o.Account, name))
		orders = append(orders, o)
	}
	w.store(orders...)
	clean := w.page("/payments?from=2030-01-01&to=2030-01-01")
	for _, path := range routes() {
		d := w.page(path + "?" + november + "&account=" + orders[0].Account.String())
		whole := w.page(path + "?" + november)
		d2 := w.page(path + "?" + november + "&account=" + w.account.String()) // with its stores
		for _, d := range []*document{d, whole, d2} {
			if scripts := len(all(d.root, "script", "")); path != "/payments/ties" && scripts > len(all(clean.root, "script", ""))+1 {
				t.Errorf("%s has %d scripts", path, scripts)
			}
			for _, n := range all(d.root, "", "") {
				for name, value := range attributes(n) {
					if strings.HasPrefix(name, "on") || name == "style" || (name == "href" || name == "src") && strings.HasPrefix(value, "javascript:") {
						t.Errorf("%s: <%s %s=%q>", path, n.Data, name, value)
					}
				}
			}
			if headings := len(all(d.root, "h1", "")); path != "/payments/ties" && headings != 1 || len(all(d.root, "img", "")) > 0 {
				t.Errorf("%s: %d headings", path, headings)
			}
		}
		if path == "/payments/order-ledger" {
			for i, row := range whole.rows() {
				if got := row[3]; !contains(hostile, got) {
					t.Errorf("row %d: store %q", i, got)
				}
			}
		}
	}
	for _, store := range hostile {
		d := w.page("/payments/order-ledger?" + november + "&store=" + url.QueryEscape(store))
		if got := attribute(d.byID("store"), "value"); got != store || rowsTold(d) != "1" {
			t.Errorf("store %q: %q is shown, %s rows", store, got, rowsTold(d))
		}
	}
}

func contains(texts []string, text string) bool {
	for _, one := range texts {
		if strings.Join(strings.Fields(one), " ") == text {
			return true
		}
	}
	return false
}

func TestPages_OfAnEmptyPeriodSaySo(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for path, want := range map[string]string{
		"/payments": "No order was delivered in this period.", "/payments/order-ledger": "No order was created in this period.",
		"/payments/fleet-statement": "No order was created or ended in this period.", "/payments/exceptions": "There is nothing to look at",
	} {
		d := w.page(path)
		empty := all(d.root, "p", "empty")
		if len(empty) != 1 || !strings.HasPrefix(text(empty[0]), want) || d.report() != nil || len(all(d.root, "canvas", "")) > 0 || len(all(d.root, "div", "tile")) > 0 {
			t.Errorf("%s: %q", path, text(d.root))
		}
		if today := reports.DayOf(time.Now()); attribute(d.byID("from"), "value") != today.FirstOfMonth().String() || attribute(d.byID("to"), "value") != today.String() {
			t.Errorf("%s: %s to %s", path, attribute(d.byID("from"), "value"), attribute(d.byID("to"), "value"))
		}
	}
}

// Full pages with long lists of names stay small.
func TestPages_StayBelow100kB(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var orders []archive.Order
	for i := range 500 { // with the longest ids and names that occur
		o := w.order(i, local("2026-11-01 00:00:00.000").Add(time.Duration(i)*time.Hour))
		o.PaymentType, o.Collection = delivery.Cash, delivery.Money{} // an exception each
		o.ExternalOrderID = fmt.Sprintf("SIPARIS-2026-11-%012d", i)
		o.StoreName = fmt.Sprintf("Çiğköfteci Ömer Usta Gıda San. ve Tic. Ltd. Şti. %d", i)
		o.ExternalStoreID = fmt.Sprintf("kadikoy-bahariye-subesi-%d", i)
		o.ID = delivery.MakeOrderID(i%16, delivery.DayOf(o.CreatedAt), delivery.OrderDigest(o.Account, o.ExternalOrderID))
		orders = append(orders, o)
	}
	w.store(orders...)
	for i := range maxChoices - 1 {
		account := &delivery.Account{ID: delivery.NewAccountID(), Name: fmt.Sprintf("Çiğköfteci Ömer Gıda %d", i), CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
		must(t, w.Ledger.CreateAccount(t.Context(), account, [32]byte{1}))
	}
	for i := range 20 {
		w.Vendor.NewStore(fmt.Sprintf("branch-%d", i+2), delivery.Active)
	}
	for _, path := range routes() {
		for _, who := range []string{"fin", "both"} {
			a := w.get(path+"?"+november+"&account="+w.account.String(), who)
			t.Logf("%s by %s: %d bytes", path, who, len(a.text))
			if a.StatusCode != 200 || len(a.text) >= 100_000 {
				t.Errorf("%s by %s: %d, %d bytes", path, who, a.StatusCode, len(a.text))
			}
		}
	}
	// Beyond a hundred names are typed.
	w.NewVendor()
	w.NewVendor()
	if input := w.page("/payments?" + november).byID("account"); input.Data != "input" {
		t.Errorf("over a hundred accounts are offered in a %s", input.Data)
	}
	// "Test" is now the name of several accounts.
	if a := w.get("/payments?"+november+"&account=Test", "fin"); a.StatusCode != 422 {
		t.Errorf("%d for a name of several accounts", a.StatusCode)
	}
}

// Operators find their way from an order id to the order; finance may not go
// there.
func TestPages_LeadOperatorsToOrders(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.november(5)
	for who, want := range map[string]bool{"fin": false, "both": true} {
		for _, path := range []string{"/payments/order-ledger", "/payments/exceptions"} {
			text := w.get(path+"?"+november, who).text
			if leads := strings.Contains(text, `<a href="/orders/`+w.orders[0].ID.String()+`">`+frame.Short(w.orders[0].ID)); leads != want {
				t.Errorf("%s by %s: leads to orders %v", path, who, leads)
			}
		}
	}
}

func TestPages_ShowDaysCutAtLocalMidnight(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for i, c := range []struct{ created, delivered string }{
		{"2026-11-30 23:59:59.999", "2026-12-01 00:00:00.000"}, {"2028-02-28 23:59:59.999", "2028-02-29 00:00:00.000"},
		{"2028-02-29 23:59:59.999", "2028-03-01 00:00:00.000"}, {"2026-12-31 23:59:59.999", "2027-01-01 00:00:00.000"},
	} {
		o := w.order(i*4+1, local(c.created)) // cash
		o.Status, o.Failure, o.DeliveredAt, o.EndedAt = delivery.Delivered, "", local(c.delivered), local(c.delivered)
		o.OrderAmount = delivery.Money{Minor: 123_456, Set: true}
		o.Collection = o.OrderAmount
		w.store(o)
		created, delivered := c.created[:10], c.delivered[:10]
		for day, rows := range map[string][2]string{created: {"1", "0"}, delivered: {"0", "1"}} {
			period := "?from=" + day + "&to=" + day + "&store=" + o.ExternalStoreID
			if got := rowsTold(w.page("/payments/order-ledger" + period)); got != rows[0] {
				t.Errorf("%s: %s orders were created", day, got)
			}
			d := w.page("/payments" + period)
			if got := rowsTold(d); got != rows[1] {
				t.Errorf("%s: %s collections", day, got)
			}
			if rows[1] == "1" && (d.rows()[0][0] != frame.Date(local(c.delivered)) || d.totals()["Cash expected"] != "1,234.56") {
				t.Errorf("%s: %q %v", day, d.rows()[0], d.totals())
			}
		}
	}
}

// From an order of a vendor's through the export to the page.
func TestPayments_ShowWhatWasDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	now := time.Now()
	w.Delivered(now)
	w.Delivered(now)
	w.Start(export.New(w.Ledger, w.Archive, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Minute}, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry()).Run)
	w.AwaitExported()
	day := reports.DayOf(now).String()
	d := w.page("/payments?from=" + day + "&to=" + day)
	if got := d.totals()["Cash expected"]; got != "246.90" || d.tile("Delivered orders") != "2in the period" {
		t.Errorf("%s, %q", got, d.tile("Delivered orders"))
	}
	rows := d.rows()
	if len(rows) != 1 || rows[0][1] != "Test" || rows[0][2] != w.Fleet.Name || rows[0][4] != "Kadıköy Şube" {
		t.Errorf("%q", rows)
	}
}
