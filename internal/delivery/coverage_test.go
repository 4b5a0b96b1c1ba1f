package delivery

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/planar"
	"pgregory.net/rapid"
)

const (
	square   = `[[28,40],[30,40],[30,42],[28,42],[28,40]]`
	hole     = `[[28.5,40.5],[28.5,41.5],[29.5,41.5],[29.5,40.5],[28.5,40.5]]`
	far      = `[[32,39],[33,39],[33,40],[32,39]]`
	donut    = `{"type":"Polygon","coordinates":[` + square + `,` + hole + `]}`
	twoParts = `{"type":"MultiPolygon","coordinates":[[` + square + `,` + hole + `],[` + far + `]]}`
)

func TestCoverage_ContainsWhatItEncloses(t *testing.T) {
	both, err := ParseCoverage([]byte(twoParts))
	must(t, err)
	one, err := ParseCoverage([]byte(donut))
	must(t, err)
	for _, c := range []struct {
		p         Point
		one, both bool
	}{
		{Point{40.2, 28.2}, true, true},   // between border and hole
		{Point{41, 29}, false, false},     // in the hole
		{Point{39.2, 32.7}, false, true},  // in the second part
		{Point{39.9, 32.1}, false, false}, // in its box only
		{Point{40, 29}, true, true},       // on the border
		{Point{40, 28}, true, true},       // on a corner
		{Point{41, 28.5}, true, true},     // on the border of the hole
		{Point{38, 29}, false, false},     // south
		{Point{41, 31}, false, false},     // between the parts
		{Point{29, 41}, false, false},     // swapped
		{Point{math.NaN(), 29}, false, false},
		{Point{41, math.Inf(1)}, false, false},
	} {
		if got := one.Contains(c.p); got != c.one {
			t.Errorf("polygon, %v: got %v", c.p, got)
		}
		if got := both.Contains(c.p); got != c.both {
			t.Errorf("multipolygon, %v: got %v", c.p, got)
		}
	}

	low, high := both.bounds.Min, both.bounds.Max
	check(t, low.Y == 39 && low.X == 28 && high.Y == 42 && high.X == 33, "bounds %v %v", low, high)
}

func TestCoverage_KeepsItsJSON(t *testing.T) {
	given := "{ \"type\" : \"Polygon\", \"bbox\": [28, 40, 30, 42],\n \"coordinates\": [" + square + "] }"
	c, err := ParseCoverage([]byte(given))
	must(t, err)
	want := `{"type":"Polygon","bbox":[28,40,30,42],"coordinates":[` + square + `]}`
	check(t, string(c.JSON()) == want, "got  %s\nwant %s", c.JSON(), want)
}

func TestParseCoverage_RefusesWhatIsNoArea(t *testing.T) {
	polygon := func(ring string) string { return `{"type":"Polygon","coordinates":[` + ring + `]}` }
	for name, c := range map[string]struct{ in, want string }{
		"nothing":            {``, "no JSON object"},
		"no JSON":            {`{"type":`, "no JSON object"},
		"null":               {`null`, "not \"\""},
		"an array":           {`[]`, "no JSON object"},
		"a point":            {`{"type":"Point","coordinates":[28,40]}`, `not "Point"`},
		"a feature":          {`{"type":"Feature","geometry":` + donut + `}`, `not "Feature"`},
		"case of a name":     {`{"Type":"Polygon","coordinates":[` + square + `]}`, `not ""`},
		"no type":            {`{"type":5,"coordinates":[` + square + `]}`, `not ""`},
		"case of the type":   {`{"type":"polygon","coordinates":[` + square + `]}`, `not "polygon"`},
		"no coordinates":     {`{"type":"Polygon"}`, "no coordinates"},
		"null coordinates":   {`{"type":"Polygon","coordinates":null}`, "has no ring"},
		"no ring":            {`{"type":"Polygon","coordinates":[]}`, "has no ring"},
		"no polygon":         {`{"type":"MultiPolygon","coordinates":[]}`, "no polygon"},
		"polygon as multi":   {`{"type":"MultiPolygon","coordinates":[` + square + `]}`, "shape of a MultiPolygon"},
		"multi as polygon":   {`{"type":"Polygon","coordinates":[[` + square + `]]}`, "shape of a Polygon"},
		"empty part":         {`{"type":"MultiPolygon","coordinates":[[` + square + `],[]]}`, "polygon 2: it has no ring"},
		"three positions":    {polygon(`[[28,40],[30,40],[28,40]]`), "it has 3 positions"},
		"not closed":         {polygon(`[[28,40],[30,40],[30,42],[28,42]]`), "not closed"},
		"not closed hole":    {polygon(square + `,[[28,40],[30,40],[30,42],[28,42]]`), "ring 2: it is not closed"},
		"null position":      {polygon(`[[28,40],null,[30,42],[28,40]]`), "position 2 is not"},
		"null longitude":     {polygon(`[[28,40],[null,40],[30,42],[28,40]]`), "position 2 is not"},
		"one number":         {polygon(`[[28,40],[30],[30,42],[28,40]]`), "position 2 is not"},
		"a string":           {polygon(`[[28,40],["30",40],[30,42],[28,40]]`), "shape of a Polygon"},
		"NaN":                {polygon(`[[28,40],[NaN,40],[30,42],[28,40]]`), "no JSON object"},
		"longitude of 181":   {polygon(`[[28,40],[181,40],[30,42],[28,40]]`), "position 2, [181, 40]"},
		"latitude of -91":    {polygon(`[[28,40],[30,-91],[30,42],[28,40]]`), "position 2, [30, -91]"},
		"beyond a float":     {polygon(`[[28,40],[1e999,40],[30,42],[28,40]]`), "shape of a Polygon"},
		"something after it": {donut + `x`, "no JSON object"},
	} {
		got, err := ParseCoverage([]byte(c.in))
		check(t, err != nil && got == nil && strings.Contains(err.Error(), c.want), "%s: got %v, want %q", name, err, c.want)
	}
}

func TestParseCoverage_BoundsSizeAndPoints(t *testing.T) {
	if _, err := ParseCoverage(circle(20_000, 0.5)); err != nil {
		t.Errorf("20,000 vertices: %v", err)
	}
	if _, err := ParseCoverage(circle(20_001, 0.5)); err == nil || !strings.Contains(err.Error(), "more than 20000 vertices") {
		t.Errorf("20,001 vertices: %v", err)
	}

	half := strings.TrimSuffix(strings.TrimPrefix(string(circle(10_001, 0.5)), `{"type":"Polygon","coordinates":`), `}`)
	if _, err := ParseCoverage([]byte(`{"type":"MultiPolygon","coordinates":[` + half + `,` + half + `]}`)); err == nil || !strings.Contains(err.Error(), "more than 20000 vertices") {
		t.Errorf("two parts of 10,001 vertices: %v", err)
	}

	padded := donut + strings.Repeat(" ", maxCoverageBytes-len(donut))
	if _, err := ParseCoverage([]byte(padded)); err != nil {
		t.Errorf("1 MB: %v", err)
	}
	if _, err := ParseCoverage([]byte(padded + " ")); err == nil || !strings.Contains(err.Error(), "1048577 bytes") {
		t.Errorf("1 MB and a byte: %v", err)
	}
}

// circle is a polygon of n positions around İstanbul.
func circle(n int, radius float64) []byte {
	return star(n, func(int) float64 { return radius })
}

func star(n int, radius func(i int) float64) []byte {
	ring := make([][2]float64, n)
	for i := range ring {
		angle := 2 * math.Pi * float64(i) / float64(n-1)
		r := radius(i)
		ring[i] = [2]float64{29 + math.Round(r*math.Cos(angle)*1e5)/1e5, 41 + math.Round(r*math.Sin(angle)*1e5)/1e5}
	}

	ring[n-1] = ring[0]
	text, err := json.Marshal(ring)
	if err != nil {
		panic(err)
	}

	return fmt.Appendf(nil, `{"type":"Polygon","coordinates":[%s]}`, text)
}

// The indexed answer agrees with a plain walk around the ring.
func TestCoverage_AgreesWithAPlainRing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(4, 200).Draw(t, "positions")
		geojson := star(n, func(i int) float64 { return rapid.Float64Range(0.05, 1).Draw(t, "radius") })
		c, err := ParseCoverage(geojson)
		must(t, err)
		var shape struct{ Coordinates []orb.Ring }
		if err := json.Unmarshal(geojson, &shape); err != nil {
			t.Fatal(err)
		}

		for range 20 {
			at := orb.Point{rapid.Float64Range(27.9, 30.1).Draw(t, "lon"), rapid.Float64Range(39.9, 42.1).Draw(t, "lat")}
			got, want := c.Contains(Point{at[1], at[0]}), planar.RingContains(shape.Coordinates[0], at)
			require(t, got == want, "%v: got %v, want %v", at, got, want)
		}
	})
}

func FuzzParseCoverage(f *testing.F) {
	f.Add([]byte(donut))
	f.Add([]byte(twoParts))
	f.Add([]byte(`{"type":"Polygon","coordinates":[[[1,2,3],[1,3],[2,2],[1,2,3]]]}`))
	f.Add([]byte(`{"type":"Polygon","coordinates":[[null]]}`))
	f.Add([]byte(`{"type":"Polygon","coordinates":[[[1,2],[1,3],[2,2],[1,2]]],"Type":"MultiPolygon","COORDINATES":[]}`))
	f.Add([]byte(`{"TYPE":"Polygon","coordinates":[[[1e999,2],[1,3],[2,2],[1e999,2]]]}`))
	f.Fuzz(func(t *testing.T, geojson []byte) {
		c, err := ParseCoverage(geojson)
		if err != nil {
			return
		}

		var members map[string]any
		require(t, json.Unmarshal(geojson, &members) == nil && (members["type"] == "Polygon" || members["type"] == "MultiPolygon"), "accepted %s", geojson)
		low, high := Point{c.bounds.Min.Y, c.bounds.Min.X}, Point{c.bounds.Max.Y, c.bounds.Max.X}
		check(t, inRange(low) && inRange(high) && low.Latitude <= high.Latitude && low.Longitude <= high.Longitude, "bounds %v %v", low, high)
		check(t, !c.Contains(Point{high.Latitude + 1, high.Longitude}) && !c.Contains(Point{low.Latitude, low.Longitude - 1}),
			"a point outside the bounds is contained")
		again, err := ParseCoverage(c.JSON())
		check(t, err == nil && string(again.JSON()) == string(c.JSON()), "its own JSON: %v", err)
	})
}
