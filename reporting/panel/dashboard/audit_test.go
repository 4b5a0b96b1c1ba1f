package dashboard

import (
	"cmp"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/ledger/audit"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/archive"
	"vendorapi/reporting/auth/authenv"
	"vendorapi/reporting/layout"
)

// viewed are the entries of who looked at recipients, oldest first.
func (e *env) viewed() (all []*audit.Entry) {
	e.T.Helper()
	must(e.T, e.Ledger.Streams.EachEntry(e.T.Context(), ledger.RoleExport, time.Time{}, func(batch []partitions.Entry) error {
		for _, one := range batch {
			if one.Audit != nil {
				all = append(all, one.Audit)
			}
		}
		return nil
	}))

	return all
}

// Every page with a recipient's data is noted before it is shown; its refreshes are the same view.
func TestOrder_WhoLooksAtARecipientIsNoted(t *testing.T) {
	e := newEnv(t)
	o, other := e.Vendor.Order("", time.Now()), e.Vendor.Order("", time.Now())
	page, live := "/orders/"+o.ID.String(), "/orders/"+o.ID.String()+"/live"
	for i, c := range []struct {
		path, who string
		noted     bool
	}{
		{page, "operator", true}, {live, "operator", false}, {page, "operator", true}, {live, "operator", false},
		{live, "both", true}, {live, "both", false}, {page, "finance", false}, // may not
		{"/orders", "operator", false}, {"/orders/" + other.ID.String(), "operator", true},
		{"/orders/" + delivery.MakeOrderID(0, 20000, [12]byte{1}).String(), "operator", false},
	} {
		before := e.viewed()
		a := e.client.Get(c.path, authenv.As(c.who))
		after := e.viewed()
		wantMore := 0
		if c.noted {
			wantMore = 1
		}
		if len(after)-len(before) != wantMore {
			t.Fatalf("case %d, %s as %s: %d entries more, answered %d", i, c.path, c.who, len(after)-len(before), a.StatusCode)
		}
		if !c.noted {
			continue
		}

		last := *after[len(after)-1]
		for _, one := range after { // of several partitions
			if one.At.After(last.At) {
				last = *one
			}
		}

		if last.Action != "recipient viewed" || last.Actor != c.who || last.Credential != "token" || last.Address != "127.0.0.1" || len(last.RequestID) != 16 ||
			last.Account != e.Vendor.Account || !strings.Contains(c.path, last.Order.String()) || last.Old+last.New+last.Outcome != "" {
			t.Errorf("case %d: %+v", i, last)
		}
	}

	e.Move(o, delivery.Delivered, time.Now())
	testenv.Shrink(t, e.Ledger)
	before := len(e.viewed())
	e.get(page).Says("Who received it is not known any more")
	if n := len(e.viewed()); n != before {
		t.Errorf("%d entries of a page without a recipient", n-before)
	}

	// What a vendor wrote of a cancellation, and what its receiver answered, may be about the recipient.
	// Each order has one of the two only: the cancellation is not sent to the receiver.
	cancelled, answered := e.Vendor.Order("", time.Now()), e.Vendor.Order("", time.Now())
	e.register(e.Vendor)
	e.Move(answered, delivery.Delivered, time.Now())
	e.sends(failed("no Ali Veli here"))
	_, _, err := e.Ledger.Orders.Cancel(t.Context(), e.Vendor.Account, cancelled.ID, delivery.CustomerRequest, "Ali Veli vazgeçti", time.Now())
	must(t, err)

	testenv.Shrink(t, e.Ledger)
	for _, shrunk := range []*delivery.Order{cancelled, answered} {
		before := len(e.viewed())
		e.page(shrunk.ID).Says("Who received it is not known any more", "Ali Veli")
		if n := len(e.viewed()); n != before+1 {
			t.Errorf("%d entries of a page with a note or an answer", n-before)
		}
	}

	// What cannot be noted is not shown.
	e.EachKey("U", "redis.call('SET', k, 'no stream')")
	e.client.Get("/orders/"+other.ID.String()).Want(http.StatusInternalServerError).Hides("Ali Veli", "5321234567")
}

func TestAudit_PageFindsWhoDidWhat(t *testing.T) {
	e := newEnv(t)
	e.get("/audit").Says("Audit trail", "There is no such entry in these days")
	now := time.Now().Truncate(time.Millisecond)
	order := delivery.MakeOrderID(0, 20000, [12]byte{1})
	entry := func(id string, change func(*audit.Entry)) audit.Entry {
		a := audit.Entry{At: now, ID: id, Version: 1, Actor: "ayse", Credential: "admin key", Address: "192.0.2.1", RequestID: "00112233aabbccdd", Action: "account changed"}
		change(&a)
		return a
	}

	must(t, e.Archive.Insert(t.Context(), &archive.Batch{Audit: []audit.Entry{
		entry("a", func(a *audit.Entry) {
			a.Account, a.Store, a.Old, a.New = e.Vendor.Account, "s1", `{"name":"<b>A</b>"}`, `{"name":"B"}`
		}),
		entry("b", func(a *audit.Entry) {
			a.Actor, a.Action, a.Fleet, a.Outcome = "deniz", "fleet changed", e.Fleet.ID, "INTERNAL_ERROR"
		}),
		entry("c", func(a *audit.Entry) {
			a.Action, a.Order, a.At = "recipient viewed", order, now.AddDate(0, 0, -60)
		}),
		entry("d", func(a *audit.Entry) {
			a.Actor, a.Credential, a.RequestID, a.Action, a.New = "", "", "", "admin key refused", `{"count":7}`
		}),
		entry("e", func(a *audit.Entry) {
			a.Action, a.Account = "webhook changed", delivery.FinanceAccount
		}),
	}}))

	a := e.get("/audit")
	a.Says("ayse by admin key 192.0.2.1", "account changed 00112233aabbccdd", `{"name":"<b>A</b>"}`, `{"name":"B"}`, "fleet "+layout.Short(e.Fleet.ID), "account "+layout.Short(e.Vendor.Account)+" store s1", "INTERNAL_ERROR", `{"count":7}`).Hides("recipient viewed 0")
	a.Links("/accounts/"+e.Vendor.Account.String(), "/fleets/"+e.Fleet.ID.String(), "/webhooks/"+delivery.FinanceAccount.String())
	a.Lacks("/accounts/" + delivery.FinanceAccount.String())
	day := now.AddDate(0, 0, -60).In(delivery.Istanbul).Format(time.DateOnly)
	for query, says := range map[string]string{
		"?actor=deniz": "fleet changed", "?about=" + e.Vendor.Account.String(): "account changed 0", "?action=admin+key+refused": `{"count":7}`,
		"?from=" + day + "&to=" + day: "recipient viewed 0", "?from=" + day + "&about=" + order.String(): "recipient viewed 0",
	} {
		if rows := e.get("/audit" + query).Says(says).Words(); strings.Count(rows, "192.0.2.1") != 1 {
			t.Errorf("%s: %s", query, rows)
		}
	}

	for query, says := range map[string]string{
		"?about=x": "a UUID of 36 characters", "?from=yesterday": "such as 2026-11-21", "?to=2026-13-01": "such as 2026-11-21",
		"?from=2026-11-02&to=2026-11-01": "is after the last day",
	} {
		e.client.Get("/audit" + query).Want(http.StatusUnprocessableEntity).Says(says)
	}

	e.serve(e.unavailable())
	e.get("/audit").Says("Cannot be read right now: who did what (ClickHouse)").Hides("There is no such entry")
}

func TestAudit_PageIsCutToTheNewest(t *testing.T) {
	e := newEnv(t)
	var all []audit.Entry
	for i := range auditRows + 1 {
		all = append(all, audit.Entry{At: time.Now().Add(-time.Duration(i) * time.Millisecond), ID: cmp.Or(strings.Repeat("x", i), "y"), Version: 1, Actor: "ayse", Action: "account changed"})
	}
	must(t, e.Archive.Insert(t.Context(), &archive.Batch{Audit: all}))
	e.get("/audit").Says("The newest 200; narrow the search to see others")
}
