package day

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"vendorapi/loadtest/harness"
)

// Summary is what a day came to. It balances when Problems is empty.
type Summary struct {
	Stores   int
	Cities   int
	Sent     int            // planned creations that were answered
	Accepted int            // 201, each a different order
	Replayed int            // 201 for a repetition, with the original's answer
	Refused  map[string]int // by errorCode

	Delivered, Failed, Cancelled int
	Payments                     map[string]int // accepted orders by payment.type
	TooLate                      int            // cancellations answered ORDER_NOT_CANCELLABLE

	WebhooksExpected int // activated stores, and every order's versions after the first
	WebhooksReceived int // distinct events of those
	Duplicates       int // arrived more than once
	DuplicatesAsked  int // that the sandbox was asked for

	RateLimited, Unavailable, Unanswered int // tries that were repeated

	P50, P99 float64 // ms, of creations answered at the first try

	Problems []string
}

// summarise counts, and notes whatever contradicts something else.
func (d *Day) summarise() {
	s := &d.summary
	s.Stores, s.Cities = len(d.plan.stores), len(d.plan.stores)/2
	s.Refused, s.Payments = map[string]int{}, map[string]int{}
	var took []float64
	for _, r := range d.plan.requests {
		if r.result.status == 0 {
			continue // never answered; noted as a problem already
		}
		s.Sent++
		if r.result.took > 0 {
			took = append(took, float64(r.result.took)/float64(time.Millisecond))
		}
		switch {
		case r.result.orderID == "":
			s.Refused[r.result.code]++
		case r.original != nil:
			s.Replayed++
		default:
			s.Accepted++
			d.summariseOrder(r)
		}
	}
	if len(took) > 0 {
		s.P50, s.P99 = harness.Quantile(took, 0.5), harness.Quantile(took, 0.99)
	}
	d.summariseWebhooks()
	s.Problems = append(s.Problems, d.problems...)
}

// summariseOrder compares one accepted order's history with the plan and with the
// webhooks.
func (d *Day) summariseOrder(r *request) {
	s, end := &d.summary, r.result.end
	switch end.Status {
	case "Delivered":
		s.Delivered++
	case "Failed":
		s.Failed++
	case "Cancelled":
		s.Cancelled++
	}
	if end.Status != r.wantEnd || end.FailureReason != r.wantReason {
		d.problem("order %s: ended %s %s, planned %s %s", r.externalID, end.Status, end.FailureReason, r.wantEnd, r.wantReason)
	}
	s.WebhooksExpected += max(len(end.Events)-1, 0)
	if r.duplicates {
		s.DuplicatesAsked += max(len(end.Events)-1, 0)
	}
	if received := d.history(r); !slices.Equal(received, end.statuses()) {
		d.problem("order %s: webhooks say %v, the service %v", r.externalID, received, end.statuses())
	}
	s.Payments[r.payment]++
}

func (d *Day) summariseWebhooks() {
	s, c := &d.summary, d.Counts()
	s.WebhooksExpected += s.Stores
	s.WebhooksReceived = c.Events["store.activated"] + c.Events["delivery.status_changed"]
	s.Duplicates = c.Duplicates
	if s.WebhooksReceived != s.WebhooksExpected {
		d.problem("%d webhooks received, %d expected", s.WebhooksReceived, s.WebhooksExpected)
	}
	if s.Duplicates < s.DuplicatesAsked {
		d.problem("%d duplicates received, %d asked for", s.Duplicates, s.DuplicatesAsked)
	}
	if c.Changed != 0 {
		d.problem("%d webhooks came again with other bytes", c.Changed)
	}
	for reason, n := range c.Invalid {
		d.problem("%d webhooks not accepted: %s", n, reason)
	}
	for event, n := range c.Unknown {
		d.problem("%d webhooks of the unknown type %s", n, event)
	}
	if s.Sent != s.Accepted+s.Replayed+s.refused() {
		d.problem("sent %d is not accepted %d + replayed %d + refused %d", s.Sent, s.Accepted, s.Replayed, s.refused())
	}
	if s.Accepted != s.Delivered+s.Failed+s.Cancelled {
		d.problem("accepted %d is not delivered %d + failed %d + cancelled %d", s.Accepted, s.Delivered, s.Failed, s.Cancelled)
	}
}

func (s *Summary) refused() (sum int) {
	for _, n := range s.Refused {
		sum += n
	}
	return sum
}

// Print writes the summary for people.
func (s *Summary) Print(out io.Writer) {
	line := func(name, format string, args ...any) {
		fmt.Fprintf(out, "  %-20s %s\n", name, fmt.Sprintf(format, args...))
	}
	fmt.Fprintf(out, "The day of a vendor with %d stores in %d cities\n\n", s.Stores, s.Cities)
	line("sent", "%d", s.Sent)
	line("= accepted", "%d  (%s)", s.Accepted, byName(s.Payments))
	line("+ replayed", "%d", s.Replayed)
	line("+ refused", "%d  (%s)", s.refused(), byName(s.Refused))
	fmt.Fprintln(out)
	line("accepted", "%d", s.Accepted)
	line("= delivered", "%d", s.Delivered)
	line("+ failed", "%d", s.Failed)
	line("+ cancelled", "%d", s.Cancelled)
	line("cancelled too late", "%d", s.TooLate)
	fmt.Fprintln(out)
	line("webhooks expected", "%d", s.WebhooksExpected)
	line("webhooks received", "%d", s.WebhooksReceived)
	line("duplicates", "%d  (asked for: %d)", s.Duplicates, s.DuplicatesAsked)
	fmt.Fprintln(out)
	line("creation", "p50 %.1f ms, p99 %.1f ms", s.P50, s.P99)
	if s.RateLimited+s.Unavailable+s.Unanswered > 0 {
		line("tried again", "%d rate limited, %d unavailable, %d unanswered", s.RateLimited, s.Unavailable, s.Unanswered)
	}
	fmt.Fprintln(out)
	if len(s.Problems) == 0 {
		fmt.Fprintln(out, "It balances.")
		return
	}
	fmt.Fprintf(out, "It does not balance (%d problems):\n", len(s.Problems))
	const most = 25
	for _, p := range s.Problems[:min(len(s.Problems), most)] {
		fmt.Fprintln(out, "  -", p)
	}
}

func byName(counts map[string]int) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[name]))
	}
	return strings.Join(parts, ", ")
}
