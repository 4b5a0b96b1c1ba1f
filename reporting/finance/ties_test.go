package finance

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/web"
	"vendorapi/reporting/archive"
)

func TestControlTotals_TieAndHaveTheDigestOfEachFile(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.november(100)
	for _, query := range []string{november + "&account=" + e.account.String(), "from=2031-01-01&to=2031-01-31"} {
		d := page{e.client.Get("/payments/control-totals/lines?"+query).Want(200, "<html")} // without scripts
		if len(web.All(d.Tree(), "div", "done")) != 1 || !strings.HasPrefix(web.Words(web.All(d.Tree(), "div", "done")[0]), "The reports balance.") {
			t.Errorf("%s: no word of balancing", query)
		}
		if empty := strings.Contains(web.Words(d.Tree()), "There are no orders in this period"); empty != strings.Contains(query, "2031") {
			t.Errorf("%s: empty %v", query, empty)
		}
		for _, name := range []string{"Order ledger", "Expected collections", "Fleet statement", "Exceptions"} {
			address := ""
			for _, a := range web.All(d.Tree(), "a") {
				if web.Words(a) == name && strings.HasPrefix(web.Attribute(a, "href"), "/reports/") {
					address = web.Attribute(a, "href")
				}
			}
			sum := fmt.Sprintf("%x", sha256.Sum256([]byte(e.client.Get(address).Text)))
			if !strings.Contains(web.Words(d.Tree()), sum) {
				t.Errorf("%s: the digest of %s is not that of %s", query, name, address)
			}
		}
		if command := web.Words(web.All(d.Tree(), "pre")[0]); !strings.HasPrefix(command, "reporting reconcile --from 20") || strings.Contains(command, "--account") != strings.Contains(query, "account") {
			t.Errorf("%s", command)
		}
		tie := e.page("/payments/ties?" + query)
		if tile := tie.ByID("ties"); web.Attribute(tile, "class") != "tile good" || !strings.HasPrefix(web.Words(tile), "Control totalsThe reports balance") {
			t.Errorf("the tile says %q", web.Words(tile))
		}
	}
	// The page is there at once and fetches what takes long; without scripts a link
	// leads there.
	d := e.page("/payments/control-totals?" + november)
	part := web.Attribute(d.ByID("totals"), "hx-get")
	if web.Attribute(d.ByID("totals"), "hx-trigger") != "load" || d.Link("Show the control totals") != part || d.ByID("rows") != nil {
		t.Fatalf("the page has %v", d.ByID("totals").Attr)
	}
	e.client.Get(part, "HX-Request: true").Want(200, "The reports balance.").Lacks("<html")
	e.client.Get("/payments/control-totals/lines?from=x").Want(http.StatusUnprocessableEntity)
}

// A row whose end was lost is still delivered by its day, but does not end.
func TestControlTotals_SayWhatDoesNotTie(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.november(200)
	corrupt := e.order(5000, local("2026-11-15 12:00:00.000"))
	corrupt.Status, corrupt.PaymentType = delivery.Delivered, delivery.Cash
	corrupt.OrderAmount = delivery.Money{Minor: 123_456, Set: true}
	corrupt.Collection, corrupt.DeliveredAt = corrupt.OrderAmount, corrupt.CreatedAt
	corrupt.EndedAt = corrupt.EndedAt.AddDate(0, 0, 40)
	must(t, e.Archive.InsertAnew(t.Context(), &archive.Batch{Orders: []archive.Order{corrupt}}))
	d := e.page("/payments/control-totals/lines?" + november)
	alerts := web.All(d.Tree(), "div", "alert")
	if len(alerts) != 1 {
		t.Fatalf("%d alerts", len(alerts))
	}
	said := web.Words(alerts[0])
	for _, want := range []string{"The reports do not balance.", "expected-collections Cash expected: ", "expected-collections Delivered: ", "while ended-in-period has"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in %q", want, said)
		}
	}
	lines := map[string]string{}
	for _, row := range d.rows() {
		lines[row[0]] = row[1]
	}
	if lines["expected-collections"] != "no" || lines["fleet-statement"] != "yes" {
		t.Errorf("ties: %v", lines)
	}
	tile := e.page("/payments/ties?" + november).ByID("ties")
	if web.Attribute(tile, "class") != "tile bad" || !strings.Contains(web.Words(tile), "They do not balance") {
		t.Errorf("the tile says %q", web.Words(tile))
	}
	// The summary asks for the tile by itself, and leads to the page without scripts.
	d = e.page("/payments?" + november)
	tile = d.ByID("ties")
	if web.Attribute(tile, "hx-trigger") != "load" || !strings.HasPrefix(web.Attribute(tile, "hx-get"), "/payments/ties?") ||
		!strings.HasPrefix(d.Link("See whether they balance"), "/payments/control-totals?") {
		t.Errorf("the summary's tile: %v %s", tile.Attr, d.Link("See whether they balance"))
	}
	if shown := web.Words(e.page("/payments/control-totals/lines?from=2026-11-16&to=2026-11-30").ByID("rows")); shown != "Line by line" {
		t.Errorf("%q", shown)
	}
}

func TestTies_AreReadAtOnceOnlyWhereThatIsCheap(t *testing.T) {
	t.Parallel()
	f := filters{}
	f.Typed.From = "2026-11-01"
	if ties := tiesOf(f, true); !ties.AtOnce || ties.Fragment != "/payments/ties?from=2026-11-01" || ties.Address != "/payments/control-totals?from=2026-11-01" {
		t.Errorf("%+v", ties)
	}
	e := newEnv(t)
	e.november(3)
	lines, err := e.pages.controlLines(t.Context(), mustParams(t, "2026-11-01", "2026-11-30"))
	must(t, err)
	ties := control.Column("ties")
	for said, want := range map[string]string{"yes": everythingTies, "no": somethingElse, "changing": notKnown} {
		lines[4][ties].Text = said
		if got := verdictOf(lines); got != want {
			t.Errorf("%s: %s", said, got)
		}
	}
	lines[4][ties].Text, lines[5][ties].Text = "changing", "no"
	if got := verdictOf(lines); got != somethingElse {
		t.Errorf("changing and no: %s", got)
	}
}
