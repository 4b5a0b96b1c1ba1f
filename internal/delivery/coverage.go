package delivery

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/tidwall/geojson/geometry"
)

// Every gateway holds the area, and asks it for every order.
const (
	maxCoverageBytes    = 1 << 20
	maxCoverageVertices = 20_000
)

// minRingPositions is RFC 7946's least for a linear ring.
const minRingPositions = 4

// Coverage is a fleet's area: a GeoJSON (Multi)Polygon with holes (RFC 7946). Immutable.
type Coverage struct {
	polygons []*geometry.Poly
	bounds   geometry.Rect
	json     []byte
}

// ParseCoverage reads a GeoJSON Polygon or MultiPolygon of at most 1,048,576 bytes and 20,000
// vertices [longitude, latitude] in closed rings. The error's text continues the field's name.
func ParseCoverage(geojson []byte) (*Coverage, error) {
	if len(geojson) > maxCoverageBytes {
		return nil, fmt.Errorf("has %d bytes; at most %d are allowed", len(geojson), maxCoverageBytes)
	}

	shapes, err := decodeCoverage(geojson)
	if err != nil {
		return nil, err
	}

	c := &Coverage{}
	vertices := 0
	for i, rings := range shapes {
		poly, n, err := buildPolygon(rings)
		if err != nil {
			return nil, fmt.Errorf("polygon %d: %w", i+1, err)
		}
		vertices += n
		if vertices > maxCoverageVertices {
			return nil, fmt.Errorf("has more than %d vertices", maxCoverageVertices)
		}

		box := poly.Rect()
		if i == 0 {
			c.bounds = box
		}

		c.bounds.Min = geometry.Point{X: min(c.bounds.Min.X, box.Min.X), Y: min(c.bounds.Min.Y, box.Min.Y)}
		c.bounds.Max = geometry.Point{X: max(c.bounds.Max.X, box.Max.X), Y: max(c.bounds.Max.Y, box.Max.Y)}
		c.polygons = append(c.polygons, poly)
	}

	var compact bytes.Buffer
	if err := json.Compact(&compact, geojson); err != nil {
		return nil, errors.New("must be a GeoJSON Polygon or MultiPolygon, and is no valid JSON")
	}

	c.json = compact.Bytes()

	return c, nil
}

// Contains reports whether the fleet serves the point, on a border too.
func (c *Coverage) Contains(p Point) bool {
	at := geometry.Point{X: p.Longitude, Y: p.Latitude}
	if !c.bounds.ContainsPoint(at) {
		return false
	}
	return slices.ContainsFunc(c.polygons, func(polygon *geometry.Poly) bool { return polygon.ContainsPoint(at) })
}

// ReachesTurkey reports whether a corner of either outline is in the other.
func (c *Coverage) ReachesTurkey() bool {
	corner := func(polygons [][][]Point, in func(Point) bool) bool {
		return slices.ContainsFunc(polygons, func(rings [][]Point) bool { return slices.ContainsFunc(rings[0], in) })
	}
	return corner(c.Polygons(), InTurkey) || corner(turkey.Polygons(), c.Contains)
}

// Polygons is a copy of the closed rings of each polygon, the outer one first.
func (c *Coverage) Polygons() (polygons [][][]Point) {
	for _, polygon := range c.polygons {
		var rings [][]Point
		for _, of := range slices.Concat([]geometry.Ring{polygon.Exterior}, polygon.Holes) {
			ring := make([]Point, of.NumPoints())
			for i := range ring {
				ring[i] = Point{Latitude: of.PointAt(i).Y, Longitude: of.PointAt(i).X}
			}
			rings = append(rings, ring)
		}

		polygons = append(polygons, rings)
	}

	return polygons
}

// JSON is the GeoJSON without white space. The caller must not change it.
func (c *Coverage) JSON() []byte { return c.json }

// position is [longitude, latitude, ...]. The pointers distinguish null from 0.
type position []*float64

// decodeCoverage decodes into a map because a struct would match "Type" as "type".
func decodeCoverage(geojson []byte) ([][][]position, error) {
	var members map[string]json.RawMessage
	if err := json.Unmarshal(geojson, &members); err != nil {
		return nil, errors.New("must be a GeoJSON Polygon or MultiPolygon, and is no JSON object")
	}

	var kind string
	_ = json.Unmarshal(members["type"], &kind) // what is no string is no type
	var polygons [][][]position
	var target any = &polygons
	switch kind {
	case "MultiPolygon":
	case "Polygon":
		polygons = make([][][]position, 1)
		target = &polygons[0]
	default:
		return nil, fmt.Errorf("must be a GeoJSON Polygon or MultiPolygon, not %q", kind)
	}

	if len(members["coordinates"]) == 0 {
		return nil, errors.New("has no coordinates")
	}
	if err := json.Unmarshal(members["coordinates"], target); err != nil {
		return nil, fmt.Errorf("coordinates do not have the shape of a %s", kind)
	}
	if len(polygons) == 0 {
		return nil, errors.New("has no polygon")
	}

	return polygons, nil
}

// buildPolygon checks the rings, the outer one first, and counts their vertices.
func buildPolygon(rings [][]position) (*geometry.Poly, int, error) {
	if len(rings) == 0 {
		return nil, 0, errors.New("it has no ring")
	}

	total := 0
	checked := make([][]geometry.Point, len(rings))
	for i, ring := range rings {
		total += len(ring)
		points, err := checkRing(ring)
		if err != nil {
			return nil, 0, fmt.Errorf("ring %d: %w", i+1, err)
		}
		checked[i] = points
	}

	index := geometry.IndexOptions{Kind: geometry.QuadTree, MinPoints: 16}

	return geometry.NewPoly(checked[0], checked[1:], &index), total, nil
}

func checkRing(ring []position) ([]geometry.Point, error) {
	if len(ring) < minRingPositions {
		return nil, fmt.Errorf("it has %d positions; a closed ring needs at least %d", len(ring), minRingPositions)
	}

	points := make([]geometry.Point, len(ring))
	for i, at := range ring {
		if len(at) < 2 || at[0] == nil || at[1] == nil {
			return nil, fmt.Errorf("position %d is not [longitude, latitude]", i+1)
		}
		p := geometry.Point{X: *at[0], Y: *at[1]}
		if !inRange(Point{Latitude: p.Y, Longitude: p.X}) {
			return nil, fmt.Errorf("position %d, [%v, %v], is not a longitude within ±180 and a latitude within ±90", i+1, p.X, p.Y)
		}
		points[i] = p
	}

	if points[0] != points[len(points)-1] {
		return nil, errors.New("it is not closed: the last position must repeat the first")
	}

	return points, nil
}

func inRange(p Point) bool {
	return p.Latitude >= -90 && p.Latitude <= 90 && p.Longitude >= -180 && p.Longitude <= 180
}

// turkeyTolerance is in metres: no address on Turkish land may be refused.
const turkeyTolerance = 1000.0

//go:embed turkey.geojson
var turkeyGeoJSON []byte

var turkey = func() *Coverage {
	outline, err := ParseCoverage(turkeyGeoJSON)
	if err != nil {
		panic(fmt.Sprintf("the embedded outline of Turkey %v", err))
	}
	return outline
}()

// InTurkey reports whether a point is inside the outline or within 1,000 m of it. Those
// at sea fail the fleet's coverage.
func InTurkey(p Point) bool {
	if turkey.Contains(p) {
		return true
	}

	const reach = 0.02 // degrees, more than the tolerance at these latitudes
	southWest, northEast := turkey.bounds.Min, turkey.bounds.Max
	// Written so that NaN is refused as well.
	if !(p.Latitude >= southWest.Y-reach && p.Latitude <= northEast.Y+reach &&
		p.Longitude >= southWest.X-reach && p.Longitude <= northEast.X+reach) {
		return false
	}

	for _, polygon := range turkey.polygons {
		for i := range polygon.Exterior.NumSegments() {
			if distance(polygon.Exterior.SegmentAt(i), p) <= turkeyTolerance {
				return true
			}
		}
	}

	return false
}

// nearTurkey is in degrees: some 200 km, what a phone without satellites may be wrong, and more.
const nearTurkey = 2

// IsNearTurkey reports whether a courier can be there: in the rectangle around Turkey or at most
// two degrees outside it. So 0, 0, which a phone reports that does not know where it is, is no place.
func IsNearTurkey(p Point) bool {
	southWest, northEast := turkey.bounds.Min, turkey.bounds.Max
	return p.Latitude >= southWest.Y-nearTurkey && p.Latitude <= northEast.Y+nearTurkey &&
		p.Longitude >= southWest.X-nearTurkey && p.Longitude <= northEast.X+nearTurkey
}

// Turkey is the outline.
func Turkey() *Coverage { return turkey }

// distance is metres on the plane of the WGS 84 ellipsoid at p, right to 10 cm in 1 km.
func distance(s geometry.Segment, p Point) float64 {
	perLatitude, perLongitude := metresPerDegree(p.Latitude)
	ax, ay := (s.A.X-p.Longitude)*perLongitude, (s.A.Y-p.Latitude)*perLatitude
	dx, dy := (s.B.X-s.A.X)*perLongitude, (s.B.Y-s.A.Y)*perLatitude
	along := 0.0
	if length := dx*dx + dy*dy; length > 0 {
		along = min(max(-(ax*dx+ay*dy)/length, 0), 1)
	}
	return math.Hypot(ax+along*dx, ay+along*dy)
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
