package owner

import (
	"net/http"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// Finance's system gets what was announced by the same way as vendors: signed, again after a failure, also
// by the owner that takes over meanwhile, with both secrets after a rotation, and replayed under its own id.
func TestWebhooks_ReachFinance(t *testing.T) {
	h := newStandingHooks(t, nil)
	erp := h.register(&testenv.Vendor{Account: delivery.FinanceAccount}, func(w http.ResponseWriter, q request) {
		if q.attempt() == "1" && q.event.Event == "report.available" {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})

	webhooks := h.Ledger.Webhooks
	awaited := func(n int) request {
		t.Helper()
		h.Await("webhooks to finance", func() bool { return len(erp.received()) >= n })
		return erp.received()[n-1]
	}

	stop := h.start("w1")
	report := &delivery.AvailableReport{ID: "closing-2026-10", Kind: delivery.ReportClosing, Month: "2026-10", At: h.now()}
	event, err := webhooks.AnnounceReport(t.Context(), report, h.now())
	testenv.Must(t, err)
	first := awaited(1)
	erp.check(first, erp.secret, erp.secret)
	if first.event.EventID != event || first.event.Event != "report.available" || !first.event.OccurredAt.Equal(h.now()) {
		t.Errorf("%s", first.body)
	}

	var next int64
	h.Await("its record", func() bool {
		records, err := webhooks.Attempts(t.Context(), delivery.FinanceAccount, "retrying")
		testenv.Must(t, err)
		if len(records) == 1 {
			next = records[0].NextAt.UnixMilli()
		}
		return len(records) == 1
	})

	stop()
	rotated, err := webhooks.RotateSecret(t.Context(), delivery.FinanceAccount, false)
	testenv.Must(t, err)
	_, err = webhooks.AnnounceReport(t.Context(), report, h.now()) // the answer was lost
	testenv.Must(t, err)
	h.clock.Store(next)
	h.start("w2")
	second := awaited(2)
	if string(second.body) != string(first.body) || second.attempt() != "2" {
		t.Errorf("first %s, then %s as attempt %s", first.body, second.body, second.attempt())
	}

	erp.check(second, erp.secret, rotated, erp.secret)
	h.awaitIdle()
	if n, err := webhooks.ReplayEvents(t.Context(), delivery.FinanceAccount, []string{event}); n != 1 || err != nil {
		t.Errorf("%d replayed, %v", n, err)
	}
	if third := awaited(3); third.event.EventID != event || string(third.body) != string(first.body) {
		t.Errorf("replayed %s", third.body)
	}
	if n := len(h.received()); n != 0 {
		t.Errorf("the vendor got %d events", n)
	}
}
