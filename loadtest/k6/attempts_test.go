package main

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/loadtest/k6/results"
	"vendorapi/loadtest/receiver"
)

func TestIsDelivery_OfAnOrderOnly(t *testing.T) {
	t.Parallel()

	for _, c := range []struct {
		attempt attempt
		want    bool
	}{
		{attempt{Event: "delivery.status_changed", Status: "delivered"}, true},
		{attempt{Event: "delivery.status_changed", Status: "failed"}, false},
		{attempt{Event: "store.activated", Status: "delivered"}, false},
	} {
		if c.attempt.isDelivery() != c.want {
			t.Errorf("%+v is a delivery: %v", c.attempt, !c.want)
		}
	}
}

func TestCompareOrder_FindsWhatIsMissing(t *testing.T) {
	t.Parallel()

	delivered := map[string]bool{"e1": true, "e2": true}
	for name, c := range map[string]struct {
		events int // of the history, the first status included
		status string
		says   string // empty: no problem
	}{
		"complete":     {events: 3, status: "Cancelled"},
		"one missing":  {events: 4, status: "Cancelled", says: "2 of 3 webhooks were delivered"},
		"one too many": {events: 2, status: "Cancelled", says: "2 of 1 webhooks were delivered"},
		"another end":  {events: 3, status: "Delivered", says: "ended Delivered and should have ended Cancelled"},
	} {
		w := &attemptWatcher{byLabel: map[string]*attemptLog{"1": {delivered: map[string]map[string]bool{"o1": delivered}}}}
		h := receiver.History{OrderID: "o1", Status: c.status, End: "Cancelled"}
		for range c.events {
			h.Events = append(h.Events, struct {
				Status string
				At     time.Time
			}{})
		}

		var total receiver.Check

		w.compareOrder(&total, &account{label: "1"}, &h)

		problems := strings.Join(total.Problems, "\n")
		if (problems == "") != (c.says == "") || !strings.Contains(problems, c.says) || total.Expected != c.events-1 {
			t.Errorf("%s: %+v, want %q", name, total, c.says)
		}
	}
}

func TestAttempts_WithAGapAreNotChecked(t *testing.T) {
	t.Parallel()

	a := &account{label: "1", api: newVendorAPI(t, func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"success": true, "data": {"status": "Cancelled", "events": [{"status": "Searching"}]}}`)
	})}
	script := &results.Script{Orders: map[string][]results.Order{"1": {{ID: "o1", End: "Cancelled"}}}}
	for _, hasGap := range []bool{false, true} {
		w := &attemptWatcher{byLabel: map[string]*attemptLog{"1": {hasGap: hasGap}}}

		checked, err := w.compare(t.Context(), []*account{a}, script)

		if err != nil || (checked.How == results.WebhooksNotChecked) != hasGap {
			t.Errorf("gap %v: %+v, %v", hasGap, checked, err)
		}
	}
}
