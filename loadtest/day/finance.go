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

// Finance is what the payment reports say of a day, held against what the vendor
// sent. It ties when Problems is empty.
type Finance struct {
	From, To    string       // local days
	Collections []Collection // report expected-collections
	Control     []Control    // report control-totals
	Problems    []string
}

// Collection is a row of the report expected-collections: what couriers should
// have collected for a store on a day.
type Collection struct {
	Day, ExternalStoreID, StoreName                    string
	DeliveredCount, CashCount, CardCount, PrepaidCount int64
	CashExpected, CardExpected, PrepaidAmount          string
}

// Control is a row of the report control-totals.
type Control struct {
	Line, Ties                                string
	Rows, Orders, Delivered                   *int64
	OrderAmountDelivered                      string
	CashExpected, CardExpected, PrepaidAmount string
	SHA256                                    string `json:"sha256"`
}

// exportPatience is how long reports may be behind the last webhook.
const exportPatience = 30 * time.Second

// ReadFinance reads the account's reports for the days of a day that was played,
// over HTTP as anyone in finance would, and waits until they have caught up.
// reports is a client of the panel's /reports. The error is for reports that
// could not be read.
func (d *Day) ReadFinance(ctx context.Context, reports *client.Client, accountID string) (*Finance, error) {
	expected, from, to := d.expectedCollections()
	f := &Finance{From: from, To: to}
	for deadline := time.Now().Add(exportPatience); ; {
		if err := f.read(ctx, reports, accountID); err != nil {
			return nil, err
		}
		f.Problems = append(f.differences(expected), f.untied()...)
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

func (f *Finance) read(ctx context.Context, reports *client.Client, accountID string) error {
	query := "?" + url.Values{"from": {f.From}, "to": {f.To}, "account": {accountID}}.Encode()
	var collections struct{ Rows []Collection }
	if err := reports.Call(ctx, http.MethodGet, "/expected-collections.json"+query, nil, &collections); err != nil {
		return fmt.Errorf("report expected-collections: %w", err)
	}
	var control struct{ Rows []Control }
	if err := reports.Call(ctx, http.MethodGet, "/control-totals.json"+query, nil, &control); err != nil {
		return fmt.Errorf("report control-totals: %w", err)
	}
	f.Collections, f.Control = collections.Rows, control.Rows
	return nil
}

// takings are a store's sums of a day in kuruş.
type takings struct {
	delivered, cashCount, cash, cardCount, card, prepaidCount, prepaid int64
}

// expectedCollections adds up what the vendor sent for the orders that it was
// told were delivered, by the local day of the delivery and store; from and to
// are the first and the last day on which anything happened.
func (d *Day) expectedCollections() (sums map[string]*takings, from, to string) {
	sums = make(map[string]*takings)
	for _, r := range d.plan.accepted() {
		for _, e := range r.result.end.Events {
			day := e.At.In(delivery.Istanbul).Format(time.DateOnly)
			if from == "" || day < from {
				from = day
			}
			to = max(to, day)
			if e.Status == "Delivered" {
				d.collect(sums, day, r)
			}
		}
	}
	return sums, from, to
}

func (d *Day) collect(sums map[string]*takings, day string, r *request) {
	var sent order
	if err := json.Unmarshal(r.body, &sent); err != nil {
		d.problem("order %s: its own body cannot be read: %v", r.externalID, err)
		return
	}
	key := day + " " + sent.ExternalStoreID
	if sums[key] == nil {
		sums[key] = new(takings)
	}
	t := sums[key]
	t.delivered++
	if sent.Payment == nil {
		return
	}
	switch collection := minor(sent.Payment.CollectionAmount); sent.Payment.Type {
	case "Cash":
		t.cashCount++
		t.cash += collection
	case "Card":
		t.cardCount++
		t.card += collection
	case "Prepaid":
		t.prepaidCount++
		t.prepaid += minor(sent.OrderAmount)
	}
}

// minor is an accepted amount in kuruş; 0 when it was left out.
func minor(n number) int64 {
	m, err := delivery.ParseMoney(n.String())
	if err != nil {
		return 0
	}
	return m.Minor
}

func (c *Collection) takings() takings {
	return takings{c.DeliveredCount, c.CashCount, minor(number(c.CashExpected)), c.CardCount, minor(number(c.CardExpected)),
		c.PrepaidCount, minor(number(c.PrepaidAmount))}
}

// differences names stores whose report is not what the vendor sent.
func (f *Finance) differences(expected map[string]*takings) (problems []string) {
	reported := make(map[string]takings)
	for i := range f.Collections {
		reported[f.Collections[i].Day+" "+f.Collections[i].ExternalStoreID] = f.Collections[i].takings()
	}
	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if reported[key] != *expected[key] {
			problems = append(problems, fmt.Sprintf("%s: reported %+v, sent %+v", key, reported[key], *expected[key]))
		}
	}
	if len(reported) > len(expected) {
		problems = append(problems, fmt.Sprintf("%d rows of expected collections, %d stores had deliveries", len(reported), len(expected)))
	}
	return problems
}

func (f *Finance) untied() (problems []string) {
	tied := 0
	for _, c := range f.Control {
		switch c.Ties {
		case "yes":
			tied++
		case "no":
			problems = append(problems, "control totals: "+c.Line+" does not tie")
		}
	}
	if tied == 0 {
		problems = append(problems, "the control totals tie nothing")
	}
	return problems
}

// Print writes both reports for people.
func (f *Finance) Print(out io.Writer) {
	fmt.Fprintf(out, "\nExpected collections, %s to %s (nobody confirms that money was collected)\n\n", f.From, f.To)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "day\tstore\tdelivered\tcash orders\tcash\tcard orders\tcard\tprepaid orders\tprepaid\t")
	var sum takings
	for i := range f.Collections {
		c := &f.Collections[i]
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%s\t%d\t%s\t%d\t%s\t\n", c.Day, c.StoreName, c.DeliveredCount,
			c.CashCount, c.CashExpected, c.CardCount, c.CardExpected, c.PrepaidCount, c.PrepaidAmount)
		sum.add(c.takings())
	}
	fmt.Fprintf(t, "\t%d rows\t%d\t%d\t%s\t%d\t%s\t%d\t%s\t\n", len(f.Collections), sum.delivered,
		sum.cashCount, lira(sum.cash), sum.cardCount, lira(sum.card), sum.prepaidCount, lira(sum.prepaid))
	_ = t.Flush() // a terminal that is gone changes nothing
	fmt.Fprintf(out, "\nControl totals\n\n")
	t = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "line\torders\tdelivered\torder amount\tcash\tcard\tprepaid\tties\tsha256\t")
	for _, c := range f.Control {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%.12s\t\n", c.Line, shown(c.Orders), shown(c.Delivered),
			c.OrderAmountDelivered, c.CashExpected, c.CardExpected, c.PrepaidAmount, c.Ties, c.SHA256)
	}
	_ = t.Flush()
	fmt.Fprintln(out)
	if len(f.Problems) == 0 {
		fmt.Fprintln(out, "The reports tie with what the vendor sent.")
		return
	}
	fmt.Fprintf(out, "The reports do not tie with what the vendor sent:\n  - %s\n", strings.Join(f.Problems, "\n  - "))
}

func (t *takings) add(o takings) {
	t.delivered += o.delivered
	t.cashCount += o.cashCount
	t.cash += o.cash
	t.cardCount += o.cardCount
	t.card += o.card
	t.prepaidCount += o.prepaidCount
	t.prepaid += o.prepaid
}

func lira(minor int64) string { return delivery.Money{Minor: minor, Set: true}.String() }

func shown(n *int64) string {
	if n == nil {
		return ""
	}
	return strconv.FormatInt(*n, 10)
}
