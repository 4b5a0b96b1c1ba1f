package delivery

import (
	"encoding/json"
	"math"
	"testing"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/geo"
	"github.com/paulmach/orb/planar"
	"github.com/tidwall/geojson/geometry"
	"pgregory.net/rapid"
)

//rule:order-creation-request/dropoff.latitude order-creation-request/dropoff.longitude errors/COORDINATE_MISMATCH decisions/inside-turkey
func TestInTurkey_KnowsItsCitiesAndItsNeighbours(t *testing.T) {
	for name, p := range map[string]Point{
		"Kadıköy": {40.9903, 29.0290}, "Büyükada": {40.8575, 29.1280}, "Heybeliada": {40.8770, 29.0930}, "Avşa": {40.5140, 27.4960},
		"Marmara": {40.5870, 27.5540}, "Cunda": {39.3400, 26.6560}, "Çeşme": {38.3233, 26.3030}, "Datça": {36.7270, 27.6870},
		"Bodrum": {37.0344, 27.4305}, "Gökçeada": {40.1950, 25.9060}, "Gökçeada's west cape": {40.1170, 25.6700}, "Bozcaada": {39.8350, 26.0710},
		"Edirne": {41.6771, 26.5557}, "Kapıkule": {41.7180, 26.3500}, "İpsala": {40.9190, 26.3830}, "Kilis": {36.7184, 37.1150},
		"Hopa": {41.3900, 41.4190}, "Sarp": {41.5170, 41.5480}, "Kaş": {36.2010, 29.6380}, "Sultanahmet": {41.0082, 28.9784},
		"Ankara": {39.9334, 32.8597}, "İzmir": {38.4237, 27.1428}, "Antalya": {36.8969, 30.7133}, "Adana": {37.0000, 35.3213},
		"Van": {38.4942, 43.3800}, "Hakkari": {37.5744, 43.7408}, "Iğdır": {39.9237, 44.0450}, "Sinop": {42.0268, 35.1551},
		"Antakya": {36.2021, 36.1604}, "Yayladağı": {35.9020, 36.0600}, "Nusaybin": {37.0750, 41.2150}, "Cizre": {37.3320, 42.1860},
		"Akçakale": {36.7130, 38.9490}, "Doğubayazıt": {39.5470, 44.0840}, "Ceylanpınar": {36.8470, 40.0500}, "Trabzon": {41.0027, 39.7168},
	} {
		check(t, InTurkey(p), "%s is refused", name)
	}

	for name, p := range map[string]Point{
		"Chios": {38.3680, 26.1360}, "Meis": {36.1500, 29.5900}, "Girne": {35.3364, 33.3182}, "Lefkoşa": {35.1856, 33.3823},
		"Batumi": {41.6168, 41.6367}, "Plovdiv": {42.1354, 24.7453}, "Athens": {37.9838, 23.7275}, "Mytilene": {39.1040, 26.5550},
		"Rhodes": {36.4340, 28.2170}, "Kos": {36.8930, 27.2880}, "Vathy": {37.7540, 26.9770}, "Aleppo": {36.2021, 37.1343},
		"Azaz": {36.5860, 37.0440}, "Qamishli": {37.0380, 41.2310}, "Zakho": {37.1440, 42.6820}, "Svilengrad": {41.7670, 26.2000},
		"Alexandroupoli": {40.8470, 25.8740}, "Gyumri": {40.7890, 43.8470}, "Yerevan": {40.1776, 44.5126}, "Maku": {39.2950, 44.5160},
		"Burgas": {42.5048, 27.4626}, "Tbilisi": {41.7151, 44.8271}, "London": {51.5072, -0.1276}, "null island": {0, 0},
		"İstanbul with swapped coordinates": {28.9784, 41.0082}, "İstanbul in the west": {41.0082, -28.9784}, "the north pole": {90, 0},
		"NaN": {math.NaN(), 29}, "NaN east": {41, math.NaN()}, "infinity": {math.Inf(1), 29}, "infinitely far west": {41, math.Inf(-1)},
	} {
		check(t, !InTurkey(p), "%s is accepted", name)
	}
}

// TestInTurkey_ToleratesAKilometre compares with an outline that knows no
// ellipsoid and no shortcuts, at points within 2.5 km of the outline. The
// reference is a sphere, so the last half per cent is left open.
//
//rule:decisions/inside-turkey
func TestInTurkey_ToleratesAKilometre(t *testing.T) {
	ring := turkeyRing(t)
	decided := map[bool]int{}
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(ring)-2).Draw(t, "edge")
		along := rapid.Float64Range(0, 1).Draw(t, "along")
		at := between(ring[i], ring[i+1], along)
		at[0] += rapid.Float64Range(-0.028, 0.028).Draw(t, "east")
		at[1] += rapid.Float64Range(-0.0225, 0.0225).Draw(t, "north")
		want := planar.RingContains(ring, at)
		if !want {
			metres := distanceToRing(ring, at)
			if math.Abs(metres-turkeyTolerance) < 0.005*turkeyTolerance {
				return
			}
			want = metres <= turkeyTolerance
		}

		decided[want]++
		got := InTurkey(Point{Latitude: at[1], Longitude: at[0]})
		require(t, got == want, "%v is %.0f m from the outline: got %v", at, distanceToRing(ring, at), got)
	})

	check(t, decided[true] != 0 && decided[false] != 0, "the points lie on one side only: %v", decided)
}

// The tolerance of the WGS 84 ellipsoid, at places where it is easy to compute.
//
//rule:decisions/inside-turkey
func TestInTurkey_ToleranceIsExact(t *testing.T) {
	south := geometry.Segment{A: geometry.Point{X: 30, Y: 37}, B: geometry.Point{X: 31, Y: 37}}
	east := geometry.Segment{A: geometry.Point{X: 30, Y: 40}, B: geometry.Point{X: 30, Y: 41}}
	corner := geometry.Segment{A: geometry.Point{X: 30, Y: 40}, B: geometry.Point{X: 30.5, Y: 40.5}}
	// A degree of latitude is 110.978 km at 37° and 111.035 km at 40°, one of
	// longitude 84.768 km at 40.5°.
	for name, c := range map[string]struct {
		edge geometry.Segment
		p    Point
		want bool
	}{
		"999 m south":  {south, Point{37 - 0.999/110.978, 30.5}, true},
		"1001 m south": {south, Point{37 - 1.001/110.978, 30.5}, false},
		"999 m east":   {east, Point{40.5, 30 + 0.999/84.768}, true},
		"1001 m east":  {east, Point{40.5, 30 + 1.001/84.768}, false},
		"before a":     {corner, Point{40 - 0.999/111.035, 30}, true},
		"beyond a":     {corner, Point{40 - 1.001/111.035, 30}, false},
	} {
		got := distance(c.edge, c.p) <= turkeyTolerance
		check(t, got == c.want, "%s: got %v", name, got)
	}
}

func TestIsNearTurkey_LeavesTwoDegreesAroundIt(t *testing.T) {
	for name, c := range map[string]struct {
		p    Point
		want bool
	}{
		"Kadıköy":            {Point{40.99, 29.03}, true},
		"the sea off Hatay":  {Point{36, 35.5}, true},
		"Nicosia":            {Point{35.18, 33.36}, true},
		"0, 0":               {Point{}, false},
		"almost 0, 0":        {Point{1e-9, -1e-9}, false},
		"the south pole":     {Point{-89.9, 29}, false},
		"Berlin":             {Point{52.52, 13.4}, false},
		"a latitude alone":   {Point{40.99, 0}, false},
		"a longitude alone":  {Point{0, 29.03}, false},
		"Kadıköy, swapped":   {Point{29.03, 40.99}, false},
		"no numbers":         {Point{math.NaN(), math.NaN()}, false},
		"just inside":        {Point{turkey.bounds.Min.Y - 1.99, 35}, true},
		"just outside":       {Point{turkey.bounds.Min.Y - 2.01, 35}, false},
		"just too far east":  {Point{39, turkey.bounds.Max.X + 2.01}, false},
		"just too far west":  {Point{39, turkey.bounds.Min.X - 2.01}, false},
		"just too far north": {Point{turkey.bounds.Max.Y + 2.01, 35}, false},
	} {
		check(t, IsNearTurkey(c.p) == c.want, "%s: %v", name, !c.want)
	}
}

func TestTurkey_IsTheEmbeddedOneAndTheCallersOwn(t *testing.T) {
	want := turkeyRing(t)
	for range 2 { // the second time after the first copy was spoilt
		rings := Turkey().Polygons()[0]
		require(t, len(rings) == 1 && len(rings[0]) == len(want), "%d rings", len(rings))
		for i, p := range rings[0] {
			require(t, p == (Point{Latitude: want[i][1], Longitude: want[i][0]}) && InTurkey(p), "point %d is %v, want %v, inside", i, p, want[i])
			rings[0][i] = Point{}
		}
	}

	check(t, InTurkey(Point{Latitude: 39.9334, Longitude: 32.8597}), "who draws the outline has moved the border")
}

func turkeyRing(t *testing.T) orb.Ring {
	var shape struct{ Coordinates [][]orb.Ring }
	err := json.Unmarshal(turkeyGeoJSON, &shape)
	must(t, err)
	require(t, len(shape.Coordinates) == 1 && len(shape.Coordinates[0]) == 1, "the outline is no longer one ring")
	return shape.Coordinates[0][0]
}

// distanceToRing is metres on a sphere from p to the ring, by search.
func distanceToRing(ring orb.Ring, p orb.Point) float64 {
	nearest := math.Inf(1)
	for i := 1; i < len(ring); i++ {
		if !(orb.LineString{ring[i-1], ring[i]}).Bound().Pad(0.1).Contains(p) {
			continue
		}

		low, high := 0.0, 1.0
		for range 80 {
			a, b := low+(high-low)/3, high-(high-low)/3
			if geo.DistanceHaversine(p, between(ring[i-1], ring[i], a)) < geo.DistanceHaversine(p, between(ring[i-1], ring[i], b)) {
				high = b
			} else {
				low = a
			}
		}

		nearest = min(nearest, geo.DistanceHaversine(p, between(ring[i-1], ring[i], low)))
	}

	return nearest
}

func between(a, b orb.Point, along float64) orb.Point {
	return orb.Point{a[0] + (b[0]-a[0])*along, a[1] + (b[1]-a[1])*along}
}
