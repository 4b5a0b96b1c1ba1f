//go:build long

package systemtest

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"vendorapi/internal/stack"
	"vendorapi/internal/stack/client"
	"vendorapi/internal/testenv/system"
	"vendorapi/internal/testenv/testserver"
	"vendorapi/loadtest/receiver"
)

// failuresFrom is the table of design section 6, written out a second time on
// purpose: the reasons a fleet may give in each status. Other is legal in all.
var failuresFrom = map[string][]string{
	"Searching":  {"NoCourierFound", "TimedOut", "Other"},
	"Assigned":   {"CourierIncident", "StoreClosed", "TimedOut", "Other"},
	"PickingUp":  {"CourierIncident", "StoreClosed", "TimedOut", "PackageNotReady", "Other"},
	"PickedUp":   {"CourierIncident", "PackageDamaged", "TimedOut", "Other"},
	"Delivering": {"AddressNotFound", "CustomerUnreachable", "CustomerRefused", "PaymentRefused", "PackageDamaged", "CourierIncident", "TimedOut", "Other"},
}

var allReasons = []string{
	"NoCourierFound", "TimedOut", "CourierIncident", "StoreClosed", "PackageNotReady", "PackageDamaged",
	"AddressNotFound", "CustomerUnreachable", "CustomerRefused", "PaymentRefused", "Other",
}

// driver moves orders by hand, as a fleet does, and watches the webhooks.
type driver struct {
	*system.Env
	v *system.Vendor
	r *receiver.Receiver
}

// With COURIER=manual, the fleet API drives every transition of section 6.
//
//rule:what-the-service-does/a-courier-fleet-not-the what-the-service-does/6 order-states/searching order-states/assigned order-states/PickingUp
//rule:order-states/PickedUp order-states/delivering order-states/delivered order-states/failed order-states/cancelled
//rule:order-states/searching-to-assigned order-states/assigned-to-pickingup order-states/pickingup-to-pickedup order-states/pickedup-to-delivering
//rule:order-states/searching-assigned-pickingup-to-cancelled order-states/every-status-change-produces-a
//rule:post-orders-orderid-cancel/cancels-an-order-before-pickup webhook-receiver-implemented-by-the-vendor/the-service-sends-post-to
//rule:events/the-service-posts-each-event make-run/COURIER fleet-api/post-jobs-orderid-status states/searching states/assigned states/PickingUp
//rule:states/PickedUp states/delivering states/terminal states/other states/cancel-against-pickup-a-pickup states/creation-itself-sends-no-webhook
//rule:decisions/failureReason
func TestFleetAPI_DrivesEveryTransition(t *testing.T) {
	t.Parallel()
	e := system.Start(t, stack.Options{Courier: "manual"})
	v := e.Vendor(t, system.Raised)
	d := &driver{e, v, v.Receive(t, receiver.Options{})}
	cases := d.cases()
	var wg sync.WaitGroup
	results := make([]error, len(cases))
	for i, c := range cases {
		wg.Go(func() { results[i] = d.play(t, c) })
	}
	wg.Wait()
	for i, err := range results {
		if err != nil {
			t.Errorf("%s: %v", cases[i].name, err)
		}
	}
	if c := d.r.Counts(); len(c.Invalid) > 0 || c.Changed > 0 {
		t.Errorf("receiver: %+v", c)
	}
}

// transition: an order is taken to from, the step is made, and the timeline
// must become want.
type transition struct {
	name string
	from string
	step func(*driver, *testing.T, string) error
	want []string
}

func (d *driver) cases() (cases []transition) {
	add := func(name, from string, step func(*driver, *testing.T, string) error, want ...string) {
		cases = append(cases, transition{from + ": " + name, from, step, want})
	}
	for i, from := range forward[:5] {
		way := forward[:i+1]
		to := func(more ...string) []string { return append(slices.Clone(way), more...) }
		// Forward, one step and with every number of steps skipped.
		for j := i + 1; j < len(forward); j++ {
			add("forward to "+forward[j], from, report(forward[j], ""), forward[:j+1]...)
		}
		// Repeated and backward updates change nothing.
		for j := 1; j <= i; j++ {
			add("back to "+forward[j], from, report(forward[j], ""), way...)
		}
		// A failure with each reason, legal or not.
		for _, reason := range allReasons {
			if slices.Contains(failuresFrom[from], reason) {
				add("fails with "+reason, from, report("Failed", reason), to("Failed")...)
			} else {
				add("cannot fail with "+reason, from, report("Failed", reason), way...)
			}
		}
		if i <= 2 {
			add("cancel, twice", from, cancelTwice, to("Cancelled")...)
		} else {
			add("cancel is too late", from, cancelRefused, way...)
		}
		if i >= 1 {
			add("courier swap", from, swap, way...)
		}
	}
	for _, end := range []string{"Delivered", "Failed", "Cancelled"} {
		for _, status := range forward[1:] {
			add("stays after "+status, end, report(status, ""), endOf(end)...)
		}
		add("stays after Failed", end, report("Failed", "Other"), endOf(end)...)
		if end != "Cancelled" {
			add("cancel is too late", end, cancelRefused, endOf(end)...)
		}
	}
	add("a reported pickup beats the cancellation", "PickingUp", pickupThenCancel, forward[:4]...)
	return cases
}

// endOf is the timeline of an order that reach has taken to a terminal status.
func endOf(status string) []string {
	switch status {
	case "Failed":
		return []string{"Searching", "Assigned", "Failed"}
	case "Cancelled":
		return []string{"Searching", "Cancelled"}
	}
	return forward
}

// play makes the transition and then proves that nothing else happened: a
// courier's updates of one order are decided in order, so once a last legal
// update has come through, everything before it was decided. A terminal order
// has no legal update; there one of another order of the account is awaited.
func (d *driver) play(t *testing.T, c transition) error {
	id, err := d.reach(t, c.from)
	if err != nil {
		return fmt.Errorf("reach %s: %w", c.from, err)
	}
	if err := c.step(d, t, id); err != nil {
		return err
	}
	want := c.want
	last := want[len(want)-1]
	if terminal(last) {
		if err := d.awaitTimeline(t, id, want); err != nil {
			return err
		}
		if err := d.decided(t); err != nil {
			return err
		}
	} else {
		next := forward[slices.Index(forward, last)+1]
		if err := d.awaitTimeline(t, id, want); err != nil {
			return err
		}
		if err := report(next, "")(d, t, id); err != nil {
			return err
		}
		want = append(slices.Clone(want), next)
	}
	return d.awaitTimeline(t, id, want)
}

// decided returns when everything that was reported about the account's orders
// before has been decided. They share a stream; it is read in batches, so that the
// second of two steps of a fresh order, reported after the first was told, lies in
// a later batch than all that came before.
func (d *driver) decided(t *testing.T) error {
	id, err := d.reach(t, "Assigned")
	if err != nil {
		return err
	}
	if err := report("PickingUp", "")(d, t, id); err != nil {
		return err
	}
	return d.awaitTimeline(t, id, forward[:3])
}

func terminal(status string) bool {
	return status == "Delivered" || status == "Failed" || status == "Cancelled"
}

// reach creates an order and takes it to a status, one step at a time.
func (d *driver) reach(t *testing.T, status string) (string, error) {
	var created struct{ OrderID string }
	if err := d.v.Call(t.Context(), http.MethodPost, "/orders", d.v.Order(nil), &created); err != nil {
		return "", err
	}
	id := created.OrderID
	var err error
	switch status {
	case "Cancelled":
		err = cancelTwice(d, t, id)
	case "Failed":
		if err = accept(d, t, id); err == nil {
			err = report("Failed", "CourierIncident")(d, t, id)
		}
	case "Searching":
	default:
		if err = accept(d, t, id); err != nil {
			break
		}
		for _, s := range forward[2 : slices.Index(forward, status)+1] {
			if err = report(s, "")(d, t, id); err != nil {
				break
			}
		}
	}
	if err != nil {
		return id, err
	}
	if terminal(status) {
		return id, d.awaitTimeline(t, id, endOf(status))
	}
	return id, d.awaitTimeline(t, id, forward[:slices.Index(forward, status)+1])
}

// awaitTimeline waits until the webhooks tell want, and holds the fleet's view
// against it.
func (d *driver) awaitTimeline(t *testing.T, id string, want []string) error {
	var got []string
	for deadline := time.Now().Add(testserver.Timeout); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		got = append([]string{"Searching"}, system.Statuses(d.r.Timeline(id))...)
		if slices.Equal(got, want) {
			return d.checkJob(t, id, want[len(want)-1])
		}
		if t.Context().Err() != nil {
			break
		}
	}
	return fmt.Errorf("the webhooks tell %v, want %v", got, want)
}

func (d *driver) checkJob(t *testing.T, id, status string) error {
	var job struct{ Status string }
	if err := d.Fleet.Call(t.Context(), http.MethodGet, "/jobs/"+id, nil, &job); err != nil {
		return err
	}
	if job.Status != status {
		return fmt.Errorf("the fleet sees %s, want %s", job.Status, status)
	}
	return nil
}

func accept(d *driver, t *testing.T, id string) error {
	return expect(200)(d.Fleet.Do(t.Context(), http.MethodPost, "/jobs/"+id+"/accept", map[string]any{"courier": system.Courier("Mehmet Yılmaz")}))
}

func report(status, reason string) func(*driver, *testing.T, string) error {
	return func(d *driver, t *testing.T, id string) error {
		update := map[string]any{"status": status, "location": map[string]float64{"latitude": 40.985, "longitude": 29.028}}
		if reason != "" {
			update["failureReason"] = reason
		}
		return expect(202)(d.Fleet.Do(t.Context(), http.MethodPost, "/jobs/"+id+"/status", update))
	}
}

func swap(d *driver, t *testing.T, id string) error {
	return expect(200)(d.Fleet.Do(t.Context(), http.MethodPut, "/jobs/"+id+"/courier", map[string]any{"courier": system.Courier("Elif Demir")}))
}

func cancelTwice(d *driver, t *testing.T, id string) error {
	var first string
	for i := range 2 {
		a, err := d.v.Do(t.Context(), http.MethodPost, "/orders/"+id+"/cancel", map[string]string{"reason": "StoreRequest"})
		if err := expect(200)(a, err); err != nil {
			return err
		}
		if i == 1 && string(a.Data) != first {
			return fmt.Errorf("second cancel answers %s, the first %s", a.Data, first)
		}
		first = string(a.Data)
	}
	return nil
}

func cancelRefused(d *driver, t *testing.T, id string) error {
	a, err := d.v.Do(t.Context(), http.MethodPost, "/orders/"+id+"/cancel", nil)
	if err := expect(409)(a, err); err != nil {
		return err
	}
	if a.Code != "ORDER_NOT_CANCELLABLE" {
		return fmt.Errorf("refused with %s", a.Code)
	}
	return nil
}

// pickupThenCancel: the cancel comes right after the report, which may still
// wait in the stream.
func pickupThenCancel(d *driver, t *testing.T, id string) error {
	if err := report("PickedUp", "")(d, t, id); err != nil {
		return err
	}
	return cancelRefused(d, t, id)
}

func expect(status int) func(*client.Answer, error) error {
	return func(a *client.Answer, err error) error {
		if err != nil {
			return err
		}
		if a.Status != status {
			return fmt.Errorf("answered %d, want %d: %s", a.Status, status, a.Raw)
		}
		return nil
	}
}
