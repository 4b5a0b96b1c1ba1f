package watch

import (
	"sync"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

func TestOverview_CountsWhatHappened(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	minute := time.Now().Add(-2 * time.Minute)
	for range 3 {
		w.Vendor.Order("", time.Now())
	}
	w.Delivered(time.Now())
	for range 5 {
		w.Ledger.CountRefusal(delivery.CodeRateLimited)
	}
	w.Ledger.CountRefusal(delivery.CodeInvalidPhone)
	must(t, w.Ledger.FlushMinutes(t.Context(), minute))
	w.index()
	a := w.get("/overview")
	a.says(t, "Orders an hour 4 1 ended", "Requests refused 6 in the hour, most often RATE_LIMITED", "Under way 3", "RATE_LIMITED 5", "INVALID_PHONE 1",
		"Nothing. All is well.")
	if part := w.get("/overview/live"); len(part.text) >= len(a.text) {
		t.Errorf("the part has %d bytes, the page %d", len(part.text), len(a.text))
	}
}

// Refusals are of every kind of request, so they are no share of the orders.
func TestOverview_NothingRefusedIsNotNothingAsked(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	for range 6 {
		w.Vendor.Order("", time.Now())
	}
	must(t, w.Ledger.FlushMinutes(t.Context(), time.Now().Add(-2*time.Minute)))
	w.get("/overview").says(t, "Orders an hour 6", "Requests refused 0 in the hour Under way").hides(t, "no request", "%")
}

func TestOverview_NamesWhatNeedsAttention(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.register(w.Vendor)
	o := w.Vendor.Order("", time.Now())
	w.Move(o, delivery.Assigned, time.Now())
	w.sends(func(*ledger.Delivery) ledger.Outcome {
		return ledger.Outcome{At: time.Now(), Status: 410, Error: "status: 410", Gone: true, Retry: time.Now().Add(time.Hour)}
	})
	suspended := &delivery.Fleet{ID: delivery.NewFleetID(), Name: "Yavaş <b>Kurye", DeliveryMinutes: 25, PickupMinutes: 10, Couriers: -1,
		Suspended: true, Coverage: w.Fleet.Coverage}
	must(t, w.Ledger.CreateFleet(t.Context(), suspended, [32]byte{9}))
	a := w.get("/overview")
	a.says(t, "Webhooks of Test gone", "1 event waits, next attempt in 59 min", "Yavaş <b>Kurye suspended", "Unreachable 1 of 1 endpoint", "Webhooks waiting 1")
	a.links(t, "/webhooks/"+w.Vendor.Account.String(), "/fleets/"+suspended.ID.String(), "/refused-updates", "/dead-letters")
	a.hides(t, "All is well")
}

func TestOverview_WithoutClickHouseSaysSo(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.Vendor.Order("", time.Now())
	must(t, w.Ledger.FlushMinutes(t.Context(), time.Now().Add(-time.Minute)))
	w.serve(w.away())
	w.get("/overview").says(t, "Orders an hour 1", "Under way 0 a list needs ClickHouse", "ClickHouse away", "so history is unavailable").hides(t, "Cannot be read")
}

// A ClickHouse that takes the question and never answers holds up the first who
// ask, all of them together, and nobody after that.
func TestOverview_HangingClickHouseHoldsUpNobodyForLong(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.serve(w.hanging())
	ask := func() time.Duration {
		start := time.Now()
		var all sync.WaitGroup
		for range 15 {
			all.Go(func() { w.get("/overview/live").says(t, "ClickHouse away", "Orders an hour 0") })
		}
		all.Wait()
		return time.Since(start)
	}
	if took := ask(); took > pingPatience+5*time.Second {
		t.Errorf("the first 15 answers took %s", took)
	}
	// Waiting again would take pingPatience each time; a busy machine now and then.
	quickest := time.Hour
	for try := 0; try < 30 && quickest > pingPatience; try++ {
		time.Sleep(pingAge) // both the overview and the verdict are too old by now
		quickest = min(quickest, ask())
	}
	if quickest > pingPatience {
		t.Errorf("later 15 answers took %s at best", quickest)
	}
}

func TestOverview_WithoutRedisStillAnswers(t *testing.T) {
	t.Parallel()
	w := newWatchedToStop(t)
	w.Server.Stop()
	start := time.Now()
	w.get("/overview").says(t, "Cannot be read right now: accounts, activity", "Orders an hour –").hides(t, "ClickHouse away", "All is well")
	if took := time.Since(start); took > patience+2*time.Second {
		t.Errorf("it took %s", took)
	}
}
