package tracking

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// One order from its creation to the door, as the page and its fragment show it.
//
//rule:order-creation-response/trackingUrl decisions/trackingUrl
func TestPage_FollowsADelivery(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	for _, c := range []struct {
		status  delivery.Status
		after   time.Duration
		english []string
		turkish []string
		absent  []string
	}{
		{delivery.Searching, 0,
			[]string{"Looking for a courier", "Moda Şubesi", "Hızlı Kurye", "Estimated pickup", "14:10", "in about 10 min"},
			[]string{"Kurye aranıyor", "Moda Şubesi", "Tahmini alış", "yaklaşık 10 dk içinde"},
			[]string{"Mehmet", "Motorcycle", "Estimated arrival", "map-courier"}},
		{delivery.Assigned, 2 * time.Minute,
			[]string{"A courier has your order", "Mehmet Y.", "Motorcycle", "Estimated arrival", "14:35", "14:10", "14:02"},
			[]string{"Kuryeniz belli oldu", "Mehmet Y.", "Motosiklet", "Tahmini varış"},
			[]string{"Yılmaz", "532111", "map-courier"}},
		{delivery.PickingUp, 3 * time.Minute, []string{"Courier heading to the restaurant", "14:03"}, []string{"Kurye restorana gidiyor"}, nil},
		{delivery.PickedUp, 12 * time.Minute, []string{"has been picked up", "14:37", "in about 25 min"}, []string{"restorandan alındı"}, []string{"Estimated pickup"}},
		{delivery.Delivering, 13 * time.Minute, []string{"On the way to you", "14:37"}, []string{"Siparişiniz yolda"}, nil},
		{delivery.Delivered, 30 * time.Minute, []string{"Delivered", "Handed over at", "14:30", "14:13", "data-ended"}, []string{"Teslim edildi", "Teslim saati"},
			[]string{"Estimated", "<svg", "renews itself"}},
	} {
		if c.status > delivery.Searching {
			e.reach(o, c.status, c.after)
		}

		state := fmt.Sprintf(`data-state="%s"`, c.status)
		for _, page := range []*testenv.Answer{e.get(o), e.renewed(o)} {
			page.Want(200, c.english...).Want(200, state).Lacks(c.absent...)
			if n := strings.Count(page.Text, `aria-current="step"`); n != 1 {
				t.Errorf("%s: %d steps are the present one", c.status, n)
			}
			done, next := strings.Count(page.Text, `<li class="done"`), strings.Count(page.Text, `<li class="next"`)
			if done != int(c.status)-1 || next != 6-int(c.status) {
				t.Errorf("%s: %d steps done, %d to come", c.status, done, next)
			}
		}

		e.get(o, inTurkish).Want(200, c.turkish...).Want(200, state, `<html lang="tr">`)
		e.renewed(o, inTurkish).Want(200, c.turkish...).Want(200, state)
	}
}

func TestPage_SaysKindlyWhyAnOrderFailed(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	for why, from := range reached {
		o := e.order()
		if from > delivery.Searching {
			e.reach(o, from, time.Minute)
		}
		e.fail(o, why, 9*time.Minute)
		e.get(o).Want(200, "could not be delivered", english.Failures[why], "Please ask the restaurant", "14:09", "data-ended").
			Lacks(`<li class="next"`, "<progress", "<svg", string(why)+".")
		e.get(o, inTurkish).Want(200, "teslim edilemedi", turkish.Failures[why], "restorana başvurun")
	}
}

func TestPage_SaysThatAnOrderWasCancelledButNotWhy(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	e.reach(o, delivery.Assigned, time.Minute)
	e.cancel(o, "müşteri kavga etti", 5*time.Minute)
	e.at(6 * time.Minute)
	e.get(o).Want(200, "Your order was cancelled", "Please ask the restaurant", "14:05", `data-state="Cancelled"`).Lacks("kavga", "CustomerRequest", "<svg")
	e.get(o, inTurkish).Want(200, "Siparişiniz iptal edildi").Lacks("kavga")
}

func TestPage_ShowsTheCourierWhoCarriesItNow(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	e.reach(o, delivery.PickedUp, time.Minute)
	e.locate(o, e.store.Point, 2*time.Minute)
	e.at(2 * time.Minute)
	e.get(o).Want(200, "Mehmet Y.", "Motorcycle", `class="map-courier"`)
	swap := delivery.Update{Order: o.ID, Kind: delivery.KindSwap, At: began.Add(3 * time.Minute),
		Courier: delivery.Courier{Name: "Ayşe İpek Çelik", Phone: "5329990000", VehicleType: "Bicycle"}}
	e.Change(o.ID, delivery.Decide(e.Read(o.ID), swap, swap.At).Changes...)
	e.get(o).Want(200, "Ayşe Ç.", "Bicycle").Lacks("Mehmet", "İpek", "Çelik", "532999", `class="map-courier"`)
	e.get(o, inTurkish).Want(200, "Bisiklet")
}

func TestPage_SaysWhereTheCourierIsAndHowOldThatIs(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	e.reach(o, delivery.PickingUp, 2*time.Minute)
	e.locate(o, delivery.Point{Latitude: 40.9726, Longitude: 29.0258}, 3*time.Minute) // 1 km south of the store
	e.at(3*time.Minute + 20*time.Second)
	e.get(o).Want(200, `class="map-courier"`, `class="map-store"`, `class="map-dropoff"`, "about 1.0 km from the restaurant", "20 s ago")
	e.get(o, inTurkish).Want(200, "restorana yaklaşık 1,0 km uzakta", "20 sn önce")
	e.locate(o, e.store.Point, 4*time.Minute)
	e.get(o).Want(200, "at the restaurant", "just now")
	e.reach(o, delivery.Delivering, 5*time.Minute)
	e.get(o).Want(200, "about 700 m away", "1 min ago")
	e.locate(o, o.Dropoff.Point, 6*time.Minute)
	e.get(o).Want(200, "Your courier is close by.")
	e.at(16 * time.Minute)
	e.get(o).Want(200, `class="map-lost"`, "10 min ago").Lacks(`class="map-courier"`)
	e.reach(o, delivery.Delivered, 17*time.Minute)
	e.get(o).Lacks("map-", " ago", " km")
}

func TestPage_OfAnOrderForLater(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.order(func(d *delivery.OrderDraft) { d.ReadyAt = began.Add(3 * time.Hour) })
	e.get(o).Want(200, "Your order will be ready at 17:00", "in about 3 h 0 min")
	e.get(o, inTurkish).Want(200, "Siparişiniz 17:00 için hazırlanacak", "yaklaşık 3 sa 0 dk içinde")
	e.at(2*time.Hour + 55*time.Minute)
	e.get(o).Want(200, "We are finding a courier", "in about 5 min").Lacks("will be ready")
}

func TestPage_SaysWhenAnOrderIsLateAndWhichDayAnotherDayIs(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	e.reach(o, delivery.Delivering, 2*time.Minute)
	e.at(45 * time.Minute)
	e.get(o).Want(200, "a little later than expected")
	e.reach(o, delivery.Delivered, 50*time.Minute)
	e.at(20 * time.Hour)
	e.get(o).Want(200, "21 Nov 14:50")
	e.get(o, inTurkish).Want(200, "21 Kas 14:50")
}

// A courier who promised an arrival and then waits for the package is not about
// to ring.
func TestPage_LeavesOutAnArrivalBeforeThePickup(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.order()
	e.report(o, time.Minute, delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned,
		Courier: delivery.Courier{Name: "Mehmet Yılmaz"}, ETA: began.Add(5 * time.Minute)})
	e.at(6 * time.Minute)
	e.get(o).Want(200, "Estimated pickup", "14:10").Lacks("Estimated arrival", "any minute now")
}

// A store that cannot be found takes its name and place with it, and nothing
// else.
func TestPage_DoesWithoutAStore(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	e.reach(o, delivery.PickingUp, time.Minute)
	e.locate(o, delivery.Point{Latitude: 40.9726, Longitude: 29.0258}, 3*time.Minute)
	v := newView(english, e.Read(o.ID), nil, began.Add(4*time.Minute))
	if v.Store != "" || v.Map == nil || len(v.Map.Marks) != 2 || v.Whereabouts != "" || v.Courier != "Mehmet Y." {
		t.Errorf("%+v", v)
	}
}

func TestPage_HeadersKeepTheLinkSecretAndThePageAlone(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	for _, path := range []string{pathOf(o), pathOf(o) + "/live", "/track/x", "/track/"} {
		e.client.Get(path).Carries(map[string]string{"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
			"X-Frame-Options": "DENY", "Content-Language": "en", "Vary": "Accept-Language", "Content-Type": "text/html; charset=utf-8",
			"X-Robots-Tag": "noindex, nofollow, noarchive", "Content-Security-Policy": policy, "Set-Cookie": ""})
	}

	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "script-src 'self'", "style-src 'self'"} {
		if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %s", policy)
		}
	}

	e.get(o).Harmless("assets/").Lacks("http://", "https://www.g").
		Want(200, `<meta name="robots" content="noindex, nofollow">`, `<meta name="referrer" content="no-referrer">`, `<noscript><meta http-equiv="refresh" content="30"></noscript>`)
	if page := e.get(o); len(page.Text) > 40_000 {
		t.Errorf("the page has %d bytes", len(page.Text))
	}
}

func TestPage_HeadAnswersWithoutABodyAndOtherMethodsAreRefused(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	o := e.order()
	head := e.client.Do("HEAD", pathOf(o), "").Want(http.StatusOK)
	if head.Text != "" || head.ContentLength != int64(len(e.get(o).Text)) {
		t.Errorf("HEAD: %d bytes, length %d", len(head.Text), head.ContentLength)
	}

	e.client.Do("HEAD", "/track/x", "").Want(http.StatusNotFound)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		for _, path := range []string{pathOf(o), pathOf(o) + "/live", "/track/x", "/track/assets/1/track.js"} {
			e.client.Do(method, path, "").Want(http.StatusMethodNotAllowed, "This page can only be read").Carries(map[string]string{"Allow": "GET, HEAD"})
		}
	}
}

func TestAssets_AreKeptUnderTheirOwnHashOnly(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	page := e.get(e.order())
	for name, contentType := range map[string]string{"track.css": "text/css; charset=utf-8", "track.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		page.Want(200, `"assets/`+assetFiles.Hash+"/"+name+`"`)
		kept := e.client.Get("/track/assets/" + assetFiles.Hash + "/" + name).Want(http.StatusOK)
		other := e.client.Get("/track/assets/0/" + name).Want(http.StatusOK)
		if kept.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || other.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %q and %q", name, kept.Header.Get("Cache-Control"), other.Header.Get("Cache-Control"))
		}
		if kept.Header.Get("Content-Type") != contentType || kept.Text != other.Text || kept.Text == "" {
			t.Errorf("%s: %s, %d bytes", name, kept.Header.Get("Content-Type"), len(kept.Text))
		}
	}

	e.client.Get("/track/assets/" + assetFiles.Hash + "/page.html").Want(http.StatusNotFound)
	// However deep, a page finds its files.
	e.client.Get("/track/a/b/c").Want(http.StatusNotFound, `href="../../assets/`+assetFiles.Hash+`/track.css"`)
}
