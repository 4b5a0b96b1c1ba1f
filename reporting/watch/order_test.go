package watch

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

func (w *watched) page(id delivery.OrderID) answer {
	w.T.Helper()
	return w.get("/orders/" + id.String())
}

// live is where a page refreshes itself from; empty: it does not.
func (a answer) live() string {
	for n := range a.doc.Descendants() {
		from, marked := "", false
		for _, at := range n.Attr {
			marked = marked || at.Key == "data-live"
			if at.Key == "hx-get" {
				from = at.Val
			}
		}
		if marked && from != "" {
			return from
		}
	}
	return ""
}

func TestOrder_TellsItsFactsAndItsStory(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.register(w.Vendor)
	now := time.Now()
	o := w.Vendor.Order("Dikkat: <b>kırılır</b>", now.Add(-20*time.Minute))
	w.Move(o, delivery.PickedUp, now.Add(-4*time.Minute))
	w.sends(accepted)
	w.index()
	a := w.page(o.ID)
	a.says(t, o.ID.String(), o.ExternalOrderID, "Status PickedUp", "Account Test", "Kadıköy Şube branch-1", "Hızlı Kurye", "Mehmet Y., Motorcycle",
		"Dikkat: <b>kırılır</b>", "Paid by Cash", "Order amount 123.45 TRY", "To collect 123.45 TRY",
		"Searching", "Assigned", "PickingUp", "after 16 min · Mehmet Y.", "no webhook: the vendor knows from the answer",
		"webhook delivered", delivery.EventID(o.ID, w.Read(o.ID).Version), "HTTP 204", "34 ms", "The courier was there 4 min ago", "This page refreshes itself")
	a.hides(t, "Mehmet Yılmaz", "5321112233")
	a.links(t, "/accounts/"+w.Vendor.Account.String(), "/stores/"+w.Vendor.Account.String()+"/branch-1", "/fleets/"+w.Fleet.ID.String(), "https://t.example/track/"+o.ID.String())
	if !strings.Contains(a.text, `class="map-courier"`) || !strings.Contains(a.text, `class="map-store"`) {
		t.Error("no map")
	}
	if a.live() != "/orders/"+o.ID.String()+"/live" {
		t.Errorf("refreshes from %q", a.live())
	}
	w.get(a.live()).says(t, "Status PickedUp").hides(t, "Ali Veli", "Bahariye")
}

func TestOrder_RecipientIsFolded(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	o := w.Vendor.Order("", time.Now())
	a := w.page(o.ID)
	a.says(t, "Recipient Personal data", "Ali Veli", "+90 5321234567", "Bahariye Cd. No 5 D 3")
	for n := range a.doc.Descendants() {
		if n.Type != html.TextNode || !strings.Contains(n.Data, "Ali Veli") && !strings.Contains(n.Data, "Bahariye") {
			continue
		}
		folded := false
		for p := n.Parent; p != nil; p = p.Parent {
			folded = folded || p.Data == "details"
			for _, at := range p.Attr {
				if p.Data == "details" && at.Key == "open" {
					t.Error("unfolded")
				}
			}
		}
		if !folded {
			t.Errorf("%q stands in the open", n.Data)
		}
	}
}

func TestOrder_EveryAttemptStandsOnceBesideItsEvent(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.register(w.Vendor)
	o := w.Vendor.Order("", time.Now().Add(-time.Minute))
	w.Move(o, delivery.Assigned, time.Now())
	w.sends(failed("<script>alert(1)</script> bakımdayız"))
	w.export()
	a := w.page(o.ID)
	a.says(t, "webhook to be tried again next attempt in 59 min", "failed", "HTTP 500", "120 ms", "<script>alert(1)</script> bakımdayız")
	// The vendor's receiver is back, and the same event is sent once more.
	event := delivery.EventID(o.ID, w.Read(o.ID).Version)
	if n, err := w.Ledger.ReplayEvents(t.Context(), w.Vendor.Account, []string{event}); err != nil || n != 1 {
		t.Fatal(n, err)
	}
	w.leases(accepted)
	w.export()
	a = w.page(o.ID)
	a.says(t, "webhook delivered", "HTTP 204", "replay")
	if n := strings.Count(a.words(), "34 ms"); n != 1 {
		t.Errorf("the attempt that both places know stands there %d times", n)
	}
	w.Do("FLUSHDB") // ClickHouse alone remembers
	a = w.page(o.ID)
	a.says(t, "This order has left Redis", "HTTP 204", "34 ms", "webhook delivered", "Who received it is not known any more", "Kadıköy Şube").hides(t, "bakımdayız", "refreshes itself")
	if a.live() != "" {
		t.Errorf("refreshes from %q", a.live())
	}
}

// What should have been sent a while ago waits for its receiver's breaker.
func TestOrder_EventThatIsDueIsNotTriedInThePast(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.register(w.Vendor)
	o := w.Vendor.Order("", time.Now().Add(-time.Minute))
	w.Move(o, delivery.Assigned, time.Now())
	w.sends(func(*ledger.Delivery) ledger.Outcome {
		return ledger.Outcome{At: time.Now(), Status: 500, Error: "status: 500", Retry: time.Now().Add(time.Millisecond)}
	})
	time.Sleep(10 * time.Millisecond)
	w.page(o.ID).says(t, "webhook to be tried again due; it waits for the receiver").hides(t, "next attempt")
}

// leases plays the webhook worker for what waits in the queues.
func (w *watched) leases(answer func(*ledger.Delivery) ledger.Outcome) {
	w.T.Helper()
	grant := ledger.Grant{Limit: 100, Share: 32, InFlight: 32, Lease: time.Minute}
	for partition := range w.Ledger.Partitions() {
		ds, _, err := w.Ledger.Lease(w.T.Context(), partition, grant)
		must(w.T, err)
		for _, d := range ds {
			_, err := w.Ledger.RecordAttempts(w.T.Context(), []ledger.Result{{Delivery: d, Outcome: answer(d)}}, ledger.Grant{}, 1000)
			must(w.T, err)
		}
	}
}

func TestOrder_CancelledAndFailedTellWhy(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	cancelled := w.Vendor.Order("", time.Now())
	_, _, err := w.Ledger.CancelOrder(t.Context(), w.Vendor.Account, cancelled.ID, delivery.CustomerRequest, "Müşteri <i>vazgeçti</i>", time.Now())
	must(t, err)
	w.page(cancelled.ID).says(t, "Cancelled CustomerRequest", "Müşteri <i>vazgeçti</i>", "webhook not sent yet")
	lost := w.Vendor.Order("", time.Now())
	w.Commit(lost, delivery.Change{Status: delivery.Failed, At: time.Now(), Failure: delivery.NoCourierFound})
	w.page(lost.ID).says(t, "Failed NoCourierFound", "Courier nobody yet")
}

func TestOrder_UnknownIsNotFound(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	for _, id := range []string{delivery.MakeOrderID(0, 20000, [12]byte{1}).String(), "no-id", "00000000-0000-0000-0000-000000000000", "%3Cscript%3E"} {
		for _, path := range []string{"/orders/" + id, "/orders/" + id + "/live"} {
			if a := w.ask("GET", "operator", path); a.StatusCode != http.StatusNotFound {
				t.Errorf("%s: %d", path, a.StatusCode)
			}
		}
	}
}

func TestOrder_WithoutClickHouseIsShownFromRedis(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.register(w.Vendor)
	o := w.Vendor.Order("", time.Now())
	w.Move(o, delivery.Assigned, time.Now())
	w.sends(failed("no"))
	w.serve(w.away())
	w.page(o.ID).says(t, "Cannot be read right now: earlier webhook attempts (ClickHouse).", "Status Assigned", "HTTP 500")
	unknown := w.ask("GET", "operator", "/orders/"+delivery.MakeOrderID(0, 20000, [12]byte{1}).String())
	unknown.says(t, "cannot be told right now")
	if unknown.StatusCode != http.StatusServiceUnavailable || unknown.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", unknown.StatusCode, unknown.Header)
	}
}

func TestOrder_WithoutRedisIsShownFromClickHouse(t *testing.T) {
	t.Parallel()
	w := newWatchedToStop(t)
	o := w.Delivered(time.Now())
	w.sends(accepted) // to nobody: there is no URL
	w.export()
	w.Server.Stop()
	w.page(o.ID).says(t, "the order as it is in Redis, account and store (Redis), recent webhook attempts (Redis)", "as of its last export", "which cannot be read", "Delivered", "not sent", "123.45 TRY", "Assigned")
}

func TestOrder_StaysSmallWhateverReceiversAnswer(t *testing.T) {
	t.Parallel()
	w := newWatched(t)
	w.register(w.Vendor)
	o := w.Vendor.Order("", time.Now().Add(-time.Minute))
	w.Move(o, delivery.Delivered, time.Now())
	long := failed(strings.Repeat("<&>", 682))
	w.sends(long)
	event := delivery.EventID(o.ID, w.Read(o.ID).Version)
	for i := range 45 {
		_, err := w.Ledger.ReplayEvents(t.Context(), w.Vendor.Account, []string{event})
		must(t, err)
		w.leases(func(d *ledger.Delivery) ledger.Outcome {
			outcome := long(d)
			outcome.Duration = time.Duration(i) * time.Millisecond
			return outcome
		})
	}
	a := w.page(o.ID)
	t.Logf("%d bytes", len(a.text))
	if n := strings.Count(a.text, "<details id=\"answer-"); n > attemptsOfEvent+4 {
		t.Errorf("%d attempts are shown", n)
	}
}

func TestMergeAttempts_EachOnceOldestFirst(t *testing.T) {
	t.Parallel()
	id := delivery.MakeOrderID(0, 20000, [12]byte{1})
	at := time.UnixMilli(1_795_000_000_123)
	record := func(n int, order delivery.OrderID, answer string) ledger.AttemptRecord {
		return ledger.AttemptRecord{EventID: "evt_1", OrderID: order.String(), Attempt: n, At: at.Add(time.Duration(n) * time.Second), Answer: answer}
	}
	replay := record(2, id, "")
	replay.Replay = true
	live := []ledger.AttemptRecord{record(3, id, "c"), record(2, id, "b"), record(9, delivery.MakeOrderID(0, 20000, [12]byte{2}), "another's")}
	past := []ledger.AttemptRecord{record(2, id, ""), record(1, id, ""), replay}
	got := ""
	for _, a := range mergeAttempts(id, live, past) {
		got += fmt.Sprintf("%d%s%t ", a.Attempt, a.Answer, a.Replay)
	}
	if want := "1false 2bfalse 2true 3cfalse "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
