package tracking

import (
	"context"
	"math"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/html"
	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
	"vendorapi/reporting/drawing"
)

// coordinate finds a position written out.
var coordinate = regexp.MustCompile(`\b(40\.9|41\.0|29\.0)\d*`)

//rule:decisions/trackingUrl
func TestPrivacy_NothingOfTheRecipientIsShownInAnyStatus(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	look := func(o *delivery.Order) {
		t.Helper()
		for _, headers := range [][]string{nil, {inTurkish}} {
			for _, page := range []answer{s.get(o, headers...), s.renewed(o, headers...)} {
				page.hasNot(t, private...).hasNot(t, o.ExternalOrderID, o.ID.String(), s.courier.Phone, "Yılmaz", s.store.Phone, s.store.Address, s.store.TaxNumber)
				if found := coordinate.FindString(page.text); found != "" {
					t.Errorf("%s: the coordinate %s", page.Request.URL, found)
				}
			}
		}
	}
	o := s.order()
	look(o)
	for status := delivery.Assigned; status <= delivery.Delivered; status++ {
		s.reach(o, status, time.Duration(status)*time.Minute)
		if !status.Terminal() {
			s.locate(o, o.Dropoff.Point, time.Duration(status)*time.Minute)
		}
		look(o)
	}
	failing := s.order()
	s.reach(failing, delivery.Delivering, time.Minute)
	s.fail(failing, delivery.PaymentRefused, 2*time.Minute)
	look(failing)
	s.get(failing).hasNot(t, "ayment", "paid", "money")
	s.get(failing, inTurkish).hasNot(t, "deme", "para")
	cancelled := s.order()
	_, _, err := s.ledger.CancelOrder(context.Background(), s.store.Account, cancelled.ID, delivery.CustomerRequest, "zili çalmayın", began.Add(time.Minute))
	must(t, err)
	look(cancelled)
}

// Two neighbours and a courier at the one's door: the map is the same.
func TestPrivacy_NeighboursLookAlikeOnTheMap(t *testing.T) {
	t.Parallel()
	s := newScene(t)
	var maps []string
	for _, door := range []delivery.Point{{Latitude: 40.98812, Longitude: 29.03047}, {Latitude: 40.98771, Longitude: 29.02961}} {
		o := s.order(func(d *delivery.OrderDraft) { d.Dropoff.Point = door })
		s.reach(o, delivery.Delivering, time.Minute)
		s.locate(o, door, 2*time.Minute)
		page := s.renewed(o).text
		from, to := strings.Index(page, "<svg"), strings.Index(page, "</svg>")
		maps = append(maps, page[from:to])
	}
	if maps[0] != maps[1] || maps[0] == "" {
		t.Errorf("two maps:\n%s\n%s", maps[0], maps[1])
	}
}

func TestCoarsely_MovesAPlaceByLessThanItSays(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		p := delivery.Point{Latitude: rapid.Float64Range(35.8, 42.2).Draw(t, "latitude"), Longitude: rapid.Float64Range(25.6, 44.9).Draw(t, "longitude")}
		at := coarsely(p)
		if moved := drawing.Distance(p, at); moved > coarseMetres {
			t.Fatalf("%v is moved %v m", p, moved)
		}
		if again := coarsely(at); drawing.Distance(at, again) > 0.001 {
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
	for i, hostile := range []string{
		`<script>alert(1)</script>`, `"><img src=x onerror=alert(1)>`, `'><svg/onload=alert(1)>`, `</title><script>x</script>`,
		`{{.Token}}`, `javascript:alert(1)`, `</bdi><iframe>`, "\u202eters yazı", `&lt;b&gt;`, `" onmouseover="x`,
	} {
		s := newScene(t, func(s *scene) {
			s.store.Name, s.fleet.Name = "S"+hostile, "F"+hostile
			s.courier.Name, s.courier.VehicleType = "C"+strings.ReplaceAll(hostile, " ", "_"), hostile[:min(len(hostile), 32)]
		})
		o := s.order()
		s.reach(o, delivery.Delivering, time.Minute)
		s.locate(o, s.store.Point, 2*time.Minute)
		for _, page := range []answer{s.get(o), s.renewed(o, inTurkish)} {
			said := onlyOurs(t, page)
			for _, want := range []string{"S" + hostile, "F" + hostile, s.courier.Name, s.courier.VehicleType} {
				if !slices.Contains(said, want) {
					t.Errorf("%d: %q is not shown as it was written", i, want)
				}
			}
		}
	}
}

// onlyOurs refuses every element and attribute that is not the page's own, and
// answers its texts.
func onlyOurs(t *testing.T, page answer) (texts []string) {
	t.Helper()
	tokens := html.NewTokenizer(strings.NewReader(page.text))
	for {
		switch kind := tokens.Next(); kind {
		case html.ErrorToken:
			return texts
		case html.TextToken:
			texts = append(texts, tokens.Token().Data)
		case html.StartTagToken, html.SelfClosingTagToken:
			tag := tokens.Token()
			switch tag.Data {
			case "img", "iframe", "object", "embed", "style", "form", "base":
				t.Errorf("an element %s", tag)
			}
			for _, a := range tag.Attr {
				if strings.HasPrefix(a.Key, "on") || a.Key == "style" || tag.Data == "script" && a.Key == "src" && a.Val != "assets/"+assetsHash+"/track.js" {
					t.Errorf("an attribute %s of %s", a.Key, tag)
				}
			}
			if tag.Data == "script" && (len(tag.Attr) != 2 || tokens.Next() != html.EndTagToken) {
				t.Errorf("a script of its own: %s", tag)
			}
		}
	}
}
