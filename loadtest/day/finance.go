package day

import (
	"context"
	"encoding/json"
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
	from, to    string   // local days
	collections []object // rows of the report expected-collections, one for each store and day
	control     []object // rows of the report control-totals
	Problems    []string
}

// exportTimeout is how long reports may be behind the last webhook.
const exportTimeout = 30 * time.Second

// columns of a store's row in expected-collections, and their headings: orders, and
// amounts in lira.
var (
	columns  = []string{"deliveredCount", "cashCount", "cashExpected", "cardCount", "cardExpected", "prepaidCount", "prepaidAmount"}
	headings = "delivered\tcash orders\tcash\tcard orders\tcard\tprepaid orders\tprepaid\t"
)

// sums are the columns of a row; amounts are in kuruş.
type sums [7]int64

// ReadFinance reads the account's reports for the days of a day that was played,
// over HTTP as anyone in finance would, and waits until they have caught up. The
// error is for reports that could not be read.
func (d *Day) ReadFinance(ctx context.Context) (*Finance, error) {
	reports := client.New(d.options.Demo.PanelURL+"/reports", 2)
	reports.Bearer = d.options.Demo.ReportsToken
	f := &Finance{}
	var expected map[string]sums
	expected, f.from, f.to = d.expectedCollections()
	query := ".json?" + url.Values{"from": {f.from}, "to": {f.to}, "account": {d.options.Demo.Account.AccountID}}.Encode()
	for deadline := time.Now().Add(exportTimeout); ; {
		for name, rows := range map[string]*[]object{"/expected-collections": &f.collections, "/control-totals": &f.control} {
			var report struct{ Rows []object }
			if err := reports.Call(ctx, http.MethodGet, name+query, nil, &report); err != nil {
				return nil, fmt.Errorf("report %s: %w", name, err)
			}
			*rows = report.Rows
		}
		f.Problems = append(f.differences(expected), f.unbalanced()...)
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

// expectedCollections sums up what the vendor sent for the orders whose delivery it
// got a webhook of, by the local day of the delivery and store; from and to are the first
// and the last day on which anything happened.
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
			key := day + " " + r.order["externalStoreId"].(string)
			row := expected[key]
			row[0]++
			amount := value(r.order["orderAmount"]) // what the customer pays, except before
			if at := slices.Index([]string{"Cash", "Card", "Prepaid"}, r.payment); at >= 0 {
				row[1+2*at]++
				row[2+2*at] += amount
			}
			expected[key] = row
		}
	}
	return expected, from, to
}

// value is a count, or an amount in kuruş; 0 when there is none.
func value(v any) int64 {
	switch v := v.(type) {
	case float64:
		return int64(v)
	case json.Number:
		return value(v.String())
	case string:
		money, _ := delivery.ParseMoney(v) // what is no amount is 0
		return money.Minor
	}
	return 0
}

func sumsOf(row object) (s sums) {
	for i, column := range columns {
		s[i] = value(row[column])
	}
	return s
}

// differences names stores whose report is not what the vendor sent.
func (f *Finance) differences(expected map[string]sums) (problems []string) {
	reported := map[string]sums{}
	for _, row := range f.collections {
		reported[text(row["day"])+" "+text(row["externalStoreId"])] = sumsOf(row)
	}
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if reported[key] != expected[key] {
			problems = append(problems, fmt.Sprintf("%s: reported %v, sent %v (%v)", key, reported[key], expected[key], columns))
		}
	}
	if len(reported) > len(expected) {
		problems = append(problems, fmt.Sprintf("%d rows of expected collections, %d stores had deliveries", len(reported), len(expected)))
	}
	return problems
}

// unbalanced names the control totals that do not balance.
func (f *Finance) unbalanced() (problems []string) {
	balanced := 0
	for _, row := range f.control {
		switch row["ties"] {
		case "yes":
			balanced++
		case "no":
			problems = append(problems, "control totals: "+text(row["line"])+" does not balance")
		}
	}
	if balanced == 0 {
		problems = append(problems, "no control total balances")
	}
	return problems
}

// Print writes both reports for people.
func (f *Finance) Print(out io.Writer) {
	fmt.Fprintf(out, "\nExpected collections, %s to %s (nobody confirms that money was collected)\n\n", f.from, f.to)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "day\tstore\t"+headings)
	total := object{"day": "", "storeName": fmt.Sprintf("%d rows", len(f.collections))}
	for i, column := range columns {
		var sum int64
		for _, row := range f.collections {
			sum += sumsOf(row)[i]
		}
		total[column] = float64(sum)
		if !strings.HasSuffix(column, "Count") {
			total[column] = delivery.Money{Minor: sum, Set: true}.String()
		}
	}
	for _, row := range append(f.collections, total) {
		printRow(t, row, append([]string{"day", "storeName"}, columns...)...)
	}
	_ = t.Flush() // a terminal that is gone changes nothing
	fmt.Fprintf(out, "\nControl totals\n\n")
	t = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "line\torders\tdelivered\torder amount\tcash\tcard\tprepaid\tbalances\tsha256\t")
	for _, row := range f.control {
		printRow(t, row, "line", "orders", "delivered", "orderAmountDelivered", "cashExpected", "cardExpected", "prepaidAmount", "ties", "sha256")
	}
	_ = t.Flush()
	if len(f.Problems) == 0 {
		fmt.Fprintln(out, "\nThe reports reconcile with what the vendor sent.")
		return
	}
	fmt.Fprintf(out, "\nThe reports do not reconcile with what the vendor sent:\n  - %s\n", strings.Join(f.Problems, "\n  - "))
}

func printRow(out io.Writer, row object, names ...string) {
	for _, name := range names {
		cell := text(row[name])
		if name == "sha256" {
			cell = cell[:min(len(cell), 12)]
		}
		fmt.Fprintf(out, "%s\t", cell)
	}
	fmt.Fprintln(out)
}

// text is a cell of a report.
func text(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return ""
}
