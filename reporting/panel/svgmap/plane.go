package svgmap

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/clip"
	"github.com/paulmach/orb/planar"
	"github.com/paulmach/orb/simplify"

	"vendorapi/internal/delivery"
)

const (
	// metresPerDegree of latitude, on the sphere: right to half a per cent.
	metresPerDegree = 111_195.0
	// maxVertices bounds the paths of one layer: at 12 bytes a vertex and 14 for
	// each path, a map stays below 40 kB.
	maxVertices = 2000
	// finest is the area, in square units, of a corner that nobody misses.
	finest = 0.05
	// barShare is the most of the width that a scale bar takes.
	barShare = 0.28
)

var nothing = orb.Bound{Min: orb.Point{math.Inf(1), math.Inf(1)}, Max: orb.Point{math.Inf(-1), math.Inf(-1)}}

func pointOf(p delivery.Point) orb.Point { return orb.Point{p.Longitude, p.Latitude} }

// onEarth refuses NaN, infinities and degrees that do not exist.
func onEarth(p delivery.Point) bool {
	return math.Abs(p.Latitude) <= 90 && math.Abs(p.Longitude) <= 180
}

// cosine of a latitude, kept away from 0 so that a pole is drawn as well.
func cosine(latitude float64) float64 { return max(math.Cos(latitude*math.Pi/180), 0.05) }

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
	polygons := make(orb.MultiPolygon, 1)
	var target any = &polygons
	if shape.Type == "Polygon" {
		target = &polygons[0]
	}
	if err := json.Unmarshal(shape.Coordinates, target); err != nil {
		return nil, fmt.Errorf("draw a coverage: %w", err)
	}
	return polygons, nil
}

func turkey() orb.MultiPolygon {
	var land orb.MultiPolygon
	for _, points := range delivery.TurkeyOutline() {
		ring := make(orb.Ring, len(points))
		for i, p := range points {
			ring[i] = pointOf(p)
		}
		land = append(land, orb.Polygon{ring})
	}
	return land
}

// plane turns degrees into units of a view box; north is up.
type plane struct {
	width, height float64
	middle        orb.Point
	cos           float64
	scale         float64 // units for a degree of latitude
}

// fit is the plane on which the bound fills the view but for a margin. A bound of less
// than minSpan metres is drawn as if it had as many.
func fit(b orb.Bound, width, height int, margin, minSpan float64) plane {
	p := plane{width: float64(width), height: float64(height), middle: b.Center()}
	p.cos = cosine(p.middle[1])
	least := minSpan / metresPerDegree
	across, up := max((b.Max[0]-b.Min[0])*p.cos, least), max(b.Max[1]-b.Min[1], least)
	p.scale = min((p.width-2*margin)/across, (p.height-2*margin)/up)
	return p
}

func (p plane) at(of orb.Point) (x, y float64) {
	return p.width/2 + (of[0]-p.middle[0])*p.cos*p.scale, p.height/2 - (of[1]-p.middle[1])*p.scale
}

func (p plane) units(metres float64) float64 { return metres / metresPerDegree * p.scale }

// bar is the longest of 1, 2 and 5 times a power of ten metres that has its
// share of the width.
func (p plane) bar() *Bar {
	longest := p.width * barShare / p.units(1)
	step := math.Pow(10, math.Floor(math.Log10(longest)))
	for _, times := range []float64{5, 2} {
		if times*step <= longest {
			step *= times
			break
		}
	}
	const indent = 12
	label := strconv.FormatFloat(step, 'f', -1, 64) + " m"
	if step >= 1000 {
		label = strconv.FormatFloat(step/1000, 'f', -1, 64) + " km"
	}
	return &Bar{X1: indent, X2: round(indent + p.units(step)), Y: p.height - indent, Label: label, Metres: step}
}

// grid is lines a bar's length apart, so that distances can be counted.
func (p plane) grid(metres float64) (paths []string) {
	step := p.units(metres)
	for x := math.Mod(p.width/2, step); x < p.width; x += step {
		paths = append(paths, line(x, 0, x, p.height))
	}
	for y := math.Mod(p.height/2, step); y < p.height; y += step {
		paths = append(paths, line(0, y, p.width, y))
	}
	return paths
}

// paths draws the polygons on the plane, cut at its edges and with no more than
// maxVertices corners. The polygons are changed on the way.
func (p plane) paths(polygons orb.MultiPolygon) (paths []string) {
	for _, polygon := range polygons {
		for _, ring := range polygon {
			for i, at := range ring {
				ring[i][0], ring[i][1] = p.at(at)
			}
		}
	}
	polygons = clip.MultiPolygon(orb.Bound{Max: orb.Point{p.width, p.height}}, polygons)
	for _, polygon := range shorten(polygons) {
		paths = append(paths, pathOf(polygon))
	}
	return paths
}

// shorten leaves out the smallest corners, holes and islands until few enough are left.
// Each round is four times as coarse, and a dozen end it.
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

// round keeps tenths, a small part of a pixel, and knows no -0.
func round(v float64) float64 { return math.Round(v*10)/10 + 0 }

// appendNumber writes a rounded figure as path data has it.
func appendNumber(b []byte, v float64) []byte { return strconv.AppendFloat(b, round(v), 'f', -1, 64) }

func line(x1, y1, x2, y2 float64) string {
	return fmt.Sprintf("M%v %vL%v %v", round(x1), round(y1), round(x2), round(y2))
}
