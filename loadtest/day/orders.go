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

// result is what became of a request.
type result struct {
	status   int
	code     string
	orderID  string
	raw      []byte
	replayed bool
	took     time.Duration
	end      history // for an accepted order, read at the end
}

// history is GET /orders/{orderId}.
type history struct {
	OrderID       string
	Status        string
	FailureReason string
	Courier       *struct{ Name string }
	Events        []struct {
		Status string
		At     time.Time
	}
}

func (h history) statuses() (names []string) {
	for _, e := range h.Events {
		names = append(names, e.Status)
	}
	return names
}

// create sends one planned request and compares the answer with the plan.
func (d *Day) create(ctx context.Context, r *request) error {
	began := time.Now()
	a, tries, err := d.send(ctx, http.MethodPost, "/orders", r.body, "X-Idempotency-Key", r.key)
	if err != nil {
		d.pace.learn(nil)
	}
	if errors.Is(err, errUnanswered) {
		d.problem("order %s: %v", r.externalID, err)
		return nil
	}
	if err != nil {
		return err
	}
	d.pace.learn(a.Header)
	r.result = result{status: a.Status, code: a.Code, raw: a.Raw, replayed: a.Header.Get("Idempotent-Replayed") == "true"}
	if tries == 1 {
		r.result.took = time.Since(began)
	}
	if a.Status != r.wantStatus || a.Code != r.wantCode {
		d.problem("order %s: answered %d %s %s, planned %d %s", r.externalID, a.Status, a.Code, a.Message, r.wantStatus, r.wantCode)
	}
	d.checkHeaders(r, a)
	if a.OK() {
		d.accepted(r, a, tries)
	}
	return nil
}

// checkHeaders: every answer shows the bucket it consumed (spec, "Limits" 2).
func (d *Day) checkHeaders(r *request, a *client.Answer) {
	for _, name := range []string{"X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset"} {
		if a.Header.Get(name) == "" {
			d.problem("order %s: answered %d without %s", r.externalID, a.Status, name)
		}
	}
}

// accepted checks the answer. A first try must be fresh; a repetition
// must be the original's bytes. After an unanswered try either may be, because
// the order may have been created by the try whose answer was lost.
func (d *Day) accepted(r *request, a *client.Answer, tries int) {
	var created struct{ OrderID, ExternalOrderID, Status, TrackingURL, EstimatedPickupAt string }
	if err := a.Into(&created); err != nil {
		d.problem("order %s: %v", r.externalID, err)
		return
	}
	r.result.orderID = created.OrderID
	if created.ExternalOrderID != r.externalID || created.Status != "Searching" || created.TrackingURL == "" || created.EstimatedPickupAt == "" {
		d.problem("order %s: creation answered %s", r.externalID, a.Raw)
	}
	if original := r.original; original != nil {
		if !r.result.replayed || string(original.result.raw) != string(a.Raw) {
			d.problem("order %s: its repetition answered %s, the original %s", r.externalID, a.Raw, original.result.raw)
		}
		return
	}
	if tries == 1 && r.result.replayed {
		d.problem("order %s: the first answer says that it is a repetition", r.externalID)
	}
	if r.cancelAt != "" {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.waiting[created.OrderID] = r
		d.cancelIfDue(created.OrderID)
	}
}

// cancel cancels twice: the second answer is the same (design, section 6).
func (d *Day) cancel(orderID string) error {
	path := "/orders/" + orderID + "/cancel"
	ctx := context.Background() // bounded by the timeout; the day waits for it
	var answers [2]string
	for i := range answers {
		a, _, err := d.send(ctx, http.MethodPost, path, map[string]string{"reason": "CustomerRequest", "note": "vazgeçti"})
		if err != nil {
			d.problem("cancel %s: %v", orderID, err)
			return nil
		}
		var got history
		if err := a.Into(&got); err != nil || got.Status != "Cancelled" {
			d.problem("cancel %s: answered %s", orderID, a.Raw)
			return nil
		}
		answers[i] = string(a.Data)
	}
	if answers[0] != answers[1] {
		d.problem("cancel %s: the second answer differs: %s, %s", orderID, answers[0], answers[1])
	}
	return nil
}

// settle waits until every accepted order has ended according to the webhooks,
// reads every order's history, and tries some cancellations that are too late.
func (d *Day) settle(ctx context.Context) error {
	orders := d.plan.accepted()
	err := d.await(ctx, d.options.Settle, "every order's last webhook", func() bool { return d.ended(orders) })
	if ctx.Err() != nil {
		return ctx.Err()
	}
	late := err != nil
	if late {
		d.problem("%v", err)
	}
	d.mu.Lock()
	d.settled = true
	d.mu.Unlock()
	if err := d.cancels.Wait(); err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for i, r := range orders {
		group.Go(func() error {
			d.read(groupCtx, r)
			if i%50 == 0 && r.result.end.Status == "Delivered" {
				d.cancelTooLate(groupCtx, r)
			}
			return groupCtx.Err()
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if late {
		return nil // it has waited long enough
	}
	// Webhooks of earlier versions may still be in flight after a retry.
	_ = d.await(ctx, d.options.Settle, "every webhook", func() bool { return d.complete(orders) }) // the summary names the missing ones
	return ctx.Err()
}

func (d *Day) ended(orders []*request) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, r := range orders {
		reached := d.reached[r.result.orderID]
		if !reached["Delivered"] && !reached["Failed"] && !reached["Cancelled"] {
			return false
		}
	}
	return true
}

// complete reports whether the webhooks have brought every order's whole history.
func (d *Day) complete(orders []*request) bool {
	for _, r := range orders {
		if !slices.Equal(d.history(r), r.result.end.statuses()) {
			return false
		}
	}
	return true
}

// history is the order's statuses according to the webhooks. They begin after the
// creation, whose answer was synchronous.
func (d *Day) history(r *request) []string {
	statuses := []string{"Searching"}
	for _, e := range d.Timeline(r.result.orderID) {
		statuses = append(statuses, e.Status)
	}
	return statuses
}

func (d *Day) read(ctx context.Context, r *request) {
	a, _, err := d.send(ctx, http.MethodGet, "/orders/"+r.result.orderID, nil)
	if err == nil {
		err = a.Into(&r.result.end)
	}
	if err != nil {
		d.problem("read order %s: %v", r.externalID, err)
		return
	}
	if c := r.result.end.Courier; c != nil && !strings.HasSuffix(c.Name, ".") {
		d.problem("order %s: the courier's surname is not abbreviated: %s", r.externalID, c.Name)
	}
}

func (d *Day) cancelTooLate(ctx context.Context, r *request) {
	a, _, err := d.send(ctx, http.MethodPost, "/orders/"+r.result.orderID+"/cancel", nil)
	if err != nil {
		d.problem("late cancel %s: %v", r.externalID, err)
		return
	}
	var detail struct{ Status string }
	if err := json.Unmarshal(a.Data, &detail); err != nil || a.Code != "ORDER_NOT_CANCELLABLE" || detail.Status != "Delivered" {
		d.problem("late cancel %s: answered %s", r.externalID, a.Raw)
		return
	}
	d.count(func(s *Summary) { s.TooLate++ })
}
