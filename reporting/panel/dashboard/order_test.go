package dashboard

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
)

func (e *env) page(id delivery.OrderID) *testenv.Answer {
	e.T.Helper()
	return e.get("/orders/" + id.String())
}

// live is where a page refreshes itself from; empty: it does not.
func live(a *testenv.Answer) string {
	for _, n := range testenv.All(a.Tree(), "") {
		if testenv.Has(n, "data-live") && testenv.Has(n, "hx-get") {
			return testenv.Attribute(n, "hx-get")
		}
	}
	return ""
}

func TestOrder_TellsItsFactsAndItsStory(t *testing.T) {
	e := newEnv(t)
	e.register(e.Vendor)
	now := time.Now()
	o := e.Vendor.Order("Dikkat: <b>kırılır</b>", now.Add(-20*time.Minute))
	e.Move(o, delivery.PickedUp, now.Add(-4*time.Minute))
	e.sends(accepted)
	e.Decide()
	a := e.page(o.ID)
	a.Says(o.ID.String(), o.ExternalOrderID, "Status PickedUp", "Account Test", "Kadıköy Şube branch-1", "Hızlı Kurye", "Mehmet Y., Motorcycle",
		"Dikkat: <b>kırılır</b>", "Paid by Cash", "Order amount 123.45 TRY", "To collect 123.45 TRY",
		"Searching", "Assigned", "PickingUp", "after 16 min · Mehmet Y.", "no webhook: the vendor knows from the answer",
		"webhook delivered", delivery.EventID(o.ID, e.Read(o.ID).Version), "HTTP 204", "34 ms", "The courier was there 4 min ago", "This page refreshes itself")

	a.Hides("Mehmet Yılmaz", "5321112233")
	a.Links("/accounts/"+e.Vendor.Account.String(), "/stores/"+e.Vendor.Account.String()+"/branch-1", "/fleets/"+e.Fleet.ID.String(), "https://t.example/track/"+o.ID.String())
	if !strings.Contains(a.Text, `class="map-courier"`) || !strings.Contains(a.Text, `class="map-store"`) {
		t.Error("no map")
	}
	if live(a) != "/orders/"+o.ID.String()+"/live" {
		t.Errorf("refreshes from %q", live(a))
	}

	e.get(live(a)).Says("Status PickedUp").Hides("Ali Veli", "Bahariye")
}

func TestOrder_ForgetsWhereAFormerCourierWas(t *testing.T) {
	e := newEnv(t)
	e.register(e.Vendor)
	o := e.Vendor.Order("", time.Now().Add(-20*time.Minute))
	e.Move(o, delivery.PickingUp, time.Now().Add(-4*time.Minute))
	e.Report(delivery.Update{Order: o.ID, Kind: delivery.KindSwap, At: time.Now(), Courier: delivery.Courier{Name: "Ayşe Kaya", Phone: "5329990000", VehicleType: "Car"}})
	e.Decide()
	a := e.page(o.ID)
	a.Says("Ayşe K., Car", "The courier has reported no position.")
	if strings.Contains(a.Text, `class="map-courier"`) {
		t.Error("the former courier's place is drawn")
	}
}

func TestOrder_RecipientIsFolded(t *testing.T) {
	e := newEnv(t)
	o := e.Vendor.Order("", time.Now())
	a := e.page(o.ID)
	a.Says("Recipient Personal data", "Ali Veli", "+90 5321234567", "Bahariye Cd. No 5 D 3")
	for n := range a.Tree().Descendants() {
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

	e.Move(o, delivery.Delivered, time.Now())
	testenv.Shrink(t, e.Ledger)
	a = e.page(o.ID)
	a.Says("Status Delivered", "Mehmet Y., Motorcycle", "Who received it is not known any more")
	if strings.Contains(a.Text, `class="map-store"`) {
		t.Error("a map without a drop-off")
	}

	erased := map[delivery.OrderID]time.Time{o.ID: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)}
	testenv.Must(t, e.Ledger.Erasure.Erase(t.Context(), erased, false, func(string, int) {}))
	e.page(o.ID).Says("Status Delivered", "Erased on 26 Nov 2026, on request").Hides("is not known any more")
}

func TestOrder_EveryAttemptStandsOnceBesideItsEvent(t *testing.T) {
	e := newEnv(t)
	e.register(e.Vendor)
	o := e.Vendor.Order("", time.Now().Add(-time.Minute))
	e.Move(o, delivery.Assigned, time.Now())
	e.sends(failed("<script>alert(1)</script> bakımdayız"))
	e.export()
	a := e.page(o.ID)
	a.Says("webhook to be tried again next attempt in 59 min", "failed", "HTTP 500", "120 ms", "<script>alert(1)</script> bakımdayız")
	// The vendor's receiver is back. The event that waits is sent now, and once more
	// when it has arrived.
	event := delivery.EventID(o.ID, e.Read(o.ID).Version)
	for range 2 {
		if n, err := e.Ledger.Webhooks.ReplayEvents(t.Context(), e.Vendor.Account, []string{event}); err != nil || n != 1 {
			t.Fatal(n, err)
		}
		e.sends(accepted)
	}

	e.export()
	a = e.page(o.ID)
	a.Says("webhook delivered", "HTTP 204", "replay")
	if n := strings.Count(a.Words(), "34 ms"); n != 2 {
		t.Errorf("two attempts that both places know stand there %d times", n)
	}

	e.Do("FLUSHDB") // ClickHouse alone remembers
	a = e.page(o.ID)
	a.Says("This order has left Redis", "HTTP 204", "34 ms", "webhook delivered", "Who received it is not known any more", "Kadıköy Şube").Hides("bakımdayız", "refreshes itself")
	if live(a) != "" {
		t.Errorf("refreshes from %q", live(a))
	}
}

// What should have been sent a while ago waits for its receiver's breaker.
func TestOrder_EventThatIsDueIsNotTriedInThePast(t *testing.T) {
	e := newEnv(t)
	e.register(e.Vendor)
	o := e.Vendor.Order("", time.Now().Add(-time.Minute))
	e.Move(o, delivery.Assigned, time.Now())
	e.sends(func(*partitions.Scheduled) partitions.AttemptRecord {
		return partitions.AttemptRecord{State: partitions.StateRetrying, HTTPStatus: 500, Error: "status: 500", NextAt: time.Now().Add(time.Millisecond)}
	})
	e.Await("the next attempt is due", func() bool {
		return strings.Contains(e.page(o.ID).Words(), "webhook to be tried again due; it waits for the receiver")
	})
	e.page(o.ID).Hides("next attempt")
}

func TestOrder_CancelledAndFailedTellWhy(t *testing.T) {
	e := newEnv(t)
	cancelled := e.Vendor.Order("", time.Now())
	_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.Vendor.Account, cancelled.ID, delivery.CustomerRequest, "Müşteri <i>vazgeçti</i>", time.Now())
	must(t, err)
	e.page(cancelled.ID).Says("Cancelled CustomerRequest", "Müşteri <i>vazgeçti</i>", "webhook not sent yet")
	lost := e.Vendor.Order("", time.Now())
	e.Change(lost.ID, delivery.Change{Status: delivery.Failed, At: time.Now(), Failure: delivery.NoCourierFound})
	e.page(lost.ID).Says("Failed NoCourierFound", "Courier no courier reported")
	e.page(e.Vendor.Order("", time.Now()).ID).Says("Courier nobody yet")
}

// As on the pages of payments.
func TestOrder_WhatIsMissingReadsAsInThePayments(t *testing.T) {
	e := newEnv(t)
	e.Vendor.Edit = nil
	o := e.Vendor.Order("", time.Now())
	e.page(o.ID).Says("Paid by not given Order amount – To collect –")
}

//rule:states/a-delivered-reported-after-that
func TestOrder_ALateDeliveryStandsInTheTimeline(t *testing.T) {
	e := newEnv(t)
	now := time.Now()
	o := e.Vendor.Order("", now.Add(-time.Hour))
	e.Change(o.ID, delivery.Change{Status: delivery.Failed, At: now.Add(-time.Minute), Failure: delivery.CustomerRefused})
	e.Reach(o, delivery.Delivered, now)
	e.Decide()
	e.export()
	const line = "Reported by the fleet after the order had ended: refused. The amount may have been collected."
	e.page(o.ID).Says("Status Failed CustomerRefused", line)
	e.page(e.Vendor.Order("", now).ID).Hides(line)
	e.Do("FLUSHDB") // ClickHouse alone remembers
	e.page(o.ID).Says("This order has left Redis", line)
}

func TestOrder_UnknownIsNotFound(t *testing.T) {
	e := newEnv(t)
	for _, id := range []string{delivery.MakeOrderID(0, 20000, [12]byte{1}).String(), "no-id", "00000000-0000-0000-0000-000000000000", "%3Cscript%3E"} {
		for _, path := range []string{"/orders/" + id, "/orders/" + id + "/live"} {
			e.client.Get(path).Want(http.StatusNotFound)
		}
	}
}

func TestOrder_WithoutClickHouseIsShownFromRedis(t *testing.T) {
	e := newEnv(t)
	e.register(e.Vendor)
	o := e.Vendor.Order("", time.Now())
	e.Move(o, delivery.Assigned, time.Now())
	e.sends(failed("no"))
	e.serve(e.unavailable())
	e.page(o.ID).Says("Cannot be read right now: earlier webhook attempts (ClickHouse).", "Status Assigned", "HTTP 500")
	unknown := e.client.Get("/orders/" + delivery.MakeOrderID(0, 20000, [12]byte{1}).String()).Want(http.StatusServiceUnavailable).Says("cannot be found out right now")
	if unknown.Header.Get("Retry-After") == "" {
		t.Errorf("%v", unknown.Header)
	}
}

func TestOrder_WithoutRedisIsShownFromClickHouse(t *testing.T) {
	e := newEnvToStop(t)
	o := e.Delivered(time.Now())
	e.sends(accepted) // to nobody: there is no URL
	e.export()
	e.Server.Stop()
	e.page(o.ID).Says("the order as it is in Redis, account and store (Redis), recent webhook attempts (Redis)", "as of its last export", "which cannot be read", "Delivered", "not sent", "123.45 TRY", "Assigned")
}

func TestOrder_StaysSmallWhateverReceiversAnswer(t *testing.T) {
	e := newEnv(t)
	e.register(e.Vendor)
	o := e.Vendor.Order("", time.Now().Add(-time.Minute))
	e.Move(o, delivery.Delivered, time.Now())
	long := failed(strings.Repeat("<&>", 682))
	e.sends(long)
	event := delivery.EventID(o.ID, e.Read(o.ID).Version)
	for i := range 45 {
		_, err := e.Ledger.Webhooks.ReplayEvents(t.Context(), e.Vendor.Account, []string{event})
		must(t, err)
		e.sends(func(s *partitions.Scheduled) partitions.AttemptRecord {
			outcome := long(s)
			outcome.Millis = int64(i)
			return outcome
		})
	}

	a := e.page(o.ID)
	if n := strings.Count(a.Text, "<details id=\"answer-"); n > attemptsOfEvent+4 {
		t.Errorf("%d attempts are shown", n)
	}
}

// An operator can turn off what happens between two statuses, so its lack of an attempt is no failure.
func TestTimeline_SaysWhatWithoutAnAttemptMayBeTurnedOff(t *testing.T) {
	now := time.Now()
	change := func(kind delivery.ChangeKind, sequence uint64) delivery.Change {
		return delivery.Change{Kind: kind, Version: sequence, At: now.Add(-2 * refreshedAfterEnd)}
	}
	steps := []delivery.Change{
		change(delivery.StatusReached, 1),
		change(delivery.StatusReached, 2),
		change(delivery.CourierReplaced, 3),
		change(delivery.EstimateRevised, 4),
	}

	views, _ := timeline(delivery.OrderID{}, steps, nil, now)

	for i, want := range []string{"", "none", "optional", "optional"} {
		if got := views[i].State; got != want {
			t.Errorf("step %d is %q, want %q", i+1, got, want)
		}
	}
}

func TestMergeAttempts_EachOnceOldestFirst(t *testing.T) {
	t.Parallel()

	id := delivery.MakeOrderID(0, 20000, [12]byte{1})
	at := time.UnixMilli(1_795_000_000_123)
	record := func(n int, order delivery.OrderID, answer string) partitions.AttemptRecord {
		return partitions.AttemptRecord{EventID: "evt_1", OrderID: order.String(), Attempt: n, At: at.Add(time.Duration(n) * time.Second), Answer: answer}
	}
	replay := record(2, id, "")
	replay.Replay = true
	live := []partitions.AttemptRecord{record(3, id, "c"), record(2, id, "b"), record(9, delivery.MakeOrderID(0, 20000, [12]byte{2}), "another's")}
	past := []partitions.AttemptRecord{record(2, id, ""), record(1, id, ""), replay}
	got := ""
	for _, a := range mergeAttempts(id, live, past) {
		got += fmt.Sprintf("%d%s%t ", a.Attempt, a.Answer, a.Replay)
	}

	if want := "1false 2bfalse 2true 3cfalse "; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
