package admin

import (
	"net/http"
	"net/url"
	"testing"
	"time"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// Two operators have the same page open: neither puts back what the other one
// has changed.
func TestChangeFleet_SendsOnlyWhatWasChanged(t *testing.T) {
	e := newEnv(t)
	id := e.newFleet("İki Operatörlü Filo")
	page := "/fleets/" + id.String()
	form := e.Get(page).Form(page+"/fields", "", "")
	e.call(http.MethodPatch, "/fleets/"+id.String(), map[string]any{"name": "Öbürünün adı", "avgPickupMinutes": 3})
	form.Set("avgDeliveryMinutes", "40")
	e.done(e.Post(page+"/fields", form), "fleet-changed")
	if f := e.fleet(id); f.Name != "Öbürünün adı" || f.PickupMinutes != 3 || f.DeliveryMinutes != 40 || f.SubRegion != "Kadıköy" {
		t.Errorf("%+v", f)
	}

	e.done(e.Submit(page, page+"/fields"), "unchanged")
	e.done(e.Submit(page, page+"/fields", "name", " Öbürünün adı "), "unchanged")
	e.done(e.Submit(page, page+"/fields", "subRegion", ""), "fleet-changed") // there may be none
}

func TestChangeFleet_RefusedFormUndoesNothing(t *testing.T) {
	e := newEnv(t)
	id := e.newFleet("Reddedilen Form")
	page := "/fleets/" + id.String()
	form := e.Get(page).Form(page+"/fields", "", "")
	e.call(http.MethodPatch, "/fleets/"+id.String(), map[string]any{"name": "Öbürünün adı"})
	form.Set("avgDeliveryMinutes", "soon")
	form.Set("subRegion", "Beşiktaş")
	again := e.Post(page+"/fields", form).Want(http.StatusUnprocessableEntity).Form(page+"/fields", "", "")
	for field, want := range map[string]string{"name": "Öbürünün adı", "subRegion": "Beşiktaş", "avgDeliveryMinutes": "soon"} {
		if got := again.Get(field); got != want {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}

	e.call(http.MethodPatch, "/fleets/"+id.String(), map[string]any{"avgDeliveryMinutes": 99})
	again.Set("avgDeliveryMinutes", "25") // as it was: no change after all
	e.done(e.Post(page+"/fields", again), "fleet-changed")
	if f := e.fleet(id); f.Name != "Öbürünün adı" || f.SubRegion != "Beşiktaş" || f.DeliveryMinutes != 99 {
		t.Errorf("%+v", f)
	}
}

func TestLimitWebhook_SendsOnlyWhatWasChanged(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("İki operatörlü alıcı")
	e.register(v, "https://vendor.example/")
	page := "/webhooks/" + v.id
	form := e.Get(page).Form(page+"/limits", "", "")
	e.call(http.MethodPatch, "/accounts/"+v.id+"/webhook", map[string]int{"maxPerSecond": 50})
	form.Set("maxInFlight", "many")
	again := e.Post(page+"/limits", form).Want(http.StatusUnprocessableEntity).Form(page+"/limits", "", "")
	again.Set("maxInFlight", "4")
	e.done(e.Post(page+"/limits", again), "webhook-limited")
	if got := e.endpoint(v).Limits; got != (partitions.EndpointLimits{InFlight: 4, PerSecond: 50}) {
		t.Errorf("%+v", got)
	}

	e.done(e.Submit(page, page+"/limits"), "unchanged")
	e.done(e.Submit(page, page+"/limits", "maxPerSecond", " 250 "), "webhook-limited")
	if got := e.endpoint(v).Limits; got != (partitions.EndpointLimits{InFlight: 4, PerSecond: 250}) {
		t.Errorf("%+v", got)
	}

	e.done(e.Submit(page, page+"/limits", "maxPerSecond", ""), "webhook-limited")
	if got := e.endpoint(v).Limits; got != (partitions.EndpointLimits{InFlight: 4}) {
		t.Errorf("%+v", got)
	}
}

func TestLimitAccount_RefusedFormUndoesNothing(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Reddedilen sınırlar")
	page := "/accounts/" + v.id
	form := e.Get(page).Form(page+"/limits", "", "")
	e.call(http.MethodPatch, "/accounts/"+v.id, map[string]any{"limits": map[string]any{"stores": map[string]any{"sustained": map[string]int{"count": 99, "seconds": 60}}}})
	form.Set("limits.cancel.sustained.count", "abc")
	form.Set("limits.orders.burst.count", "7")
	again := e.Post(page+"/limits", form).Want(http.StatusUnprocessableEntity).Form(page+"/limits", "", "")
	if got := again.Get("limits.stores.sustained.count"); got != "99" {
		t.Errorf("the page shows %s for what the other one changed", got)
	}

	again.Set("limits.cancel.sustained.count", "45")
	again.Set("limits.cancel.burst.count", "9")
	again.Set("limits.cancel.burst.seconds", "3")
	e.done(e.Post(page+"/limits", again), "account-limited")
	want := delivery.DefaultLimits()
	want.Stores.Sustained.Count, want.Cancel.Sustained.Count, want.Orders.Burst.Count, want.Cancel.Burst = 99, 45, 7, delivery.Window{Count: 9, Seconds: 3}
	if got := e.account(v).Limits; got != want {
		t.Errorf("%+v", got)
	}

	e.done(e.Submit(page, page+"/limits"), "unchanged")
}

func TestRenameAccount_UnchangedNameIsNotPutBack(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Önceki ad")
	page := "/accounts/" + v.id
	form := e.Get(page).Form(page+"/name", "", "")
	e.call(http.MethodPatch, "/accounts/"+v.id, map[string]string{"name": "Sonraki ad"})
	e.done(e.Post(page+"/name", form), "unchanged").Want(200, "Sonraki ad")
	e.done(e.Submit(page, page+"/name", "name", "Yeni İsim"), "account-renamed").Want(200, "Yeni İsim")
}

// What a form changes is what somebody typed over, whatever else is stored by
// now; and a form that is shown again changes the same.
func TestChanges_AreWhatWasTypedOver(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		word := rapid.StringMatching(`[a-zıİ <&"]{0,6}`)
		shown, held, stored := word.Draw(t, "shown"), word.Draw(t, "typed"), word.Draw(t, "stored by now")
		form := url.Values{"f": {held}, "f" + shownSuffix: {shown}}
		first := (&action{fields: fields{"f": plainText}}).body(form)
		again := url.Values{"f": {typed{form}.Or("f", stored)}, "f" + shownSuffix: {typed{form}.Shown("f", stored)}}
		if second := (&action{fields: fields{"f": plainText}}).body(again); len(first) != len(second) || first["f"] != second["f"] {
			t.Fatalf("%v changes %v, and shown again as %v %v", form, first, again, second)
		}
		if len(first) == 0 && again.Get("f") != stored {
			t.Fatalf("what nobody changed is shown as %q, and is %q", again.Get("f"), stored)
		}
	})
}

// What is done here, or elsewhere, is seen at once.
func TestLists_ShowWhatWasJustChanged(t *testing.T) {
	e := newEnv(t)
	v := e.newAccount("Paylaşılan " + t.Name())
	e.register(v, "https://vendor.example/önce")
	e.pages.Lists.Few.MaxAge = time.Minute
	e.Get("/webhooks/live?text="+v.id).Want(http.StatusOK, "vendor.example", "Paylaşılan")
	e.Get("/accounts?text="+v.id).Want(http.StatusOK, "Paylaşılan")
	e.Get("/accounts?text=nobody").Want(http.StatusOK, "No account matches this search")
	fresh := e.newAccount("Az önce başka yerde")
	e.Get("/stores?account="+fresh.id).Want(http.StatusOK, "Az önce başka yerde")
	e.done(e.Submit("/webhooks/"+v.id, "/webhooks/"+v.id+"/url", "url", "https://vendor.example/sonra"), "webhook-moved")
	e.done(e.Submit("/accounts/"+v.id, "/accounts/"+v.id+"/name", "name", "Yeni adıyla "+t.Name()), "account-renamed")
	e.Get("/webhooks/live?text="+v.id).Want(http.StatusOK, "sonra", "Yeni adıyla")
	e.Get("/accounts?text="+v.id).Want(http.StatusOK, "Yeni adıyla")
}
