//go:build long

package systemtest

import (
	"archive/zip"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// testReports has orders of every kind delivered, and holds each report's page
// against ClickHouse's tables, which are asked directly.
func testReports(t *testing.T, e *panelEnv) {
	b := e.vendorNamed(t, "Kekik Finans")
	b.sellEveryKind(t, e)
	today := time.Now().In(delivery.Istanbul)
	period := url.Values{"from": {today.AddDate(0, 0, -1).Format(time.DateOnly)}, "to": {today.Format(time.DateOnly)}, "account": {b.AccountID}}.Encode()
	account := "account_id = '" + b.AccountID + "'"
	await(t, "every order is in ClickHouse", func() bool {
		return e.ask(t, "SELECT countIf(ended_at IS NOT NULL) FROM delivery.orders FINAL WHERE "+account) == "6"
	})
	p := e.signIn(t, finance)
	for _, c := range []struct {
		path, title string
		totals      map[string]string // heading -> what ClickHouse is asked
	}{
		{"/payments", "Expected collections", map[string]string{
			"Delivered": "SELECT toString(countIf(status = 'Delivered'))", "Cash expected": sumOf("status = 'Delivered' AND payment_type = 'Cash'", "collection_amount"),
			"Card expected":  sumOf("status = 'Delivered' AND payment_type = 'Card'", "collection_amount"),
			"Prepaid amount": sumOf("status = 'Delivered' AND payment_type = 'Prepaid'", "order_amount"),
		}},
		{"/payments/order-ledger", "Order ledger", map[string]string{
			"Order amount": sumOf("1", "order_amount"), "To collect": sumOf("1", "collection_amount"),
			"Expected": sumOf("status = 'Delivered' AND payment_type IN ('Cash', 'Card')", "collection_amount"),
		}},
		{"/payments/fleet-statement", "Fleet statement", map[string]string{
			"Created": "SELECT toString(count())", "Delivered": "SELECT toString(countIf(status = 'Delivered'))",
			"Failed": "SELECT toString(countIf(status = 'Failed'))", "Cancelled": "SELECT toString(countIf(status = 'Cancelled'))",
			"Amount delivered": sumOf("status = 'Delivered'", "order_amount"),
		}},
	} {
		p.Visit(c.path+"?"+period, http.StatusOK)
		p.Shows(c.title)
		foot := totalsOf(p)
		for heading, query := range c.totals {
			want := grouped(e.ask(t, query+" FROM delivery.orders FINAL WHERE "+account))
			if got, found := foot[heading]; !found || got != want {
				t.Errorf("%s: the total of %q is %q, ClickHouse has %q; the foot is %v", c.path, heading, got, want, foot)
			}
		}
	}

	p.Visit("/payments/exceptions?"+period, http.StatusOK)
	p.Shows("KEKIK-4", "CustomerRefused")
	p.Visit("/payments/control-totals?"+period, http.StatusOK)
	p.WaitText("The reports balance.")
	testDownloads(t, p, "/payments/order-ledger?"+period)
}

// sellEveryKind: delivered with cash, card, prepaid and an amount that needs a
// thousands separator, one that failed at the door and one that was cancelled.
func (b *vendor) sellEveryKind(t *testing.T, e *panelEnv) {
	t.Helper()
	for i, o := range []struct{ payment, amount, ends string }{
		{"Cash", "1249.90", "Delivered"}, {"Card", "310.05", "Delivered"}, {"Prepaid", "99.99", "Delivered"},
		{"Cash", "12500.00", "Delivered"}, {"Cash", "75.50", "Failed"}, {"Card", "60.00", "Cancelled"},
	} {
		id := b.Create(t, func(body map[string]any) {
			body["externalOrderId"], body["orderAmount"] = fmt.Sprintf("KEKIK-%d", i), number(o.amount)
			payment := map[string]any{"type": o.payment}
			if o.payment != "Prepaid" {
				payment["collectionAmount"] = number(o.amount)
			}
			body["payment"] = payment
		})

		switch o.ends {
		case "Delivered":
			e.carry(t, id, "Delivered")
		case "Failed":
			e.carry(t, id, "Delivering")
			e.Report(t, id, "Failed", "CustomerRefused")
		case "Cancelled":
			must(t, b.Call(t.Context(), http.MethodPost, "/orders/"+id+"/cancel", nil, nil))
		}
	}
}

func sumOf(condition, column string) string {
	return "SELECT toString(toDecimal64(sumIf(ifNull(" + column + ", 0), " + condition + "), 2))"
}

// grouped writes a number as the pages do: 1,234.56.
func grouped(number string) string {
	whole, fraction, decimal := strings.Cut(number, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}

	if decimal {
		return whole + "." + (fraction + "00")[:2]
	}
	return whole
}

// totalsOf reads a report's foot: heading -> total.
func totalsOf(p *Page) map[string]string {
	return eval[map[string]string](p, `(() => {
		const text = e => e.textContent.trim(), table = [...document.querySelectorAll('table.report')].at(-1);
		const headings = [...table.tHead.rows[0].cells].map(text), totals = {};
		let at = 0;
		for (const cell of table.querySelector(".sums").rows[0].cells) {
			totals[headings[at]] = text(cell);
			at += cell.colSpan;
		}
		return totals;
	})()`)
}

// ask sends ClickHouse a query whose answer is one value.
func (e *panelEnv) ask(t *testing.T, query string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, e.Demo.ClickHouseURL, strings.NewReader(query))
	must(t, err)
	resp, err := http.DefaultClient.Do(req)
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("ClickHouse answers %d: %.300s", resp.StatusCode, body)
	}

	return strings.TrimSpace(string(body))
}

func testDownloads(t *testing.T, p *Page, page string) {
	t.Helper()
	p.Visit(page, http.StatusOK)
	csv, err := os.ReadFile(p.Download("Download Order ledger as CSV with ;"))
	must(t, err)
	for _, want := range []string{"\xef\xbb\xbf", "KEKIK-0", "1249,90", "12500,00", "Moda Şubesi"} {
		if !strings.Contains(string(csv), want) {
			t.Errorf("the CSV lacks %q", want)
		}
	}

	file := p.Download("Download Order ledger as XLSX")
	if filepath.Ext(file) != ".xlsx" {
		t.Errorf("the spreadsheet is called %s", filepath.Base(file))
	}

	book, err := zip.OpenReader(file)
	must(t, err)
	defer book.Close()
	var content strings.Builder
	for _, part := range book.File {
		if !strings.HasPrefix(part.Name, "xl/worksheets/") && part.Name != "xl/sharedStrings.xml" {
			continue
		}
		r, err := part.Open()
		must(t, err)
		_, err = io.Copy(&content, r)
		must(t, err)
		r.Close()
	}

	for _, want := range []string{"KEKIK-0", "1249.9", "12500", "Moda Şubesi"} {
		if !strings.Contains(content.String(), want) {
			t.Errorf("the spreadsheet lacks %q", want)
		}
	}
}
