package day

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack/client"
)

// Finance is what the payment reports say of a day, compared with what the vendor
// sent. It reconciles when Problems is empty.
type Finance struct {
	from, to             string // local days
	collections, control report
	Problems             []string
}

// report is a payment report: control-totals, or expected-collections with one row for
// each store and day.
type report struct{ Rows []object }

// exportTimeout is how long reports may be behind the last webhook.
const exportTimeout = 30 * time.Second

// columns of a store's row in expected-collections, and what is printed above them:
// orders, and amounts in lira.
var (
	columns  = []string{"deliveredCount", "cashCount", "cashExpected", "cardCount", "cardExpected", "prepaidCount", "prepaidAmount"}
	headings = "delivered\tcash orders\tcash\tcard orders\tcard\tprepaid orders\tprepaid"
)

// sums are the columns of a row; amounts are in kuruş.
type sums [7]int64

// ReadFinance reads the account's reports for the days of a day that was played,
// over HTTP as anyone in finance would, and waits until they have caught up. The
// error is for reports that could not be read.
func (d *Day) ReadFinance(ctx context.Context) (*Finance, error) {
	reports := client.New(d.options.Demo.PanelURL+"/reports", 2)
	reports.Bearer = d.options.Demo.ReportsToken
	expected, from, to := d.expectedCollections()
	query := ".json?" + url.Values{"from": {from}, "to": {to}, "account": {d.options.Demo.Account.AccountID}}.Encode()
	for deadline := time.Now().Add(exportTimeout); ; {
		f := &Finance{from: from, to: to}
		for name, r := range map[string]*report{"/expected-collections": &f.collections, "/control-totals": &f.control} {
			if err := reports.Call(ctx, http.MethodGet, name+query, nil, r); err != nil {
				return nil, fmt.Errorf("report %s: %w", name, err)
			}
		}
		f.compare(expected)
		if len(f.Problems) == 0 || time.Now().After(deadline) {
			return f, nil
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(250 * time.Millisecond):
		}
	}
}

// expectedCollections sums up what the vendor sent for the delivered orders, by the
// local day of the delivery and store; from and to are the first and the last day on
// which anything happened.
func (d *Day) expectedCollections() (expected map[string]sums, from, to string) {
	expected = map[string]sums{}
	for _, r := range d.plan.accepted() {
		for _, e := range r.result.end.Events {
			day := e.At.In(delivery.Istanbul).Format(time.DateOnly)
			if from == "" || day < from {
				from = day
			}
			to = max(to, day)
			if e.Status != "Delivered" {
				continue
			}
			row := expected[day+" "+r.storeID]
			row[0]++
			if at := slices.Index([]string{"Cash", "Card", "Prepaid"}, r.payment); at >= 0 {
				row[1+2*at]++
				row[2+2*at] += r.kurus
			}
			expected[day+" "+r.storeID] = row
		}
	}
	return expected, from, to
}

// compare notes stores whose report is not what the vendor sent, and control totals
// that do not balance.
func (f *Finance) compare(expected map[string]sums) {
	reported := map[string]sums{}
	for _, row := range f.collections.Rows {
		reported[text(row["day"])+" "+text(row["externalStoreId"])] = sumsOf(row)
	}
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if reported[key] != expected[key] {
			f.problem("%s: reported %v, sent %v (%v)", key, reported[key], expected[key], columns)
		}
	}
	if len(reported) > len(expected) {
		f.problem("%d rows of expected collections, %d stores had deliveries", len(reported), len(expected))
	}
	balanced := false
	for _, row := range f.control.Rows {
		balanced = balanced || row["ties"] == "yes"
		if row["ties"] == "no" {
			f.problem("control totals: %s does not balance", row["line"])
		}
	}
	if !balanced {
		f.problem("no control total balances")
	}
}

func (f *Finance) problem(format string, args ...any) {
	f.Problems = append(f.Problems, fmt.Sprintf(format, args...))
}

func sumsOf(row object) (s sums) {
	for i, column := range columns {
		// Amounts have two decimals: without the point they are in kuruş.
		s[i], _ = strconv.ParseInt(strings.Replace(text(row[column]), ".", "", 1), 10, 64) // none is 0
	}
	return s
}

// Print writes both reports for people.
func (f *Finance) Print(out io.Writer) {
	total := object{"storeName": fmt.Sprintf("%d rows", len(f.collections.Rows))}
	for i, column := range columns {
		sum := delivery.Money{Set: true}
		for _, row := range f.collections.Rows {
			sum.Minor += sumsOf(row)[i]
		}
		total[column] = sum.String()
		if strings.HasSuffix(column, "Count") {
			total[column] = strconv.FormatInt(sum.Minor, 10)
		}
	}
	fmt.Fprintf(out, "\nExpected collections, %s to %s (nobody confirms that money was collected)\n\n", f.from, f.to)
	printTable(out, "day\tstore\t"+headings, append([]string{"day", "storeName"}, columns...), append(f.collections.Rows, total))
	fmt.Fprintf(out, "\nControl totals\n\n")
	printTable(out, "line\torders\tdelivered\torder amount\tcash\tcard\tprepaid\tbalances\tsha256",
		[]string{"line", "orders", "delivered", "orderAmountDelivered", "cashExpected", "cardExpected", "prepaidAmount", "ties", "sha256"}, f.control.Rows)
	if len(f.Problems) == 0 {
		fmt.Fprintln(out, "\nThe reports reconcile with what the vendor sent.")
		return
	}
	fmt.Fprintf(out, "\nThe reports do not reconcile with what the vendor sent:\n  - %s\n", strings.Join(f.Problems, "\n  - "))
}

func printTable(out io.Writer, headings string, columns []string, rows []object) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, headings+"\t")
	for _, row := range rows {
		for _, name := range columns {
			cell := text(row[name])
			if name == "sha256" {
				cell = cell[:min(len(cell), 12)]
			}
			fmt.Fprint(t, cell, "\t")
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // a terminal that is gone changes nothing
}

// text is a cell of a report: a text, a number or null.
func text(v any) string {
	if v == nil {
		return ""
	}
	return fmt.Sprint(v)
}
