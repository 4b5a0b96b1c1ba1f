package day

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/stack/client"
	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// reportsTimeout is how long reports may be behind the last webhook.
const reportsTimeout = 30 * time.Second

// conclude compares everything and prints it. The error reports that the reports could not be read, or that the day
// does not balance.
func (d *Day) conclude(ctx context.Context, out io.Writer) error {
	r, err := d.awaitReports(ctx)
	if err != nil {
		return err
	}

	// The reports have the late deliveries, so the worker has decided them. The orders must not have changed by that.
	d.readLate(ctx)

	f := d.figures()
	f.print(out)
	r.print(out)
	if len(f.problems)+len(r.problems) > 0 {
		return errors.New("the day does not balance")
	}

	return nil
}

// figures are what a day came to, without its reports.
type figures struct {
	stores, cities int

	sent     int            // planned creations that were answered
	accepted int            // 201, each a different order
	replayed int            // 201 for a repetition, with the original's answer
	refused  int            // answered otherwise
	codes    map[string]int // refused creations by errorCode

	ended           map[string]int // accepted orders by terminal status
	payments        map[string]int // accepted orders by payment.type
	tooLate         int            // cancellations answered ORDER_NOT_CANCELLABLE
	duplicatesAsked int            // webhooks that the sandbox was asked to send twice
	webhooks        *receiver.Check
	retries         map[string]int // requests that were sent again, by the errorCode or noAnswer

	problems receiver.Problems
}

// figures counts, and compares the webhooks with the orders' histories and with the plan.
func (d *Day) figures() *figures {
	f := &figures{
		stores:   len(d.plan.stores),
		cities:   len(d.plan.stores) / 2,
		codes:    map[string]int{},
		ended:    map[string]int{},
		payments: map[string]int{},
		tooLate:  d.tooLate,
		retries:  d.retries,
		problems: d.problems,
	}

	for _, r := range d.plan.requests {
		if r.answer.Status == 0 {
			continue // never answered, which is a problem already
		}

		f.sent++
		switch {
		case r.order.OrderID == "":
			f.refused++
			f.codes[r.answer.Code]++
		case r.original != nil:
			f.replayed++
		}
	}

	var orders []receiver.History
	for _, r := range d.plan.accepted() {
		f.accepted++
		f.payments[r.payment]++
		f.ended[r.order.Status]++
		if r.want.Duplicates {
			f.duplicatesAsked += max(len(r.order.Events)-1, 0)
		}
		orders = append(orders, r.order)
	}

	f.webhooks = d.Check(orders, f.stores)
	f.problems = append(f.problems, f.webhooks.Problems...)
	f.balance()

	return f
}

// balance adds a problem for each total that is not the sum of its parts.
func (f *figures) balance() {
	if f.webhooks.Duplicates < f.duplicatesAsked {
		f.problems.Add("%d duplicates received, %d asked for", f.webhooks.Duplicates, f.duplicatesAsked)
	}

	if f.sent != f.accepted+f.replayed+f.refused {
		f.problems.Add("sent %d is not accepted %d + replayed %d + refused %d", f.sent, f.accepted, f.replayed, f.refused)
	}

	delivered, failed, cancelled := f.ended["Delivered"], f.ended["Failed"], f.ended["Cancelled"]
	if f.accepted != delivered+failed+cancelled {
		f.problems.Add("accepted %d is not delivered %d + failed %d + cancelled %d", f.accepted, delivered, failed, cancelled)
	}
}

func (f *figures) print(out io.Writer) {
	line := func(label string, count int, details string) {
		fmt.Fprintln(out, strings.TrimRight(fmt.Sprintf("  %-18s %5d  %s", label, count, details), " "))
	}

	fmt.Fprintf(out, "\nThe day of a vendor with %d stores in %d cities\n\n", f.stores, f.cities)
	line("sent", f.sent, "")
	line("= accepted", f.accepted, counted(f.payments))
	line("+ replayed", f.replayed, "")
	line("+ refused", f.refused, counted(f.codes))
	retries := 0
	for _, n := range f.retries {
		retries += n
	}

	if retries > 0 {
		line("sent again", retries, counted(f.retries))
	}

	fmt.Fprintln(out)
	line("accepted", f.accepted, "")
	line("= delivered", f.ended["Delivered"], "")
	line("+ failed", f.ended["Failed"], "")
	line("+ cancelled", f.ended["Cancelled"], "")
	line("cancelled too late", f.tooLate, "")

	fmt.Fprintln(out)
	line("webhooks expected", f.webhooks.Expected, "")
	line("webhooks received", f.webhooks.Received, "")
	line("duplicates", f.webhooks.Duplicates, fmt.Sprintf("asked for: %d", f.duplicatesAsked))

	printProblems(out, f.problems, "It balances.", "It does not balance")
}

// reports are the account's payment reports for the days of a day that was played. They reconcile with what was sent
// when problems is empty.
type reports struct {
	from, to string // the local days on which the day began and ended

	collections struct {
		Rows   []collection
		Totals collection // without a day and a store
	}
	exceptions struct {
		Rows []struct{ Kind string }
	}
	control struct {
		Rows []object // cells by column
	}

	problems receiver.Problems
}

// collection is a row of expected-collections: what couriers should have collected for a store on a day.
type collection struct {
	Day, ExternalStoreID, StoreName string

	DeliveredCount int
	CashCount      int
	CashExpected   kurus
	CardCount      int
	CardExpected   kurus
	PrepaidCount   int
	PrepaidAmount  kurus
}

// awaitReports reads the reports until they agree with what was sent, at most for reportsTimeout. What differs then is
// in the result; the error is for reports that could not be read.
func (d *Day) awaitReports(ctx context.Context) (r *reports, err error) {
	err = harness.Await(ctx, "the reports", reportsTimeout, 250*time.Millisecond, func() (bool, error) {
		r = &reports{
			from: d.began.In(delivery.Istanbul).Format(time.DateOnly),
			to:   time.Now().In(delivery.Istanbul).Format(time.DateOnly),
		}
		if err := r.read(ctx, &d.options); err != nil {
			return false, err
		}

		r.compareCollections(expectedCollections(d.plan))
		r.compareExceptions(expectedExceptions(d.plan))
		r.checkControlTotals()

		return len(r.problems) == 0, nil
	})

	if errors.Is(err, harness.ErrTimeout) {
		err = nil // the problems are the result
	}

	return r, err
}

// read reads the reports over HTTP, as anyone in finance would.
func (r *reports) read(ctx context.Context, o *Options) error {
	api := client.New(o.Demo.PanelURL+"/reports", 2)
	api.Bearer = o.Demo.ReportsToken
	query := url.Values{"from": {r.from}, "to": {r.to}, "account": {o.Demo.Account.AccountID}}.Encode()
	for name, report := range map[string]any{
		"expected-collections": &r.collections,
		"exceptions":           &r.exceptions,
		"control-totals":       &r.control,
	} {
		if err := api.Call(ctx, http.MethodGet, "/"+name+".json?"+query, nil, report); err != nil {
			return fmt.Errorf("report %s: %w", name, err)
		}
	}

	return nil
}

// expectedCollections sums up what the vendor sent for the delivered orders, by day and store.
func expectedCollections(p *plan) map[string]collection {
	expected := map[string]collection{}
	for _, r := range p.accepted() {
		for _, e := range r.order.Events {
			if e.Status != "Delivered" {
				continue
			}
			day := e.At.In(delivery.Istanbul).Format(time.DateOnly)
			row := expected[day+" "+r.store.id]
			row.Day, row.ExternalStoreID, row.StoreName = day, r.store.id, r.store.name
			row.add(r)
			expected[day+" "+r.store.id] = row
		}
	}

	return expected
}

func (c *collection) add(r *request) {
	c.DeliveredCount++
	switch r.payment {
	case "Cash":
		c.CashCount++
		c.CashExpected += r.amount
	case "Card":
		c.CardCount++
		c.CardExpected += r.amount
	case "Prepaid":
		c.PrepaidCount++
		c.PrepaidAmount += r.amount
	}
}

// expectedExceptions counts, by kind, what somebody in finance has to look at.
func expectedExceptions(p *plan) map[string]int {
	kinds := map[string]int{}
	for _, r := range p.accepted() {
		if r.payment == "none" {
			kinds["PaymentTypeMissing"]++
		}

		hasCollection := r.payment == "Cash" || r.payment == "Card"
		if hasCollection && r.order.Status != "Delivered" {
			kinds["CollectionUndelivered"]++
		}

		if r.want.LateDelivery {
			kinds["LateDelivery"]++
		}
	}

	return kinds
}

// compareCollections adds a problem for each row that is not what was sent.
func (r *reports) compareCollections(expected map[string]collection) {
	reported := map[string]collection{}
	for _, row := range r.collections.Rows {
		reported[row.Day+" "+row.ExternalStoreID] = row
	}

	for _, key := range slices.Sorted(maps.Keys(expected)) {
		if reported[key] != expected[key] {
			r.problems.Add("%s: reported %+v, sent %+v", key, reported[key], expected[key])
		}
	}

	if len(r.collections.Rows) != len(expected) {
		r.problems.Add("%d rows of expected collections, %d stores had deliveries", len(r.collections.Rows), len(expected))
	}
}

func (r *reports) compareExceptions(expected map[string]int) {
	reported := r.exceptionsByKind()
	if !maps.Equal(reported, expected) {
		r.problems.Add("exceptions: reported %s, expected %s", counted(reported), counted(expected))
	}
}

func (r *reports) exceptionsByKind() map[string]int {
	kinds := map[string]int{}
	for _, row := range r.exceptions.Rows {
		kinds[row.Kind]++
	}
	return kinds
}

func (r *reports) checkControlTotals() {
	anyBalances := false
	for _, row := range r.control.Rows {
		switch row["ties"] {
		case "yes":
			anyBalances = true
		case "no":
			r.problems.Add("control totals: %s does not balance", row["line"])
		}
	}

	if !anyBalances {
		r.problems.Add("no control total balances")
	}
}

func (r *reports) print(out io.Writer) {
	fmt.Fprintf(out, "\nExpected collections, %s to %s (nobody confirms that money was collected)\n\n", r.from, r.to)
	t := newTable(out)
	fmt.Fprintln(t, "day\tstore\tdelivered\tcash orders\tcash\tcard orders\tcard\tprepaid orders\tprepaid\t")
	totals := r.collections.Totals
	totals.StoreName = fmt.Sprintf("%d rows", len(r.collections.Rows))
	for _, c := range append(slices.Clone(r.collections.Rows), totals) {
		fmt.Fprintf(t, "%s\t%s\t%d\t%d\t%v\t%d\t%v\t%d\t%v\t\n", c.Day, c.StoreName, c.DeliveredCount,
			c.CashCount, c.CashExpected, c.CardCount, c.CardExpected, c.PrepaidCount, c.PrepaidAmount)
	}

	_ = t.Flush() // a terminal that is gone changes nothing

	fmt.Fprintf(out, "\nExceptions: %s\n", counted(r.exceptionsByKind()))

	fmt.Fprint(out, "\nControl totals\n\n")
	t = newTable(out)
	fmt.Fprintln(t, "line\torders\tdelivered\torder amount\tcash\tcard\tprepaid\tbalances\tsha256\t")
	columns := []string{
		"line", "orders", "delivered", "orderAmountDelivered", "cashExpected", "cardExpected", "prepaidAmount", "ties",
	}
	for _, row := range r.control.Rows {
		for _, column := range columns {
			fmt.Fprintf(t, "%s\t", text(row[column]))
		}
		fmt.Fprintf(t, "%.12s\t\n", text(row["sha256"]))
	}

	_ = t.Flush() // as above

	printProblems(out, r.problems, "The reports reconcile with what the vendor sent.",
		"The reports do not reconcile with what the vendor sent")
}

func newTable(out io.Writer) *tabwriter.Writer {
	return tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
}

// text is a cell as people read it: nothing where no value is given.
func text(cell any) string {
	if cell == nil {
		return ""
	}
	return fmt.Sprint(cell)
}

// counted names what was counted in the order of the alphabet: "Cash 75, Prepaid 74".
func counted(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}

// printProblems writes good when there are none, else bad with the first of them.
func printProblems(out io.Writer, problems receiver.Problems, good, bad string) {
	if len(problems) == 0 {
		fmt.Fprintf(out, "\n%s\n", good)
		return
	}

	fmt.Fprintf(out, "\n%s (%d problems):\n", bad, len(problems))
	for _, p := range problems[:min(len(problems), 25)] {
		fmt.Fprintf(out, "  - %s\n", p)
	}
}
