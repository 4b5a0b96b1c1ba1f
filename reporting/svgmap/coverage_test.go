package svgmap

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vendorapi/internal/delivery"
)

var kadikoy = delivery.Point{Latitude: 40.9903, Longitude: 29.0290}

func TestCountry_ShowsTurkeyAlone(t *testing.T) {
	t.Parallel()

	country, closeUp := both(t, nil)
	if len(country.Land) != 1 || len(country.Coverage) != 0 || closeUp != nil {
		t.Errorf("%d outlines, %d coverages, close-up %v", len(country.Land), len(country.Coverage), closeUp)
	}
	if country.Bar.Label != "500 km" {
		t.Errorf("the bar says %s", country.Bar.Label)
	}
}

// Edirne and Van are 1,450 km apart; the map says so within its promise.
func TestCountry_DistancesAreTrueWithinFourPerCent(t *testing.T) {
	t.Parallel()

	p := fit(polygonsOf(delivery.Turkey()).Bound(), countryWidth, countryHeight, coverageMargin/2, closeSpan)
	for name, pair := range map[string][2]delivery.Point{
		"Edirne-Kars":   {{Latitude: 41.6771, Longitude: 26.5557}, {Latitude: 40.6013, Longitude: 43.0975}},
		"Muğla-Hakkari": {{Latitude: 37.2153, Longitude: 28.3636}, {Latitude: 37.5744, Longitude: 43.7408}},
		"Sinop-Anamur":  {{Latitude: 42.0268, Longitude: 35.1551}, {Latitude: 36.0757, Longitude: 32.8337}},
	} {
		from, to := p.at(pointOf(pair[0])), p.at(pointOf(pair[1]))
		drawn := hypot(to[0]-from[0], to[1]-from[1]) / p.units(1)
		if ratio := drawn / Distance(pair[0], pair[1]); ratio < 0.955 || ratio > 1.045 {
			t.Errorf("%s is drawn %.3f times as long", name, ratio)
		}
	}
}

func TestCoverage_SmallOneIsRingedOnTheCountryAndLargeInTheCloseUp(t *testing.T) {
	t.Parallel()

	country, closeUp := both(t, coverage(t, [][][2]float64{ring(source(1), 12, kadikoy, 0.03)}))
	if len(country.Marks) != 1 || country.Marks[0].Kind != Locator {
		t.Errorf("marks of the country: %+v", country.Marks)
	}
	if len(closeUp.Marks) != 0 || len(closeUp.Coverage) != 1 || len(closeUp.Grid) < 8 || closeUp.Bar.Label != "2 km" {
		t.Errorf("close-up: %+v", closeUp)
	}
}

func TestCoverage_HolesStayHoles(t *testing.T) {
	t.Parallel()

	c := coverage(t, [][][2]float64{ring(source(1), 40, kadikoy, 0.3), ring(source(2), 10, kadikoy, 0.1)})
	_, closeUp := both(t, c)
	if got := strings.Count(closeUp.Coverage[0], "Z"); len(closeUp.Coverage) != 1 || got != 2 {
		t.Errorf("%d paths, %d rings in the first; want one with two", len(closeUp.Coverage), got)
	}
	if svg := draw(t, closeUp); !strings.Contains(svg, `class="map-coverage" fill-rule="evenodd"`) {
		t.Error("a hole would be filled")
	}
}

// The edges of what is possible: all must be drawn, none may be heavy.
func TestCoverage_DegenerateOnes(t *testing.T) {
	t.Parallel()

	at := func(longitude, latitude float64) [2]float64 { return [2]float64{longitude, latitude} }
	same := at(29, 41)
	islands := make([][][][2]float64, 0, 4000)
	for i := range 4000 {
		islands = append(islands, [][][2]float64{ring(source(uint64(i)), 4, delivery.Point{Latitude: 36 + float64(i%60)/10, Longitude: 26 + float64(i/60)/4}, 0.04)})
	}

	for name, c := range map[string]*delivery.Coverage{
		"a point":              coverage(t, [][][2]float64{{same, same, same, same}}),
		"a line":               coverage(t, [][][2]float64{{same, at(29.5, 41), at(29.2, 41), same}}),
		"a metre":              coverage(t, [][][2]float64{ring(source(1), 8, kadikoy, 0.00001)}),
		"the world":            coverage(t, [][][2]float64{{at(-180, -90), at(180, -90), at(180, 90), at(-180, 90), at(-180, -90)}}),
		"a pole":               coverage(t, [][][2]float64{{at(-180, 89.9), at(180, 89.9), at(0, 90), at(-180, 89.9)}}),
		"far from Turkey":      coverage(t, [][][2]float64{ring(source(1), 50, delivery.Point{Latitude: -54, Longitude: -68}, 1)}),
		"two ends":             coverage(t, [][][2]float64{ring(source(1), 8, kadikoy, 0.1)}, [][][2]float64{ring(source(2), 8, delivery.Point{Latitude: 38.5, Longitude: 43.4}, 0.1)}),
		"19,000 vertices":      coverage(t, [][][2]float64{ring(source(1), 19_000, kadikoy, 0.5)}),
		"4,000 islands":        coverage(t, islands...),
		"a comb of 10,000":     coverage(t, [][][2]float64{comb(10_000)}),
		"holes in hole's room": coverage(t, append([][][2]float64{ring(source(1), 4, kadikoy, 1)}, manyHoles(3000)...)),
	} {
		country, closeUp := both(t, c)
		if len(country.Coverage) == 0 || closeUp == nil || len(closeUp.Coverage) == 0 {
			t.Errorf("%s is not drawn", name)
		}
	}
}

// comb goes up and down, so that no corner is small.
func comb(n int) [][2]float64 {
	points := make([][2]float64, 0, n+1)
	for i := range n {
		points = append(points, [2]float64{28 + float64(i)/float64(n), 40 + float64(i%2)})
	}
	return append(points, points[0])
}

func manyHoles(n int) [][][2]float64 {
	holes := make([][][2]float64, 0, n)
	for i := range n {
		holes = append(holes, ring(source(uint64(i)), 4, delivery.Point{Latitude: 40.5 + float64(i%50)/50, Longitude: 28.5 + float64(i/50)/60}, 0.005))
	}
	return holes
}

// Whatever is covered: all within the view, no figure missing, and light.
func TestCoverage_IsAlwaysInViewAndLight(t *testing.T) {
	t.Parallel()

	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		polygons := make([][][][2]float64, rapid.IntRange(1, 5).Draw(t, "polygons"))
		for i := range polygons {
			at := delivery.Point{Latitude: rapid.Float64Range(-90, 90).Draw(t, "latitude"), Longitude: rapid.Float64Range(-180, 180).Draw(t, "longitude")}
			if rapid.Bool().Draw(t, "in Turkey") {
				at = delivery.Point{Latitude: 36 + 6*(at.Latitude+90)/180, Longitude: 26 + 18*(at.Longitude+180)/360}
			}

			for range rapid.IntRange(1, 3).Draw(t, "rings") {
				radius := rapid.SampledFrom([]float64{0, 1e-9, 1e-5, 0.001, 0.02, 0.5, 8, 100}).Draw(t, "radius")
				n := rapid.SampledFrom([]int{3, 4, 17, 300, 1200}).Draw(t, "points")
				polygons[i] = append(polygons[i], ring(source(seed+uint64(i)), n, at, radius))
			}
		}

		country, closeUp := both(t, coverage(t, polygons...))
		if len(country.Coverage) == 0 || len(closeUp.Coverage) == 0 {
			t.Fatalf("not drawn")
		}
	})
}

func TestSite_ShowsTheStoreWhereverItIs(t *testing.T) {
	t.Parallel()

	served := coverage(t, [][][2]float64{ring(source(1), 12, kadikoy, 0.05)})
	for name, c := range map[string]struct {
		coverage *delivery.Coverage
		store    delivery.Point
		marks    int
		bar      string
	}{
		"inside":           {served, kadikoy, 1, "2 km"},
		"far outside":      {served, delivery.Point{Latitude: 39.93, Longitude: 32.85}, 1, "50 km"},
		"without a fleet":  {nil, kadikoy, 1, "500 km"},
		"nowhere":          {served, delivery.Point{Latitude: math.NaN(), Longitude: 29}, 0, "2 km"},
		"nowhere, without": {nil, delivery.Point{Latitude: 91, Longitude: 29}, 0, "500 km"},
	} {
		m := Site(c.coverage, c.store, "title", "description")
		draw(t, m)
		if len(m.Marks) != c.marks || m.Bar.Label != c.bar || len(m.Land) == 0 || (len(m.Coverage) > 0) != (c.coverage != nil) {
			t.Errorf("%s: %d marks, bar %s, %d outlines, %d coverages", name, len(m.Marks), m.Bar.Label, len(m.Land), len(m.Coverage))
		}
	}
}

func TestCoverage_DrawingDoesNotChangeIt(t *testing.T) {
	t.Parallel()

	c := coverage(t, [][][2]float64{ring(source(1), 500, kadikoy, 0.3)})
	before := string(c.JSON())
	first, _ := both(t, c)
	second, _ := both(t, c)
	if string(c.JSON()) != before || first.Coverage[0] != second.Coverage[0] || first.Land[0] != second.Land[0] {
		t.Error("drawing twice gives two drawings")
	}
}
