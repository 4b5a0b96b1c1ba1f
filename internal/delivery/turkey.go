package delivery

import (
	_ "embed"
	"fmt"
	"math"

	"github.com/tidwall/geojson/geometry"
)

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
	southWest, northEast := turkey.Bounds()
	// Written so that NaN is refused as well.
	if !(p.Latitude >= southWest.Latitude-reach && p.Latitude <= northEast.Latitude+reach &&
		p.Longitude >= southWest.Longitude-reach && p.Longitude <= northEast.Longitude+reach) {
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
