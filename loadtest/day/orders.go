package day

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"vendorapi/internal/stack/client"
)

// create sends one planned request and compares the answer with the plan.
func (d *Day) create(ctx context.Context, r *request) error {
	began := time.Now()
	a, tries, err := d.send(ctx, http.MethodPost, "/orders", r.body, "X-Idempotency-Key", r.key)
	if err != nil {
		d.pace.learn(nil)
		if errors.Is(err, errUnanswered) {
			d.problem("order %s: %v", r.externalID, err)
			return nil
		}
		return err
	}
	d.pace.learn(a.Header)
	r.answer = *a
	if tries == 1 {
		r.took = float64(time.Since(began)) / float64(time.Millisecond)
	}
	if a.Status != r.want.Status || a.Code != r.want.Code {
		d.problem("order %s: answered %d %s %s, planned %d %s", r.externalID, a.Status, a.Code, a.Message, r.want.Status, r.want.Code)
	}
	// Every answer shows the bucket it consumed (spec, "Limits" 2).
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if a.Header.Get(name) == "" {
			d.problem("order %s: answered %d without %s", r.externalID, a.Status, name)
		}
	}
	if a.OK() {
		d.accepted(r, tries)
	}
	return nil
}

// accepted checks the answer. A first try must be fresh; a repetition must be the original's bytes. After an
// unanswered try either may be, because the order may have been created by the try whose answer was lost.
func (d *Day) accepted(r *request, tries int) {
	a, replayed := &r.answer, r.answer.Header.Get("Idempotent-Replayed") == "true"
	var created struct{ OrderID, ExternalOrderID, Status, TrackingURL, EstimatedPickupAt string }
	if err := a.Into(&created); err != nil {
		d.problem("order %s: %v", r.externalID, err)
		return
	}
	r.order.OrderID, r.order.End, r.order.Failure = created.OrderID, r.want.End, r.want.Failure
	if created.ExternalOrderID != r.externalID || created.Status != "Searching" || created.TrackingURL == "" || created.EstimatedPickupAt == "" {
		d.problem("order %s: creation answered %s", r.externalID, a.Raw)
	}
	if original := r.original; original != nil {
		if first := original.answer; !replayed || string(first.Raw) != string(a.Raw) {
			d.problem("order %s: its repetition answered %s, the original %s", r.externalID, a.Raw, first.Raw)
		}
		return
	}
	if tries == 1 && replayed {
		d.problem("order %s: the first answer says that it is a repetition", r.externalID)
	}
	if r.want.CancelAt != "" {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.waiting[created.OrderID] = r
		d.cancelIfDue(created.OrderID)
	}
}

// cancelIfDue starts the cancellation of an order that has reached the status to be cancelled at. d.mu is held. The
// webhook can overtake the answer to the creation, so both ask.
func (d *Day) cancelIfDue(orderID string) {
	r := d.waiting[orderID]
	if r == nil || d.settled || d.Last(orderID) != r.want.CancelAt {
		return
	}
	delete(d.waiting, orderID)
	d.cancels.Go(func() { d.cancel(orderID) })
}

// cancel cancels twice: the second answer is the same (decisions, "States").
func (d *Day) cancel(orderID string) {
	ctx := context.Background() // bounded by sendTimeout; the day waits for it
	body := map[string]string{"reason": "CustomerRequest", "note": "vazgeçti"}
	first, second := d.ask(ctx, http.MethodPost, "/orders/"+orderID+"/cancel", body), d.ask(ctx, http.MethodPost, "/orders/"+orderID+"/cancel", body)
	var got struct{ Status string }
	if err := first.Into(&got); err != nil || got.Status != "Cancelled" || string(second.Data) != string(first.Data) {
		d.problem("cancel %s: answered %s, and again %s", orderID, first.Raw, second.Raw)
	}
}

// ask is send for a request whose answer is compared; what has none is a problem, and empty.
func (d *Day) ask(ctx context.Context, method, path string, body any) *client.Answer {
	a, _, err := d.send(ctx, method, path, body)
	if err != nil {
		d.problem("%s %s: %v", method, path, err)
		return &client.Answer{}
	}
	return a
}

// settle waits until every accepted order has ended according to the webhooks, reads
// every order's history, and tries some cancellations that are too late.
func (d *Day) settle(ctx context.Context) error {
	orders := d.plan.accepted()
	late := d.await(ctx, "every order's last webhook", func() bool {
		return !slices.ContainsFunc(orders, func(r *request) bool {
			return !slices.Contains([]string{"Delivered", "Failed", "Cancelled"}, d.Last(r.order.OrderID))
		})
	})
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if late != nil {
		d.problem("%v", late)
	}
	d.mu.Lock()
	d.settled = true
	d.mu.Unlock()
	d.cancels.Wait()
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i, r := range orders {
		group.Go(func() error {
			d.read(groupCtx, r)
			if i%50 == 0 && r.order.Status == "Delivered" {
				d.cancelTooLate(groupCtx, r)
			}
			return groupCtx.Err()
		})
	}
	if err := group.Wait(); err != nil || late != nil {
		return err // it has waited long enough
	}
	// Webhooks of earlier versions may still be in flight after a retry. The summary names those that do not come.
	_ = d.await(ctx, "every webhook", func() bool {
		return !slices.ContainsFunc(orders, func(r *request) bool {
			return len(d.Timeline(r.order.OrderID))+1 < len(r.order.Events)
		})
	})
	return ctx.Err()
}

func (d *Day) read(ctx context.Context, r *request) {
	if err := d.ask(ctx, http.MethodGet, "/orders/"+r.order.OrderID, nil).Into(&r.order); err != nil {
		d.problem("read order %s: %v", r.externalID, err)
	}
	if c := r.order.Courier; c != nil && !strings.HasSuffix(c.Name, ".") {
		d.problem("order %s: the courier's surname is not abbreviated: %s", r.externalID, c.Name)
	}
}

func (d *Day) cancelTooLate(ctx context.Context, r *request) {
	a := d.ask(ctx, http.MethodPost, "/orders/"+r.order.OrderID+"/cancel", nil)
	var detail struct{ Status string }
	if err := json.Unmarshal(a.Data, &detail); err != nil || a.Code != "ORDER_NOT_CANCELLABLE" || detail.Status != "Delivered" {
		d.problem("late cancel %s: answered %s", r.externalID, a.Raw)
		return
	}
	d.count(&d.summary.TooLate)
}
