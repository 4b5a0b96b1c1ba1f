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
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// Finance is what the payment reports say of a day, compared with what the vendor
// sent. It reconciles when Problems is empty.
type Finance struct {
	from, to             string // local days
	collections, control report
	Problems             receiver.Problems
}

// report is a payment report: control-totals, or expected-collections with one row for
// each store and day. Cells are texts and numbers.
type report struct {
	Rows   []object
	Totals object // sums of columns, and the number of rows
}

// exportTimeout is how long reports may be behind the last webhook.
const exportTimeout = 30 * time.Second

// columns of a store's row in expected-collections: orders, and amounts in lira.
var columns = []string{"deliveredCount", "cashCount", "cashExpected", "cardCount", "cardExpected", "prepaidCount", "prepaidAmount"}

// sums are the columns of a row; amounts are in kuruş.
type sums [7]int64

// readFinance reads the account's reports for the days of a day that was played, over HTTP as anyone in finance
// would, and waits until they have caught up. The error is for reports that could not be read.
func (d *Day) readFinance(ctx context.Context) (*Finance, error) {
	reports := client.New(d.options.Demo.PanelURL+"/reports", 2)
	reports.Bearer = d.options.Demo.ReportsToken
	expected, from, to := d.expectedCollections()
	query := ".json?" + url.Values{"from": {from}, "to": {to}, "account": {d.options.Demo.Account.AccountID}}.Encode()
	var f *Finance
	err := harness.Await(ctx, "the reports", exportTimeout, 250*time.Millisecond, func() (bool, error) {
		f = &Finance{from: from, to: to}
		for name, r := range map[string]*report{"/expected-collections": &f.collections, "/control-totals": &f.control} {
			if err := reports.Call(ctx, http.MethodGet, name+query, nil, r); err != nil {
				return false, fmt.Errorf("report %s: %w", name, err)
			}
		}
		f.compare(expected)
		return len(f.Problems) == 0, nil
	})
	if len(f.Problems) > 0 {
		err = nil // they are the result
	}
	return f, err
}

// expectedCollections sums up what the vendor sent for the delivered orders, by the local day of the delivery and
// store; from and to are the first and the last day on which anything happened.
func (d *Day) expectedCollections() (expected map[string]sums, from, to string) {
	expected = map[string]sums{}
	for _, r := range d.plan.accepted() {
		for _, e := range r.order.Events {
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

// compare notes stores whose report is not what the vendor sent, and control totals that do not balance.
func (f *Finance) compare(expected map[string]sums) {
	reported := map[string]sums{}
	for _, row := range f.collections.Rows {
		var s sums
		for i, column := range columns {
			// Amounts have two decimals: without the point they are in kuruş.
			s[i], _ = strconv.ParseInt(strings.Replace(fmt.Sprint(row[column]), ".", "", 1), 10, 64) // none is 0
		}
		reported[fmt.Sprintf("%v %v", row["day"], row["externalStoreId"])] = s
	}
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if reported[key] != expected[key] {
			f.Problems.Add("%s: reported %v, sent %v (%v)", key, reported[key], expected[key], columns)
		}
	}
	if len(reported) > len(expected) {
		f.Problems.Add("%d rows of expected collections, %d stores had deliveries", len(reported), len(expected))
	}
	balanced := false
	for _, row := range f.control.Rows {
		balanced = balanced || row["ties"] == "yes"
		if row["ties"] == "no" {
			f.Problems.Add("control totals: %s does not balance", row["line"])
		}
	}
	if !balanced {
		f.Problems.Add("no control total balances")
	}
}

// Print writes both reports for people.
func (f *Finance) Print(out io.Writer) {
	f.collections.Totals["storeName"] = fmt.Sprintf("%v rows", f.collections.Totals["rows"])
	fmt.Fprintf(out, "\nExpected collections, %s to %s (nobody confirms that money was collected)\n\n", f.from, f.to)
	printTable(out, append(f.collections.Rows, f.collections.Totals), "day\tstore\tdelivered\tcash orders\tcash\tcard orders\tcard\tprepaid orders\tprepaid",
		append([]string{"day", "storeName"}, columns...)...)
	for _, row := range f.control.Rows {
		row["sha256"] = fmt.Sprintf("%.12v", row["sha256"])
	}
	fmt.Fprintf(out, "\nControl totals\n\n")
	printTable(out, f.control.Rows, "line\torders\tdelivered\torder amount\tcash\tcard\tprepaid\tbalances\tsha256",
		"line", "orders", "delivered", "orderAmountDelivered", "cashExpected", "cardExpected", "prepaidAmount", "ties", "sha256")
	if len(f.Problems) == 0 {
		fmt.Fprintln(out, "\nThe reports reconcile with what the vendor sent.")
		return
	}
	fmt.Fprintf(out, "\nThe reports do not reconcile with what the vendor sent:\n  - %s\n", strings.Join(f.Problems, "\n  - "))
}

func printTable(out io.Writer, rows []object, headings string, columns ...string) {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, headings+"\t")
	for _, row := range rows {
		for _, name := range columns {
			cell := row[name]
			if cell == nil {
				cell = ""
			}
			fmt.Fprintf(t, "%v\t", cell)
		}
		fmt.Fprintln(t)
	}
	_ = t.Flush() // a terminal that is gone changes nothing
}
