package day

import (
	_ "embed"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/template"

	"vendorapi/loadtest/harness"
	"vendorapi/loadtest/receiver"
)

// Summary is what a day came to. It balances when Problems is empty.
type Summary struct {
	Stores, Cities int
	Sent           int            // planned creations that were answered
	Accepted       int            // 201, each a different order
	Replayed       int            // 201 for a repetition, with the original's answer
	Refused        int            // answered otherwise
	Codes          map[string]int // of those, by errorCode

	Ended           map[string]int // accepted orders by terminal status
	Payments        map[string]int // and by payment.type
	TooLate         int            // cancellations answered ORDER_NOT_CANCELLABLE
	Webhooks        *receiver.Check
	DuplicatesAsked int // webhooks that the sandbox was asked to send twice

	RateLimited, Unavailable, Unanswered int // tries that were repeated

	P50, P99 float64 // ms, of creations answered at the first try

	Problems receiver.Problems
}

// summarise counts, and notes whatever contradicts something else.
func (d *Day) summarise() {
	s := &d.summary
	s.Stores, s.Cities = len(d.plan.stores), len(d.plan.stores)/2
	s.Codes, s.Ended, s.Payments = map[string]int{}, map[string]int{}, map[string]int{}
	var took []float64
	for _, r := range d.plan.requests {
		if r.answer.Status == 0 {
			continue // never answered; noted as a problem already
		}
		s.Sent++
		if r.took > 0 {
			took = append(took, r.took)
		}
		switch {
		case r.order.OrderID == "":
			s.Refused++
			s.Codes[r.answer.Code]++
		case r.original != nil:
			s.Replayed++
		}
	}
	if len(took) > 0 {
		s.P50, s.P99 = harness.Quantile(took, 0.5), harness.Quantile(took, 0.99)
	}
	var orders []receiver.History
	for _, r := range d.plan.accepted() {
		s.Accepted++
		s.Payments[r.payment]++
		orders = append(orders, r.order)
		s.Ended[r.order.Status]++
		if r.want.Duplicates {
			s.DuplicatesAsked += max(len(r.order.Events)-1, 0)
		}
	}
	s.Webhooks = d.Check(orders, s.Stores)
	s.Problems = append(s.Problems, s.Webhooks.Problems...)
	if s.Webhooks.Duplicates < s.DuplicatesAsked {
		d.problem("%d duplicates received, %d asked for", s.Webhooks.Duplicates, s.DuplicatesAsked)
	}
	if s.Sent != s.Accepted+s.Replayed+s.Refused {
		d.problem("sent %d is not accepted %d + replayed %d + refused %d", s.Sent, s.Accepted, s.Replayed, s.Refused)
	}
	if e := s.Ended; s.Accepted != e["Delivered"]+e["Failed"]+e["Cancelled"] {
		d.problem("accepted %d is not delivered %d + failed %d + cancelled %d", s.Accepted, e["Delivered"], e["Failed"], e["Cancelled"])
	}
}

//go:embed summary.txt
var summaryText string

var summaryTemplate = template.Must(template.New("summary").Funcs(template.FuncMap{
	"names": func(counts map[string]int) string {
		var parts []string
		for _, name := range slices.Sorted(maps.Keys(counts)) {
			parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
		}
		return strings.Join(parts, ", ")
	},
	"first": func(problems []string) []string { return problems[:min(len(problems), 25)] },
}).Parse(summaryText))

// Print writes the summary for people, with the first of its problems.
func (s *Summary) Print(out io.Writer) error { return summaryTemplate.Execute(out, s) }
