package operate

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// Two operators have the same page open: neither puts back what the other one
// has changed.
func TestChangeFleet_SendsOnlyWhatWasChanged(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	id := s.newFleet("İki Operatörlü Filo")
	page := "/fleets/" + id.String()
	form := b.get(page).form(page+"/fields", "", "")
	s.call(http.MethodPatch, "/fleets/"+id.String(), map[string]any{"name": "Öbürünün adı", "avgPickupMinutes": 3})
	form.Set("avgDeliveryMinutes", "40")
	b.post(page+"/fields", form).wantDone(b, "fleet-changed")
	if f := s.fleet(id); f.Name != "Öbürünün adı" || f.PickupMinutes != 3 || f.DeliveryMinutes != 40 || f.SubRegion != "Kadıköy" {
		t.Errorf("%+v", f)
	}
	b.submit(page, page+"/fields").wantDone(b, "unchanged")
	b.submit(page, page+"/fields", "name", " Öbürünün adı ").wantDone(b, "unchanged")
	b.submit(page, page+"/fields", "subRegion", "").wantDone(b, "fleet-changed") // there may be none
	if a := b.submit(page, page+"/fields", "avgPickupMinutes", "").want(http.StatusUnprocessableEntity); a.fault("avgPickupMinutes") != "must be a number" {
		t.Error(a.brief())
	}
}

func TestChangeFleet_RefusedFormUndoesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	id := s.newFleet("Reddedilen Form")
	page := "/fleets/" + id.String()
	form := b.get(page).form(page+"/fields", "", "")
	s.call(http.MethodPatch, "/fleets/"+id.String(), map[string]any{"name": "Öbürünün adı"})
	form.Set("avgDeliveryMinutes", "soon")
	form.Set("subRegion", "Beşiktaş")
	again := b.post(page+"/fields", form).want(http.StatusUnprocessableEntity).form(page+"/fields", "", "")
	for field, want := range map[string]string{"name": "Öbürünün adı", "subRegion": "Beşiktaş", "avgDeliveryMinutes": "soon"} {
		if got := again.Get(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	s.call(http.MethodPatch, "/fleets/"+id.String(), map[string]any{"avgDeliveryMinutes": 99})
	again.Set("avgDeliveryMinutes", "25") // as it was: no change after all
	b.post(page+"/fields", again).wantDone(b, "fleet-changed")
	if f := s.fleet(id); f.Name != "Öbürünün adı" || f.SubRegion != "Beşiktaş" || f.DeliveryMinutes != 99 {
		t.Errorf("%+v", f)
	}
}

func TestLimitWebhook_SendsOnlyWhatWasChanged(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("İki operatörlü alıcı")
	s.register(v, "https://vendor.example/")
	page := "/webhooks/" + v.id
	form := b.get(page).form(page+"/limits", "", "")
	s.call(http.MethodPatch, "/accounts/"+v.id+"/webhook", map[string]int{"maxPerSecond": 50})
	form.Set("maxInFlight", "many")
	again := b.post(page+"/limits", form).want(http.StatusUnprocessableEntity).form(page+"/limits", "", "")
	again.Set("maxInFlight", "4")
	b.post(page+"/limits", again).wantDone(b, "webhook-limited")
	if got := s.endpoint(v).Limits; got != (ledger.EndpointLimits{InFlight: 4, PerSecond: 50}) {
		t.Errorf("%+v", got)
	}
	b.submit(page, page+"/limits").wantDone(b, "unchanged")
	b.submit(page, page+"/limits", "maxPerSecond", "").wantDone(b, "webhook-limited")
	if got := s.endpoint(v).Limits; got != (ledger.EndpointLimits{InFlight: 4}) {
		t.Errorf("%+v", got)
	}
}

func TestLimitAccount_RefusedFormUndoesNothing(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Reddedilen sınırlar")
	page := "/accounts/" + v.id
	form := b.get(page).form(page+"/limits", "", "")
	s.call(http.MethodPatch, "/accounts/"+v.id, map[string]any{"limits": map[string]any{"stores": map[string]any{"sustained": map[string]int{"count": 99, "seconds": 60}}}})
	form.Set("limits.cancel.sustained.count", "abc")
	form.Set("limits.orders.burst.count", "7")
	again := b.post(page+"/limits", form).want(http.StatusUnprocessableEntity).form(page+"/limits", "", "")
	if got := again.Get("limits.stores.sustained.count"); got != "99" {
		t.Errorf("the page shows %s for what the other one changed", got)
	}
	again.Set("limits.cancel.sustained.count", "45")
	b.post(page+"/limits", again).wantDone(b, "account-limited")
	want := delivery.DefaultLimits()
	want.Stores.Sustained.Count, want.Cancel.Sustained.Count, want.Orders.Burst.Count = 99, 45, 7
	if got := s.account(v).Limits; got != want {
		t.Errorf("%+v", got)
	}
}

func TestRenameAccount_UnchangedNameIsNotPutBack(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Önceki ad")
	page := "/accounts/" + v.id
	form := b.get(page).form(page+"/name", "", "")
	s.call(http.MethodPatch, "/accounts/"+v.id, map[string]string{"name": "Sonraki ad"})
	b.post(page+"/name", form).wantDone(b, "unchanged")
	if got := s.account(v).Name; got != "Sonraki ad" {
		t.Error(got)
	}
}

// What a form changes is what somebody typed over, whatever else is stored by
// now; and a form that is shown again changes the same.
func TestChanges_AreWhatWasTypedOver(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-zıİ <&"]{0,6}`)
		shown, held, stored := word.Draw(t, "shown"), word.Draw(t, "typed"), word.Draw(t, "stored by now")
		form := url.Values{"f": {held}, "f" + shownSuffix: {shown}}
		first := changes(form, plainText, "f")
		again := url.Values{"f": {typed{form}.Kept("f", stored)}, "f" + shownSuffix: {typed{form}.Shown("f", stored)}}
		if second := changes(again, plainText, "f"); len(first) != len(second) || first["f"] != second["f"] {
			t.Fatalf("%v changes %v, and shown again as %v %v", form, first, again, second)
		}
		if len(first) == 0 && again.Get("f") != stored {
			t.Fatalf("what nobody changed is shown as %q, and is %q", again.Get("f"), stored)
		}
	})
}

// What everybody looks at is read once for all who look; what is done here is
// seen at once.
func TestLists_AreReadOnceForAllWhoLook(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	b := s.browser("deniz")
	v := s.newAccount("Paylaşılan " + t.Name())
	s.register(v, "https://vendor.example/önce")
	s.pages.accounts.Age, s.pages.receivers.Age = time.Minute, time.Minute
	var reads atomic.Int64
	read := s.pages.receivers.Read
	s.pages.receivers.Read = func(ctx context.Context) ([]*ledger.WebhookEndpoint, error) {
		reads.Add(1)
		return read(ctx)
	}
	var all sync.WaitGroup
	for range 20 {
		all.Go(func() { b.get("/webhooks/live?text="+v.id).want(http.StatusOK, "vendor.example") })
	}
	all.Wait()
	b.get("/accounts?text="+v.id).want(http.StatusOK, "Paylaşılan")
	b.get("/accounts?text=nobody").want(http.StatusOK, "No account is like this")
	if reads.Load() != 1 {
		t.Errorf("%d reads for 20 who look", reads.Load())
	}
	fresh := s.newAccount("Az önce başka yerde")
	b.get("/stores?account="+fresh.id).want(http.StatusOK, "Az önce başka yerde")
	b.submit("/webhooks/"+v.id, "/webhooks/"+v.id+"/url", "url", "https://vendor.example/sonra").wantDone(b, "webhook-moved")
	b.submit("/accounts/"+v.id, "/accounts/"+v.id+"/name", "name", "Yeni adıyla "+t.Name()).wantDone(b, "account-renamed")
	b.get("/webhooks/live?text="+v.id).want(http.StatusOK, "sonra", "Yeni adıyla")
	b.get("/accounts?text="+v.id).want(http.StatusOK, "Yeni adıyla")
}
