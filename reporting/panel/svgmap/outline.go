package svgmap

import (
	"encoding/json"
	"fmt"
	"math"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/clip"
	"github.com/paulmach/orb/planar"
	"github.com/paulmach/orb/simplify"

	"vendorapi/internal/delivery"
)

// maxVertices bounds the paths of one layer: at 12 bytes a vertex and 14 for
// each path, a map stays below 40 kB.
const maxVertices = 2000

// finest is the area, in square units, of a corner that nobody misses.
const finest = 0.05

// polygonsOf reads the coverage's GeoJSON, in degrees; nil has none.
func polygonsOf(c *delivery.Coverage) (orb.MultiPolygon, error) {
	if c == nil {
		return nil, nil
	}
	var shape struct {
		Type        string          `json:"type"`
		Coordinates json.RawMessage `json:"coordinates"`
	}
	if err := json.Unmarshal(c.JSON(), &shape); err != nil {
		return nil, fmt.Errorf("draw a coverage: %w", err)
	}
	var polygons orb.MultiPolygon
	var target any = &polygons
	if shape.Type == "Polygon" {
		polygons = make(orb.MultiPolygon, 1)
		target = &polygons[0]
	}
	if err := json.Unmarshal(shape.Coordinates, target); err != nil {
		return nil, fmt.Errorf("draw a coverage: %w", err)
	}
	return polygons, nil
}

// turkey is the country's outline, in degrees.
func turkey() orb.MultiPolygon {
	var land orb.MultiPolygon
	for _, points := range delivery.TurkeyOutline() {
		ring := make(orb.Ring, len(points))
		for i, p := range points {
			ring[i] = orb.Point{p.Longitude, p.Latitude}
		}
		land = append(land, orb.Polygon{ring})
	}
	return land
}

func boxOf(polygons orb.MultiPolygon) box {
	b := nowhere()
	for _, polygon := range polygons {
		for _, ring := range polygon {
			for _, at := range ring {
				b = b.with(delivery.Point{Latitude: at[1], Longitude: at[0]})
			}
		}
	}
	return b
}

// paths draws the polygons on the plane, cut at its edges and with no more than
// maxVertices corners. The polygons are changed on the way.
func (p plane) paths(polygons orb.MultiPolygon) []string {
	for _, polygon := range polygons {
		for _, ring := range polygon {
			for i, at := range ring {
				ring[i][0], ring[i][1] = p.at(delivery.Point{Latitude: at[1], Longitude: at[0]})
			}
		}
	}
	polygons = clip.MultiPolygon(orb.Bound{Max: orb.Point{p.width, p.height}}, polygons)
	var paths []string
	for _, polygon := range shorten(polygons) {
		paths = append(paths, pathOf(polygon))
	}
	return paths
}

// shorten leaves out the smallest corners, and holes and islands smaller than
// those, until few enough are left. Each round is four times as coarse, and a
// map's whole area ends it after a dozen.
func shorten(polygons orb.MultiPolygon) orb.MultiPolygon {
	for area := finest; ; area *= 4 {
		corners := simplify.VisvalingamThreshold(area)
		largest := largestOf(polygons)
		kept := polygons[:0]
		left := 0
		for i, polygon := range polygons {
			if i != largest && ringArea(polygon[0]) < area {
				continue
			}
			rings := polygon[:0]
			for j, ring := range polygon {
				if j == 0 || ringArea(ring) >= area {
					ring = corners.Ring(ring)
					rings, left = append(rings, ring), left+len(ring)
				}
			}
			kept = append(kept, rings)
		}
		if polygons = kept; left <= maxVertices {
			return polygons
		}
	}
}

// largestOf is the polygon that is drawn in any case; -1 when there is none.
func largestOf(polygons orb.MultiPolygon) int {
	largest, area := -1, math.Inf(-1)
	for i, polygon := range polygons {
		if a := ringArea(polygon[0]); a > area {
			largest, area = i, a
		}
	}
	return largest
}

func ringArea(r orb.Ring) float64 { return math.Abs(planar.Area(r)) }

// pathOf is a polygon with its holes as path data; points that coincide after
// rounding are written once.
func pathOf(polygon orb.Polygon) string {
	var path []byte
	for _, ring := range polygon {
		path = append(path, 'M')
		begin := len(path)
		var last orb.Point
		for i, at := range ring {
			at = orb.Point{round(at[0]), round(at[1])}
			closing := i > 0 && i == len(ring)-1 && ring[0] == ring[i] // Z does that
			if closing || len(path) > begin && at == last {
				continue
			}
			if len(path) > begin {
				path = append(path, ' ')
			}
			path = append(appendNumber(path, at[0]), ' ')
			path = appendNumber(path, at[1])
			last = at
		}
		path = append(path, 'Z')
	}
	return string(path)
}
