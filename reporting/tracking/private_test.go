package tracking

import (
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
	"vendorapi/reporting/svgmap"
)

// coordinate finds a position written out.
var coordinate = regexp.MustCompile(`\b(40\.9|41\.0|29\.0)\d*`)

//rule:decisions/trackingUrl
func TestPrivacy_NothingOfTheRecipientIsShownInAnyStatus(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	look := func(o *delivery.Order) {
		t.Helper()
		for _, headers := range [][]string{nil, {inTurkish}} {
			for _, page := range []*testenv.Answer{e.get(o, headers...), e.renewed(o, headers...)} {
				page.Lacks(private...).Lacks(o.ExternalOrderID, o.ID.String(), e.courier.Phone, "Yılmaz", e.store.Phone, e.store.Address, e.store.TaxNumber)
				if found := coordinate.FindString(page.Text); found != "" {
					t.Errorf("%s: the coordinate %s", page.Request.URL, found)
				}
			}
		}
	}

	o := e.order()
	look(o)
	for status := delivery.Assigned; status <= delivery.Delivered; status++ {
		e.reach(o, status, time.Duration(status)*time.Minute)
		if !status.Terminal() {
			e.locate(o, o.Dropoff.Point, time.Duration(status)*time.Minute)
		}
		look(o)
	}

	failing := e.order()
	e.reach(failing, delivery.Delivering, time.Minute)
	e.fail(failing, delivery.PaymentRefused, 2*time.Minute)
	look(failing)
	e.get(failing).Lacks("ayment", "paid", "money")
	e.get(failing, inTurkish).Lacks("deme", "para")
	cancelled := e.order()
	e.cancel(cancelled, "zili çalmayın", time.Minute)
	look(cancelled)
}

// Two neighbours and a courier at the one's door: the map is the same.
func TestPrivacy_NeighboursLookAlikeOnTheMap(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	var maps []string
	for _, door := range []delivery.Point{{Latitude: 40.98812, Longitude: 29.03047}, {Latitude: 40.98771, Longitude: 29.02961}} {
		o := e.order(func(d *delivery.OrderDraft) { d.Dropoff.Point = door })
		e.reach(o, delivery.Delivering, time.Minute)
		e.locate(o, door, 2*time.Minute)
		page := e.renewed(o).Text
		from, to := strings.Index(page, "<svg"), strings.Index(page, "</svg>")
		maps = append(maps, page[from:to])
	}

	if maps[0] != maps[1] || maps[0] == "" {
		t.Errorf("two maps:\n%s\n%s", maps[0], maps[1])
	}
}

// A backup of before its end was restored, and its recipient was erased since.
func TestPrivacy_AnErasedOrderHasNoMap(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	o := e.order()
	e.reach(o, delivery.Delivering, time.Minute)
	must(t, e.Ledger.Erasure.Erase(t.Context(), map[delivery.OrderID]time.Time{o.ID: time.Now()}, true, func(string, int) {}))
	e.get(o).Lacks("<svg")
}

func TestCoarsely_MovesAPlaceByLessThanItSays(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		p := delivery.Point{Latitude: rapid.Float64Range(35.8, 42.2).Draw(t, "latitude"), Longitude: rapid.Float64Range(25.6, 44.9).Draw(t, "longitude")}
		at := coarsely(p)
		if moved := svgmap.Distance(p, at); moved > coarseMetres {
			t.Fatalf("%v is moved %v m", p, moved)
		}
		if again := coarsely(at); svgmap.Distance(at, again) > 0.001 {
			t.Fatalf("%v is moved again, to %v", at, again)
		}
		if off := math.Abs(at.Latitude/coarse - math.Round(at.Latitude/coarse)); off > 1e-6 {
			t.Fatalf("%v is on no square's middle", at)
		}
	})
}

// Markup in every field that a vendor or a fleet writes, and a stranger can read.
func TestXSS_IsTextEverywhere(t *testing.T) {
	t.Parallel()

	e := newEnv(t)
	for i, hostile := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `</title><script>x</script>`,
		`{{.Token}}`, `javascript:alert(1)`, `</bdi><iframe>`, "\u202eters yazı", `&lt;b&gt;`, `" onmouseover="x`,
	} {
		e.rename("S"+hostile, "F"+hostile)
		e.courier.Name, e.courier.VehicleType = "C"+hostile, hostile[:min(len(hostile), 32)]
		o := e.order()
		e.reach(o, delivery.Delivering, time.Minute)
		e.locate(o, e.store.Point, 2*time.Minute)
		for _, page := range []*testenv.Answer{e.get(o), e.renewed(o, inTurkish)} {
			page.Harmless("assets/" + assetFiles.Hash + "/")
			var said []string
			for n := range page.Tree().Descendants() {
				if n.Type == html.TextNode {
					said = append(said, n.Data)
				}
			}

			for _, want := range []string{"S" + hostile, "F" + hostile, delivery.AbbreviateName(e.courier.Name), e.courier.VehicleType} {
				if !slices.Contains(said, want) {
					t.Errorf("%d: %q is not shown as it was written", i, want)
				}
			}
		}
	}
}
