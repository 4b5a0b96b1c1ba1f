package delivery

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"math"
	"slices"
)

// turkeyTolerance is how far outside the simplified outline a point may lie, in
// metres: no address on Turkish land may be refused (design section 9).
const turkeyTolerance = 1000.0

//go:embed turkey.geojson
var turkeyGeoJSON []byte

var (
	turkeyRings = loadRings(turkeyGeoJSON)
	turkey      = newOutline(edgesOf(turkeyRings))
)

// InTurkey reports whether a point is inside the outline of Turkey or within 1,000
// m of it. Points at sea between the islands pass here and fail the fleet's
// coverage.
func InTurkey(p Point) bool { return turkey.holds(p) }

// TurkeyOutline returns a copy of the outline's closed rings.
func TurkeyOutline() [][]Point {
	rings := make([][]Point, len(turkeyRings))
	for i, ring := range turkeyRings {
		rings[i] = slices.Clone(ring)
	}
	return rings
}

// outline sorts the edges into bands of latitude, so that few are looked at.
type outline struct {
	south, north float64
	bands        [][]edge
}

// edge is a straight piece of the outline in the plane of the degrees.
type edge struct{ a, b Point }

const (
	bandHeight = 0.05 // degrees
	// Degrees that are certainly more than the tolerance, at any latitude of
	// the outline (below 44°).
	latitudeReach  = 0.0095
	longitudeReach = 0.0130
)

// loadRings reads the embedded file.
func loadRings(geojson []byte) (rings [][]Point) {
	var shape struct {
		Coordinates [][][][2]float64 `json:"coordinates"`
	}
	if err := json.Unmarshal(geojson, &shape); err != nil {
		panic(fmt.Sprintf("the embedded outline of Turkey: %v", err))
	}
	for _, polygon := range shape.Coordinates {
		for _, positions := range polygon {
			ring := make([]Point, len(positions))
			for i, at := range positions {
				ring[i] = Point{Latitude: at[1], Longitude: at[0]}
			}
			rings = append(rings, ring)
		}
	}
	return rings
}

func edgesOf(rings [][]Point) (edges []edge) {
	for _, ring := range rings {
		for i := 1; i < len(ring); i++ {
			edges = append(edges, edge{ring[i-1], ring[i]})
		}
	}
	return edges
}

func newOutline(edges []edge) *outline {
	o := &outline{south: math.Inf(1), north: math.Inf(-1)}
	for _, e := range edges {
		south, north := e.latitudes()
		o.south, o.north = min(o.south, south), max(o.north, north)
	}
	o.bands = make([][]edge, o.band(o.north)+1)
	for _, e := range edges {
		south, north := e.latitudes()
		for i := max(o.band(south), 0); i <= min(o.band(north), len(o.bands)-1); i++ {
			o.bands[i] = append(o.bands[i], e)
		}
	}
	return o
}

func (o *outline) band(latitude float64) int { return int((latitude - o.south) / bandHeight) }

func (o *outline) holds(p Point) bool {
	// Written so that NaN is refused as well.
	if !(p.Latitude >= o.south && p.Latitude <= o.north) {
		return false
	}
	edges := o.bands[o.band(p.Latitude)]
	return inside(edges, p) || near(edges, p)
}

// inside counts the edges that a ray to the east crosses.
func inside(edges []edge, p Point) bool {
	in := false
	for i := range edges {
		a, b := edges[i].a, edges[i].b
		if (a.Latitude > p.Latitude) == (b.Latitude > p.Latitude) {
			continue
		}
		crossing := a.Longitude + (b.Longitude-a.Longitude)*(p.Latitude-a.Latitude)/(b.Latitude-a.Latitude)
		if p.Longitude < crossing {
			in = !in
		}
	}
	return in
}

func near(edges []edge, p Point) bool {
	for i := range edges {
		e := &edges[i]
		west, east := min(e.a.Longitude, e.b.Longitude), max(e.a.Longitude, e.b.Longitude)
		if p.Longitude >= west-longitudeReach && p.Longitude <= east+longitudeReach &&
			e.distance(p) <= turkeyTolerance {
			return true
		}
	}
	return false
}

// distance is metres from p to the edge, on the plane of the WGS 84 ellipsoid at p,
// where a kilometre is right to about 10 cm.
func (e *edge) distance(p Point) float64 {
	perLatitude, perLongitude := metresPerDegree(p.Latitude)
	ax, ay := (e.a.Longitude-p.Longitude)*perLongitude, (e.a.Latitude-p.Latitude)*perLatitude
	dx, dy := (e.b.Longitude-e.a.Longitude)*perLongitude, (e.b.Latitude-e.a.Latitude)*perLatitude
	along := 0.0
	if length := dx*dx + dy*dy; length > 0 {
		along = min(max(-(ax*dx+ay*dy)/length, 0), 1)
	}
	return math.Hypot(ax+along*dx, ay+along*dy)
}

// latitudes is the range of latitude that the edge with its tolerance touches.
func (e *edge) latitudes() (south, north float64) {
	return min(e.a.Latitude, e.b.Latitude) - latitudeReach, max(e.a.Latitude, e.b.Latitude) + latitudeReach
}

func metresPerDegree(latitude float64) (perLatitude, perLongitude float64) {
	const (
		equatorialRadius = 6_378_137.0
		eccentricity2    = 0.00669437999014
		perDegree        = math.Pi / 180
	)
	sin, cos := math.Sincos(latitude * perDegree)
	w := 1 - eccentricity2*sin*sin
	normal := equatorialRadius / math.Sqrt(w)
	meridional := normal * (1 - eccentricity2) / w
	return meridional * perDegree, normal * cos * perDegree
}
