package svgmap

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

func hypot(x, y float64) float64 { return math.Hypot(x, y) }

// moved is a point some metres to the north and the east of another.
func moved(from delivery.Point, north, east float64) *delivery.Point {
	return &delivery.Point{Latitude: from.Latitude + north/metresPerDegree, Longitude: from.Longitude + east/metresPerDegree/cosine(from.Latitude)}
}

func TestSurroundings_FitAtEveryDistance(t *testing.T) {
	t.Parallel()

	for metres, bar := range map[float64]string{0: "200 m", 1: "200 m", 100: "200 m", 1500: "500 m", 20_000: "5 km", 500_000: "100 km", 9_000_000: "2000 km"} {
		m := Surroundings(Places{Store: &kadikoy, Dropoff: moved(kadikoy, 0, metres/2), Courier: moved(kadikoy, 0, metres), Blur: 100}, "t", "d")
		draw(t, m)
		if len(m.Marks) != 3 || len(m.Way) != 1 || m.Bar.Label != bar {
			t.Errorf("%v m: %d marks, %d ways, bar %s; want bar %s", metres, len(m.Marks), len(m.Way), m.Bar.Label, bar)
		}

		if metres >= 1500 && metres < 1e6 {
			across := m.Marks[2].X - m.Marks[1].X
			if said := across / (m.Bar.X2 - m.Bar.X1) * m.Bar.Metres; math.Abs(said/metres-1) > 0.02 {
				t.Errorf("%v m measure %.0f m by the scale bar", metres, said)
			}
			if across < placesWidth-2*placesMargin-1 {
				t.Errorf("%v m fill %v units only", metres, across)
			}
		}
	}
}

func TestSurroundings_NorthIsUpAndEastIsRight(t *testing.T) {
	t.Parallel()
	m := Surroundings(Places{Store: &kadikoy, Courier: moved(kadikoy, 700, 300)}, "", "")
	store, courier := m.Marks[0], m.Marks[1]
	if courier.Y >= store.Y || courier.X <= store.X {
		t.Errorf("the courier is at %v %v, the store at %v %v", courier.X, courier.Y, store.X, store.Y)
	}
}

func TestSurroundings_WhatIsNotKnownIsNotDrawn(t *testing.T) {
	t.Parallel()

	nowhere := []delivery.Point{{Latitude: math.NaN(), Longitude: 29}, {Latitude: 41, Longitude: math.Inf(1)}, {Latitude: 91, Longitude: 29}, {Latitude: 41, Longitude: -181}}
	for _, p := range nowhere {
		if m := Surroundings(Places{Store: &p, Dropoff: &p, Courier: &p}, "", ""); m != nil {
			t.Errorf("%v is drawn: %+v", p, m)
		}
		m := Surroundings(Places{Store: &kadikoy, Courier: &p}, "", "")
		draw(t, m)
		if len(m.Marks) != 1 {
			t.Errorf("%v is drawn: %+v", p, m.Marks)
		}
	}

	if Surroundings(Places{}, "", "") != nil {
		t.Error("a map of nothing")
	}
}

func TestSurroundings_BlurAndLostCourier(t *testing.T) {
	t.Parallel()

	m := Surroundings(Places{Store: &kadikoy, Dropoff: moved(kadikoy, 900, 0), Courier: moved(kadikoy, 300, 0), Blur: 100, Lost: true}, "", "")
	svg := draw(t, m)
	if m.Marks[0].Kind != Dropoff || m.Marks[0].Radius < leastBlur || m.Marks[2].Kind != Lost {
		t.Errorf("%+v", m.Marks)
	}

	for _, part := range []string{`class="map-lost"`, `class="map-around"`, `class="map-store"`, `class="map-dropoff"`} {
		if !strings.Contains(svg, part) {
			t.Errorf("no %s", part)
		}
	}

	exact := Surroundings(Places{Dropoff: &kadikoy}, "", "")
	if exact.Marks[0].Radius != 0 || strings.Contains(draw(t, exact), "map-around") {
		t.Error("an exact place has a circle")
	}
}

func TestMap_WordsAreText(t *testing.T) {
	t.Parallel()

	svg := draw(t, Surroundings(Places{Store: &kadikoy}, `</title><script>x</script>`, `"><img onerror=x>`))
	if strings.Contains(svg, "<script") || strings.Contains(svg, "<img") || !strings.Contains(svg, "&lt;script") {
		t.Error(svg)
	}
	if !strings.Contains(svg, `role="img"`) {
		t.Error("no role")
	}
	if strings.Contains(draw(t, Surroundings(Places{Store: &kadikoy}, "", "")), "<title>") {
		t.Error("an empty title")
	}
}

func TestSurroundings_AreAlwaysInView(t *testing.T) {
	t.Parallel()

	point := rapid.Custom(func(t *rapid.T) *delivery.Point {
		if rapid.IntRange(0, 4).Draw(t, "known") == 0 {
			return nil
		}
		if rapid.Bool().Draw(t, "near") {
			return moved(kadikoy, rapid.Float64Range(-3000, 3000).Draw(t, "north"), rapid.Float64Range(-3000, 3000).Draw(t, "east"))
		}
		return &delivery.Point{Latitude: rapid.Float64().Draw(t, "latitude"), Longitude: rapid.Float64().Draw(t, "longitude")}
	})

	rapid.Check(t, func(t *rapid.T) {
		m := Surroundings(Places{Store: point.Draw(t, "store"), Dropoff: point.Draw(t, "drop-off"), Courier: point.Draw(t, "courier"),
			Blur: rapid.SampledFrom([]float64{0, 1, 100, 5000}).Draw(t, "blur")}, "t", "d")
		if m != nil {
			draw(t, m)
		}
	})
}

func TestDistance(t *testing.T) {
	t.Parallel()
	for metres, to := range map[float64]*delivery.Point{0: moved(kadikoy, 0, 0), 500: moved(kadikoy, 300, 400), 50_000: moved(kadikoy, 50_000, 0)} {
		if got := Distance(kadikoy, *to); math.Abs(got-metres) > 0.005*metres+0.01 {
			t.Errorf("%v m measure %v", metres, got)
		}
	}
}
