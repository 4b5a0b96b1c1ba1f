package finance

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/archive"
)

func TestControlTotals_TieAndHaveTheDigestOfEachFile(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.november(300)
	for _, query := range []string{november, november + "&account=" + w.account.String(), "from=2031-01-01&to=2031-01-31"} {
		d := w.page("/payments/control-totals/lines?" + query)
		if len(all(d.root, "div", "done")) != 1 || !strings.HasPrefix(text(all(d.root, "div", "done")[0]), "Everything ties.") {
			t.Errorf("%s: no word of tying", query)
		}
		if empty := strings.Contains(text(d.root), "There are no orders in this period"); empty != strings.Contains(query, "2031") {
			t.Errorf("%s: empty %v", query, empty)
		}
		for _, name := range []string{"Order ledger", "Expected collections", "Fleet statement", "Exceptions"} {
			address := ""
			for _, a := range all(d.root, "a", "") {
				if text(a) == name && strings.HasPrefix(attribute(a, "href"), "/reports/") {
					address = attribute(a, "href")
				}
			}
			sum := fmt.Sprintf("%x", sha256.Sum256([]byte(w.ask("GET", address, "fin").text)))
			if !strings.Contains(text(d.root), sum) {
				t.Errorf("%s: the digest of %s is not that of %s", query, name, address)
			}
		}
		if command := text(all(d.root, "pre", "")[0]); !strings.HasPrefix(command, "reporting reconcile --from 20") || strings.Contains(command, "--account") != strings.Contains(query, "account") {
			t.Errorf("%s", command)
		}
		tie := parsed(t, w.get("/payments/ties?"+query, "fin").text)
		if tile := tie.byID("ties"); attribute(tile, "class") != "tile good" || text(tile) != "Control totals Everything ties" && text(tile) != "Control totalsEverything ties" {
			t.Errorf("the tile says %q", text(tile))
		}
	}
}

// A row whose end was lost is still delivered by its day, but does not end.
func TestControlTotals_SayWhatDoesNotTie(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.november(200)
	corrupt := w.order(5000, local("2026-11-15 12:00:00.000"))
	corrupt.Status, corrupt.PaymentType = delivery.Delivered, delivery.Cash
	corrupt.OrderAmount = delivery.Money{Minor: 123_456, Set: true}
	corrupt.Collection, corrupt.DeliveredAt = corrupt.OrderAmount, corrupt.CreatedAt
	corrupt.EndedAt = corrupt.EndedAt.AddDate(0, 0, 40)
	must(t, w.Archive.InsertAnew(t.Context(), &archive.Batch{Orders: []archive.Order{corrupt}}))
	d := w.page("/payments/control-totals/lines?" + november)
	alerts := all(d.root, "div", "alert")
	if len(alerts) != 1 {
		t.Fatalf("%d alerts", len(alerts))
	}
	said := text(alerts[0])
	for _, want := range []string{"Does not tie.", "expected-collections Cash expected: ", "expected-collections Delivered: ", "while ended-in-period has"} {
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
	tile := parsed(t, w.get("/payments/ties?"+november, "fin").text).byID("ties")
	if attribute(tile, "class") != "tile bad" || !strings.Contains(text(tile), "Does not tie") {
		t.Errorf("the tile says %q", text(tile))
	}
	// The summary asks for the tile by itself, and leads to the page without scripts.
	d = w.page("/payments?" + november)
	tile = d.byID("ties")
	if attribute(tile, "hx-trigger") != "load" || !strings.HasPrefix(attribute(tile, "hx-get"), "/payments/ties?") ||
		!strings.HasPrefix(d.link("See whether they tie"), "/payments/control-totals?") {
		t.Errorf("the summary's tile: %v %s", attributes(tile), d.link("See whether they tie"))
	}
	if shown := text(w.page("/payments/control-totals/lines?from=2026-11-16&to=2026-11-30").byID("rows")); shown != "Line by line" {
		t.Errorf("%q", shown)
	}
}

// The page is there at once and fetches what takes long; without scripts a link
// leads there.
func TestControlTotals_AreFetchedByTheirPage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.november(30)
	d := w.page("/payments/control-totals?" + november)
	part := attribute(d.byID("totals"), "hx-get")
	if attribute(d.byID("totals"), "hx-trigger") != "load" || d.link("Show the control totals") != part || d.byID("rows") != nil {
		t.Fatalf("the page has %v", attributes(d.byID("totals")))
	}
	a := w.get(part, "fin", "HX-Request: true")
	if a.StatusCode != http.StatusOK || !strings.Contains(a.text, "Everything ties.") || strings.Contains(a.text, "<html") {
		t.Errorf("the part: %d %s", a.StatusCode, a.text)
	}
	if whole := w.get(part, "fin"); !strings.Contains(whole.text, "Everything ties.") || !strings.Contains(whole.text, "<html") {
		t.Errorf("without scripts: %d %s", whole.StatusCode, whole.text)
	}
	if refused := w.get("/payments/control-totals/lines?from=x", "fin"); refused.StatusCode != http.StatusUnprocessableEntity {
		t.Errorf("a day that is none: %d", refused.StatusCode)
	}
}

func TestTies_AreReadAtOnceOnlyWhereThatIsCheap(t *testing.T) {
	t.Parallel()
	f := filters{}
	f.Typed.From = "2026-11-01"
	if ties := tiesOf(f, true); !ties.AtOnce || ties.Fragment != "/payments/ties?from=2026-11-01" || ties.Address != "/payments/control-totals?from=2026-11-01" {
		t.Errorf("%+v", ties)
	}
	w := newWorld(t)
	w.november(3)
	lines, err := w.pages.controlLines(t.Context(), mustParams(t, "2026-11-01", "2026-11-30"))
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
