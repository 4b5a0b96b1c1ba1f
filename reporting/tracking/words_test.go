package tracking

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"vendorapi/internal/delivery"
)

// reached is from which status an order fails with each of the reasons.
var reached = map[delivery.FailureReason]delivery.Status{
	delivery.NoCourierFound: delivery.Searching, delivery.TimedOut: delivery.Searching, delivery.StoreClosed: delivery.Assigned,
	delivery.PackageNotReady: delivery.PickingUp, delivery.CourierIncident: delivery.PickedUp, delivery.PackageDamaged: delivery.Delivering,
	delivery.AddressNotFound: delivery.Delivering, delivery.CustomerUnreachable: delivery.Delivering, delivery.CustomerRefused: delivery.Delivering,
	delivery.PaymentRefused: delivery.Delivering, delivery.OtherFailure: delivery.Delivering,
}

func TestWords_SayEveryStatusAndEveryReasonInBothLanguages(t *testing.T) {
	t.Parallel()

	for _, w := range []*words{english, turkish} {
		for name := range english.Text {
			if w.Text[name] == "" || len(w.Text) != len(english.Text) || strings.Count(w.Text[name], "%") != strings.Count(english.Text[name], "%") {
				t.Errorf("%s: %s is %q", w.Language, name, w.Text[name])
			}
		}

		for _, why := range []result{unknown, expired, unavailable, failed, readOnly} {
			if n := w.Notices[why]; n.Title == "" || n.Text == "" {
				t.Errorf("%s: the notice %s is %+v", w.Language, why, n)
			}
		}

		for status := delivery.Searching; status <= delivery.Cancelled; status++ {
			said, ok := w.Statuses[status.String()]
			if !ok || said.Step == "" || said.Headline == "" || (said.Detail == "") != (status == delivery.Failed) {
				t.Errorf("%s: %s is %+v", w.Language, status, said)
			}
		}

		if len(w.Statuses) != int(delivery.Cancelled) {
			t.Errorf("%s has %d statuses", w.Language, len(w.Statuses))
		}

		said := make(map[string]bool)
		for reason := range reached {
			said[w.Failures[reason]] = true
		}

		if said[""] || len(said) != len(reached) || len(w.Failures) != len(reached) {
			t.Errorf("%s says %d of %d reasons, each in other words", w.Language, len(said), len(reached))
		}
		if w.failure("SomethingNew") != w.Failures[delivery.OtherFailure] {
			t.Errorf("%s has no words for a reason to come", w.Language)
		}
	}
}

func TestWordsFor_FollowsTheBrowser(t *testing.T) {
	t.Parallel()

	for asked, want := range map[string]string{"": "en", "tr": "tr", "tr-TR,tr;q=0.9,en-US;q=0.8": "tr", "en-GB,en;q=0.9,tr;q=0.8": "en",
		"de-DE,de;q=0.9": "en", "de,tr;q=0.5": "tr", "*": "en", "not a language at all;;;": "en", strings.Repeat("tr,", 400): "en"} {
		r := &http.Request{Header: http.Header{"Accept-Language": {asked}}}
		if got := wordsFor(r).Language; got != want {
			t.Errorf("%.60q: %s, want %s", asked, got, want)
		}
	}
}

func TestWords_OfTimesAndDistances(t *testing.T) {
	t.Parallel()

	check := func(got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}

	for d, want := range map[time.Duration]string{-time.Hour: "just now", 0: "just now", 4 * time.Second: "just now", 5 * time.Second: "5 s ago",
		59 * time.Second: "59 s ago", time.Minute: "1 min ago", 59 * time.Minute: "59 min ago", 3 * time.Hour: "3 h ago"} {
		check(english.age(d), want)
	}

	for d, want := range map[time.Duration]string{-time.Hour: "a little later than expected", -2 * time.Minute: "any minute now", 89 * time.Second: "any minute now",
		90 * time.Second: "in about 2 min", 25*time.Minute + 29*time.Second: "in about 25 min", 118 * time.Minute: "in about 1 h 58 min"} {
		check(english.until(d), want)
	}

	for metres, want := range map[float64]string{0: "0 m", 149: "100 m", 150: "200 m", 949: "900 m", 951: "1,0 km", 1249: "1,2 km", 9949: "9,9 km", 9951: "10 km", 500_000: "500 km"} {
		check(turkish.distance(metres), want)
	}

	door := delivery.Point{Latitude: 41, Longitude: 29}
	for north, want := range map[float64]string{0.0013: "Your courier is close by.", 0.0014: "Your courier is about 200 m away."} { // 145 and 156 m
		courier := delivery.Point{Latitude: door.Latitude + north, Longitude: door.Longitude}
		check(whereabouts(english, delivery.Delivering, courier, door, nil), want)
	}

	check(turkish.clock(began, began.Add(9*time.Hour)), "14:00")
	check(turkish.clock(began, began.Add(10*time.Hour)), "21 Kas 14:00")
	check(english.clock(began.Add(365*24*time.Hour), began), "21 Nov 14:00")
	check(english.vehicle("MOTORCYCLE"), "Motorcycle")
	check(turkish.vehicle("Elektrikli bisiklet"), "Elektrikli bisiklet")
}
