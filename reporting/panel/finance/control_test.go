package finance

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/reports"
)

func TestControlTotals_TieAndHaveTheDigestOfEachFile(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(100)
	for _, query := range []string{november + "&account=" + e.account.String(), "from=2031-01-01&to=2031-01-31"} {
		d := page{e.client.Get("/payments/control-totals/lines?"+query).Want(200, "<html")} // without scripts
		said := "The reports balance."
		if strings.Contains(query, "2031") {
			said = "There is nothing to compare: this period lies in the future."
		}

		if done := testenv.All(d.Tree(), "div", "done"); len(done) != 1 || !strings.HasPrefix(testenv.Words(done[0]), said) {
			t.Errorf("%s: not said: %s", query, said)
		}

		for _, name := range []string{"Order ledger", "Expected collections", "Fleet statement", "Exceptions"} {
			address := ""
			for _, a := range testenv.All(d.Tree(), "a") {
				if testenv.Words(a) == name && strings.HasPrefix(testenv.Attribute(a, "href"), "/reports/") {
					address = testenv.Attribute(a, "href")
				}
			}

			sum := fmt.Sprintf("%x", sha256.Sum256([]byte(e.client.Get(address).Text)))
			if !strings.Contains(testenv.Words(d.Tree()), sum) {
				t.Errorf("%s: the digest of %s is not that of %s", query, name, address)
			}
		}

		if command := testenv.Words(testenv.All(d.Tree(), "pre")[0]); !strings.HasPrefix(command, "reporting reconcile --from 20") || strings.Contains(command, "--account") != strings.Contains(query, "account") {
			t.Errorf("%s", command)
		}

		tie := e.page("/payments/ties?" + query)
		if tile := tie.ByID("ties"); testenv.Attribute(tile, "class") != "tile good" || !strings.HasPrefix(testenv.Words(tile), "Control totalsThe reports balance") {
			t.Errorf("the tile says %q", testenv.Words(tile))
		}
	}

	// The page is there at once and fetches what takes long; without scripts a link
	// leads there.
	d := e.page("/payments/control-totals?" + november)
	part := testenv.Attribute(d.ByID("totals"), "hx-get")
	if testenv.Attribute(d.ByID("totals"), "hx-trigger") != "load" || d.Link("Show the control totals") != part || d.ByID("rows") != nil {
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
	must(t, e.Archive.InsertAgain(t.Context(), &archive.Batch{Orders: []archive.Order{corrupt}}))
	d := e.page("/payments/control-totals/lines?" + november)
	alerts := testenv.All(d.Tree(), "div", "alert")
	if len(alerts) != 1 {
		t.Fatalf("%d alerts", len(alerts))
	}

	said := testenv.Words(alerts[0])
	for _, want := range []string{"The reports do not balance.", "Expected collections, Cash expected: ", "Expected collections, Delivered: ", "while Ended in the period has"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in %q", want, said)
		}
	}

	lines := map[string]string{}
	for _, row := range d.rows() {
		name, _, _ := strings.Cut(row[0], "|")
		lines[name] = row[1]
	}

	if lines["Expected collections"] != "no" || lines["Fleet statement"] != "yes" || lines["Carried in"] != "not compared" || len(lines) != 7 {
		t.Errorf("ties: %v", lines)
	}

	tile := e.page("/payments/ties?" + november).ByID("ties")
	if testenv.Attribute(tile, "class") != "tile bad" || !strings.Contains(testenv.Words(tile), "They do not balance") {
		t.Errorf("the tile says %q", testenv.Words(tile))
	}

	// The summary asks for the tile by itself, and leads to the page without scripts.
	d = e.page("/payments?" + november)
	tile = d.ByID("ties")
	if testenv.Attribute(tile, "hx-trigger") != "load" || !strings.HasPrefix(testenv.Attribute(tile, "hx-get"), "/payments/ties?") ||
		!strings.HasPrefix(d.Link("See whether they balance"), "/payments/control-totals?") {
		t.Errorf("the summary's tile: %v %s", tile.Attr, d.Link("See whether they balance"))
	}

	if shown := testenv.Words(e.page("/payments/control-totals/lines?from=2026-11-16&to=2026-11-30").ByID("rows")); shown != "Line by line" {
		t.Errorf("%q", shown)
	}
}

// What was created is compared with the order ledger, everything else with what ended in the period; rows are compared
// with nothing.
func TestControlView_ComparesEachFigureWithTheRightLine(t *testing.T) {
	t.Parallel()

	line := func(rows, created, delivered int64) []reports.Cell {
		cells := make([]reports.Cell, len(control.Columns))
		for key, n := range map[string]int64{"rows": rows, "created": created, "delivered": delivered} {
			cells[control.Column(key)] = reports.Cell{Number: n, Given: true}
		}
		return cells
	}

	ended := line(0, 0, 30)
	ended[control.Column("created")] = reports.Cell{} // it has none
	named := map[string][]reports.Cell{"order-ledger": line(1, 20, 29), "ended-in-period": ended, "fleet-statement": line(3, 21, 31)}

	c := &controlView{}
	c.compare("fleet-statement", named)

	want := []difference{
		{Line: "Fleet statement", Figure: "Created", Is: "21", Compared: "Order ledger", ShouldBe: "20"},
		{Line: "Fleet statement", Figure: "Delivered", Is: "31", Compared: "Ended in the period", ShouldBe: "30"},
	}
	if !slices.Equal(c.Differences, want) {
		t.Errorf("%+v, want %+v", c.Differences, want)
	}
}

// What was found is coloured, and nothing else.
func TestReconciled_SaysWhatWasComparedAndFound(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	e.november(3)
	said := func() string {
		return testenv.Words(page{e.client.Get("/payments/control-totals/lines?" + november).Want(200)}.ByID("reconciled"))
	}
	if got := said(); got != "Redis and ClickHouse: not compared yet, or that cannot be read now." {
		t.Error(got)
	}

	day := func(d int) time.Time { return time.Date(2026, 11, d, 0, 0, 0, 0, time.UTC) }
	for i, c := range []struct {
		last  archive.Reconciliation
		want  string
		pills int
	}{
		{archive.Reconciliation{From: day(20), To: day(22), Orders: 1234}, "compared 1,234 orders of 20 Nov 2026 to 22 Nov 2026 on 23 Nov 2026 02:00:00: none differs.", 0},
		{archive.Reconciliation{From: day(22), To: day(22), Differences: 795}, "compared 0 orders of 22 Nov 2026 on 23 Nov 2026 02:00:01: 795 differ.", 1},
		{archive.Reconciliation{From: day(22), To: day(22), Orders: 5, Totals: 2}, "compared 5 orders of 22 Nov 2026 on 23 Nov 2026 02:00:02: none differs, 2 sums do not balance.", 1},
	} {
		c.last.At = local("2026-11-23 02:00:00.000").Add(time.Duration(i) * time.Second)
		must(t, e.Archive.NoteReconciliation(t.Context(), &c.last))
		if got := said(); got != "Redis and ClickHouse: "+c.want+" Orders of today are compared when the day is over." {
			t.Error(got)
		}

		p := page{e.client.Get("/payments/control-totals/lines?" + november).Want(200)}.ByID("reconciled")
		if pills := testenv.All(p, "span", "pill"); len(pills) != c.pills || len(testenv.All(p, "strong")) > 0 {
			t.Errorf("%s: %d marks", c.want, len(pills))
		}
	}
}

func TestTies_AreReadAtOnceOnlyWhereThatIsCheap(t *testing.T) {
	t.Parallel()

	f := filters{}
	f.Typed.From = "2026-11-01"
	if ties := balanceOf(f); ties.AtOnce || ties.Fragment != "/payments/ties?from=2026-11-01" || ties.Address != "/payments/control-totals?from=2026-11-01" {
		t.Errorf("%+v", ties)
	}

	e := newEnv(t)
	e.november(3)
	lines, err := reports.ControlLines(t.Context(), e.Archive, mustParams(t, "2026-11-01", "2026-11-30"))
	must(t, err)
	ties := control.Column("ties")
	for said, want := range map[string]string{"yes": balanced, "no": differs, "changing": changing} {
		lines[4][ties].Text = said
		if got := resultOf(lines); got != want {
			t.Errorf("%s: %s", said, got)
		}
	}

	lines[4][ties].Text, lines[5][ties].Text = "changing", "no"
	if got := resultOf(lines); got != differs {
		t.Errorf("changing and no: %s", got)
	}
}
