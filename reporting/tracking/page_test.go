package tracking

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
)

// One order from its creation to the door, as the page and its fragment tell it.
//
//rule:order-creation-response/trackingUrl decisions/trackingUrl
func TestPage_FollowsADelivery(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
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
			s.reach(o, c.status, c.after)
		}
		state := fmt.Sprintf(`data-state="%s"`, c.status)
		for _, page := range []answer{s.get(o), s.renewed(o)} {
			page.has(t, c.english...).has(t, state).hasNot(t, c.absent...)
			if n := strings.Count(page.text, `aria-current="step"`); n != 1 {
				t.Errorf("%s: %d steps are the present one", c.status, n)
			}
			done, next := strings.Count(page.text, `<li class="done"`), strings.Count(page.text, `<li class="next"`)
			if done != int(c.status)-1 || next != 6-int(c.status) {
				t.Errorf("%s: %d steps done, %d to come", c.status, done, next)
			}
		}
		s.get(o, inTurkish).has(t, c.turkish...).has(t, state, `<html lang="tr">`)
		s.renewed(o, inTurkish).has(t, c.turkish...).has(t, state)
	}
}

func TestPage_SaysKindlyWhyAnOrderFailed(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	reached := map[delivery.FailureReason]delivery.Status{
		delivery.NoCourierFound: delivery.Searching, delivery.TimedOut: delivery.Searching, delivery.StoreClosed: delivery.Assigned,
		delivery.PackageNotReady: delivery.PickingUp, delivery.CourierIncident: delivery.PickedUp, delivery.PackageDamaged: delivery.Delivering,
		delivery.AddressNotFound: delivery.Delivering, delivery.CustomerUnreachable: delivery.Delivering, delivery.CustomerRefused: delivery.Delivering,
		delivery.PaymentRefused: delivery.Delivering, delivery.OtherFailure: delivery.Delivering,
	}
	for _, why := range failureReasons(t) {
		o := s.order()
		if reached[why] > delivery.Searching {
			s.reach(o, reached[why], time.Minute)
		}
		s.fail(o, why, 9*time.Minute)
		s.get(o).has(t, "could not be delivered", english.Failures[why], "Please ask the restaurant", "14:09", "data-ended").
			hasNot(t, `<li class="next"`, "<progress", "<svg", string(why)+".")
		s.get(o, inTurkish).has(t, "teslim edilemedi", turkish.Failures[why], "restorana başvurun")
	}
}

func TestPage_SaysThatAnOrderWasCancelledButNotWhy(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	s.reach(o, delivery.Assigned, time.Minute)
	_, _, err := s.ledger.CancelOrder(context.Background(), s.store.Account, o.ID, delivery.CustomerRequest, "müşteri kavga etti", began.Add(5*time.Minute))
	must(t, err)
	s.at(6 * time.Minute)
	s.get(o).has(t, "Your order was cancelled", "Please ask the restaurant", "14:05", `data-state="Cancelled"`).hasNot(t, "kavga", "CustomerRequest", "<svg")
	s.get(o, inTurkish).has(t, "Siparişiniz iptal edildi").hasNot(t, "kavga")
}

func TestPage_ShowsTheCourierWhoCarriesItNow(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	s.reach(o, delivery.PickedUp, time.Minute)
	s.get(o).has(t, "Mehmet Y.", "Motorcycle")
	present, err := s.ledger.Order(context.Background(), o.ID)
	must(t, err)
	results, err := s.ledger.CommitAll(context.Background(), []ledger.Commit{{Order: present,
		Swap: &delivery.Courier{Name: "Ayşe İpek Çelik", Phone: "5329990000", VehicleType: "Bicycle"}}})
	must(t, err)
	must(t, results[0])
	s.get(o).has(t, "Ayşe İpek Ç.", "Bicycle").hasNot(t, "Mehmet", "Çelik", "532999")
	s.get(o, inTurkish).has(t, "Bisiklet")
}

func TestPage_SaysWhereTheCourierIsAndHowOldThatIs(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	s.reach(o, delivery.PickingUp, 2*time.Minute)
	s.locate(o, delivery.Point{Latitude: 40.9726, Longitude: 29.0258}, 3*time.Minute) // 1 km south of the store
	s.at(3*time.Minute + 20*time.Second)
	s.get(o).has(t, `class="map-courier"`, `class="map-store"`, `class="map-dropoff"`, "about 1.0 km from the restaurant", "20 s ago")
	s.get(o, inTurkish).has(t, "restorana yaklaşık 1,0 km uzakta", "20 sn önce")
	s.locate(o, s.store.Point, 4*time.Minute)
	s.get(o).has(t, "at the restaurant", "just now")
	s.reach(o, delivery.Delivering, 5*time.Minute)
	s.get(o).has(t, "about 700 m away", "1 min ago")
	s.locate(o, o.Dropoff.Point, 6*time.Minute)
	s.get(o).has(t, "Your courier is close by.")
	s.at(16 * time.Minute)
	s.get(o).has(t, `class="map-lost"`, "10 min ago").hasNot(t, `class="map-courier"`)
	s.reach(o, delivery.Delivered, 17*time.Minute)
	s.get(o).hasNot(t, "map-", "ago", "km")
}

func TestPage_OfAnOrderForLater(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order(func(d *delivery.OrderDraft) { d.ReadyAt = began.Add(3 * time.Hour) })
	s.get(o).has(t, "Your order will be ready at 17:00", "in about 3 h 0 min")
	s.get(o, inTurkish).has(t, "Siparişiniz 17:00 için hazırlanacak", "yaklaşık 3 sa 0 dk içinde")
	s.at(2*time.Hour + 55*time.Minute)
	s.get(o).has(t, "We are finding a courier", "in about 5 min").hasNot(t, "will be ready")
}

func TestPage_SaysWhenAnOrderIsLateAndWhichDayAnotherDayIs(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	s.reach(o, delivery.Delivering, 2*time.Minute)
	s.at(45 * time.Minute)
	s.get(o).has(t, "a little later than expected")
	s.reach(o, delivery.Delivered, 50*time.Minute)
	s.at(20 * time.Hour)
	s.get(o).has(t, "21 Nov 14:50")
	s.get(o, inTurkish).has(t, "21 Kas 14:50")
}

// A courier who promised an arrival and then waits for the package is not about
// to ring.
func TestPage_LeavesOutAnArrivalBeforeThePickup(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	s.report(o, time.Minute, delivery.Update{Kind: delivery.KindAccept, Status: delivery.Assigned,
		Courier: delivery.Courier{Name: "Mehmet Yılmaz"}, ETA: began.Add(5 * time.Minute)})
	s.at(6 * time.Minute)
	s.get(o).has(t, "Estimated pickup", "14:10").hasNot(t, "Estimated arrival", "any minute now")
}

// A store that cannot be found takes its name and place with it, and nothing
// else.
func TestPage_DoesWithoutAStore(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	s.reach(o, delivery.PickingUp, time.Minute)
	s.locate(o, delivery.Point{Latitude: 40.9726, Longitude: 29.0258}, 3*time.Minute)
	present, err := s.ledger.Order(context.Background(), o.ID)
	must(t, err)
	v := newView(&english, present, nil, began.Add(4*time.Minute))
	if v.Store != "" || v.Map == nil || len(v.Map.Marks) != 2 || v.Whereabouts != "" || v.Courier != "Mehmet Y." {
		t.Errorf("%+v", v)
	}
}

func TestPage_HeadersKeepTheLinkSecretAndThePageAlone(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	for _, path := range []string{pathOf(o), pathOf(o) + "/live", "/track/x", "/track/"} {
		got := s.do("GET", path)
		for name, value := range map[string]string{"Referrer-Policy": "no-referrer", "Cache-Control": "no-store", "X-Content-Type-Options": "nosniff",
			"X-Frame-Options": "DENY", "Content-Language": "en", "Vary": "Accept-Language", "Content-Type": "text/html; charset=utf-8",
			"X-Robots-Tag": "noindex, nofollow, noarchive", "Content-Security-Policy": policy} {
			if got.Header.Get(name) != value {
				t.Errorf("%s: %s is %q, want %q", path, name, got.Header.Get(name), value)
			}
		}
		if got.Header.Get("Set-Cookie") != "" {
			t.Errorf("%s sets a cookie", path)
		}
	}
	for _, part := range []string{"default-src 'none'", "frame-ancestors 'none'", "script-src 'self'", "style-src 'self'"} {
		if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
			t.Errorf("the policy is %s", policy)
		}
	}
	s.get(o).hasNot(t, " style=", "<style", "javascript:", " onclick", "http://", "https://www.g").
		has(t, `<meta name="robots" content="noindex, nofollow">`, `<meta name="referrer" content="no-referrer">`, `<noscript><meta http-equiv="refresh" content="30"></noscript>`)
	if page := s.get(o); len(page.text) > 40_000 {
		t.Errorf("the page has %d bytes", len(page.text))
	}
}

func TestPage_HeadAnswersWithoutABodyAndOtherMethodsAreRefused(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	o := s.order()
	head := s.do("HEAD", pathOf(o)).want(t, http.StatusOK)
	if head.text != "" || head.ContentLength != int64(len(s.get(o).text)) {
		t.Errorf("HEAD: %d bytes, length %d", len(head.text), head.ContentLength)
	}
	s.do("HEAD", "/track/x").want(t, http.StatusNotFound)
	for _, method := range []string{"POST", "PUT", "DELETE", "PATCH", "OPTIONS"} {
		for _, path := range []string{pathOf(o), pathOf(o) + "/live", "/track/x", "/track/assets/1/track.js"} {
			if got := s.do(method, path).want(t, http.StatusMethodNotAllowed, "This page can only be read"); got.Header.Get("Allow") != "GET, HEAD" {
				t.Errorf("%s %s: Allow is %q", method, path, got.Header.Get("Allow"))
			}
		}
	}
}

func TestAssets_AreKeptUnderTheirOwnHashOnly(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	page := s.get(s.order())
	for name, contentType := range map[string]string{"track.css": "text/css; charset=utf-8", "track.js": "text/javascript; charset=utf-8", "icon.svg": "image/svg+xml"} {
		page.has(t, `"assets/`+assetsHash+"/"+name+`"`)
		kept := s.do("GET", "/track/assets/"+assetsHash+"/"+name).want(t, http.StatusOK)
		other := s.do("GET", "/track/assets/0/"+name).want(t, http.StatusOK)
		if kept.Header.Get("Cache-Control") != "public, max-age=31536000, immutable" || other.Header.Get("Cache-Control") != "no-store" {
			t.Errorf("%s: %q and %q", name, kept.Header.Get("Cache-Control"), other.Header.Get("Cache-Control"))
		}
		if kept.Header.Get("Content-Type") != contentType || kept.text != other.text || kept.text == "" {
			t.Errorf("%s: %s, %d bytes", name, kept.Header.Get("Content-Type"), len(kept.text))
		}
	}
	s.do("GET", "/track/assets/"+assetsHash+"/page.html").want(t, http.StatusNotFound)
	// However deep, a page finds its files.
	s.do("GET", "/track/a/b/c").want(t, http.StatusNotFound, `href="../../assets/`+assetsHash+`/track.css"`)
}
