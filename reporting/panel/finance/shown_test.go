package finance

import (
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/export"
	"vendorapi/reporting/layout"
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

	e := newEnv(t)
	var orders []archive.Order
	for i, name := range hostile {
		account := &delivery.Account{ID: delivery.NewAccountID(), Name: name, CreatedAt: time.Now(), Limits: delivery.DefaultLimits()}
		must(t, e.Ledger.Accounts.Create(t.Context(), account, [32]byte{1}))
		fleet := &delivery.Fleet{ID: delivery.NewFleetID(), Name: name, SubRegion: "x", DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1, Coverage: e.Fleet.Coverage}
		must(t, e.Ledger.Fleets.Create(t.Context(), fleet, [32]byte{1}))
		must(t, e.Ledger.Stores.Write(t.Context(), &delivery.Store{Account: e.account, ExternalID: name, Name: name, State: delivery.Active, TaxNumber: "1234567890",
			Phone: "2161112233", Address: "Moda Cd. 1", Point: e.Vendor.Store.Point, SubRegion: "x", Fleet: fleet.ID, FleetName: name, UpdatedAt: time.Now()}))
		o := e.order(i, local("2026-11-15 12:00:00.000"))
		o.Status, o.PaymentType, o.DeliveredAt = delivery.Delivered, delivery.PaymentUnknown, o.CreatedAt // an exception, too
		o.EndedAt = o.DeliveredAt
		o.Account, o.Fleet, o.FleetName, o.StoreName, o.ExternalStoreID, o.ExternalOrderID, o.TaxNumber = account.ID, fleet.ID, name, name, name, name, name
		o.ID = delivery.MakeOrderID(i, delivery.DayOf(o.CreatedAt), delivery.OrderDigest(o.Account, name))
		orders = append(orders, o)
	}

	e.store(orders...)
	for _, path := range routes() {
		for _, filter := range []string{"", "&account=" + e.account.String()} { // the last with its stores
			if filter != "" && path != "/payments/order-ledger" {
				continue
			}

			d := e.page(path + "?" + november + filter)
			d.Harmless()
			if headings := len(testenv.All(d.Tree(), "h1")); path != "/payments/ties" && headings != 1 {
				t.Errorf("%s: %d headings", path, headings)
			}
			if path != "/payments/order-ledger" || filter != "" {
				continue
			}

			for i, row := range d.rows() {
				if !slices.ContainsFunc(hostile, func(text string) bool { return strings.Join(strings.Fields(text), " ") == row[8] }) {
					t.Errorf("row %d: store %q", i, row[8])
				}
			}
		}
	}

	for _, store := range hostile[:4] {
		d := e.page("/payments/order-ledger?" + november + "&store=" + url.QueryEscape(store))
		if got := testenv.Attribute(d.ByID("store"), "value"); got != store || d.total() != "1" {
			t.Errorf("store %q: %q is shown, %s rows", store, got, d.total())
		}
	}
}

func TestPages_OfAnEmptyPeriodSaySo(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	for path, want := range map[string]string{
		"/payments": "No order was delivered in this period.", "/payments/order-ledger": "No order was created in this period.",
		"/payments/fleet-statement": "No order was created or ended in this period.", "/payments/exceptions": "There is nothing to look at",
	} {
		before := reports.DayOf(time.Now())
		d := e.page(path)
		empty := testenv.All(d.Tree(), "p", "empty")
		if len(empty) != 1 || !strings.HasPrefix(testenv.Words(empty[0]), want) || d.report() != nil || len(testenv.All(d.Tree(), "canvas")) > 0 || len(testenv.All(d.Tree(), "div", "tile")) > 0 {
			t.Errorf("%s: %q", path, testenv.Words(d.Tree()))
		}

		days := []string{}
		for _, day := range []reports.Day{before, reports.DayOf(time.Now())} { // two around midnight
			days = append(days, day.FirstOfMonth().String()+" to "+day.String())
		}

		if shown := testenv.Attribute(d.ByID("from"), "value") + " to " + testenv.Attribute(d.ByID("to"), "value"); !slices.Contains(days, shown) {
			t.Errorf("%s: %s to %s", path, testenv.Attribute(d.ByID("from"), "value"), testenv.Attribute(d.ByID("to"), "value"))
		}
	}
}

// Operators find their way from an order id to the order; finance may not go
// there.
func TestPages_LeadOperatorsToOrders(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(5)
	for who, want := range map[string]bool{"finance": false, "both": true} {
		for _, path := range []string{"/payments/order-ledger", "/payments/exceptions"} {
			text := e.client.Get(path+"?"+november, authenv.As(who)).Want(200).Text
			if leads := strings.Contains(text, `<a href="/orders/`+e.orders[0].ID.String()+`" title="`+e.orders[0].ID.String()+`">`+layout.Short(e.orders[0].ID)); leads != want {
				t.Errorf("%s by %s: leads to orders %v", path, who, leads)
			}
		}
	}
}

func TestPages_ShowDaysCutAtLocalMidnight(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	for i, c := range []struct{ created, delivered string }{
		{"2026-11-30 23:59:59.999", "2026-12-01 00:00:00.000"}, {"2028-02-28 23:59:59.999", "2028-02-29 00:00:00.000"},
		{"2028-02-29 23:59:59.999", "2028-03-01 00:00:00.000"}, {"2026-12-31 23:59:59.999", "2027-01-01 00:00:00.000"},
	} {
		o := e.order(i*4+1, local(c.created)) // cash
		o.Status, o.Failure, o.DeliveredAt, o.EndedAt = delivery.Delivered, "", local(c.delivered), local(c.delivered)
		o.OrderAmount = delivery.Money{Minor: 123_456, Set: true}
		o.Collection = o.OrderAmount
		e.store(o)
		created, delivered := c.created[:10], c.delivered[:10]
		for day, rows := range map[string][2]string{created: {"1", "0"}, delivered: {"0", "1"}} {
			period := "?from=" + day + "&to=" + day + "&store=" + o.ExternalStoreID
			if got := e.page("/payments/order-ledger" + period).total(); got != rows[0] {
				t.Errorf("%s: %s orders were created", day, got)
			}

			d := e.page("/payments" + period)
			if got := d.total(); got != rows[1] {
				t.Errorf("%s: %s collections", day, got)
			}
			if rows[1] == "1" && (!strings.HasPrefix(d.rows()[0][0], layout.Date(local(c.delivered))+"|") || d.totals()["Cash expected"] != "1,234.56") {
				t.Errorf("%s: %q %v", day, d.rows()[0], d.totals())
			}
		}
	}
}

// From an order of a vendor's through the export to the page.
func TestPayments_ShowWhatWasDelivered(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	now := time.Now()
	e.Delivered(now)
	e.Delivered(now)
	e.Start(export.New(e.Ledger, e.Archive, export.Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Minute}, "test", slog.New(slog.DiscardHandler), prometheus.NewRegistry()).Run)
	e.AwaitExported()
	day := reports.DayOf(now).String()
	d := e.page("/payments?from=" + day + "&to=" + day)
	if got := d.totals()["Cash expected"]; got != "246.90" || d.tile("Delivered orders") != "2in the period" {
		t.Errorf("%s, %q", got, d.tile("Delivered orders"))
	}

	rows := d.rows()
	if len(rows) != 1 || !strings.HasSuffix(rows[0][0], "|Kadıköy Şube|branch-1|"+e.Fleet.Name+"|Test") {
		t.Errorf("%q", rows)
	}
}
