package svgmap

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/clip"
	"github.com/paulmach/orb/planar"
	"github.com/paulmach/orb/project"
	"github.com/paulmach/orb/simplify"

	"vendorapi/internal/delivery"
)

const (
	metresPerDegree = 111_195.0 // of latitude, on the sphere: right to half a per cent
	maxVertices     = 2000      // of one layer: at 12 bytes each a map stays below 40 kB
	finest          = 0.05      // square units: a corner that nobody misses
	barShare        = 0.28      // the most of the width that a scale bar takes
)

var nothing = orb.Bound{Min: orb.Point{math.Inf(1), math.Inf(1)}, Max: orb.Point{math.Inf(-1), math.Inf(-1)}}

func pointOf(p delivery.Point) orb.Point { return orb.Point{p.Longitude, p.Latitude} }

// boundOf is the point; empty for nil, NaN, infinities and degrees that do not exist.
func boundOf(p *delivery.Point) orb.Bound {
	if p == nil || !(math.Abs(p.Latitude) <= 90 && math.Abs(p.Longitude) <= 180) {
		return nothing
	}
	return pointOf(*p).Bound()
}

// cosine of a latitude, kept above 0 so that a pole is drawn as well.
func cosine(latitude float64) float64 { return max(math.Cos(latitude*math.Pi/180), 0.05) }

// polygonsOf is a copy of the coverage in degrees; nil has none.
func polygonsOf(c *delivery.Coverage) (polygons orb.MultiPolygon) {
	if c == nil {
		return nil
	}
	for _, rings := range c.Polygons() {
		var polygon orb.Polygon
		for _, points := range rings {
			ring := make(orb.Ring, len(points))
			for i, p := range points {
				ring[i] = pointOf(p)
			}
			polygon = append(polygon, ring)
		}
		polygons = append(polygons, polygon)
	}
	return polygons
}

// plane turns degrees into units of a view box; north is up.
type plane struct {
	width, height float64
	middle        orb.Point
	cos           float64
	scale         float64 // units for a degree of latitude
}

// fit is the plane on which the bound, of minSpan metres at least, fills the view but for a margin.
func fit(b orb.Bound, width, height int, margin, minSpan float64) plane {
	p := plane{width: float64(width), height: float64(height), middle: b.Center()}
	p.cos = cosine(p.middle[1])
	least := minSpan / metresPerDegree
	across, up := max((b.Max[0]-b.Min[0])*p.cos, least), max(b.Max[1]-b.Min[1], least)
	p.scale = min((p.width-2*margin)/across, (p.height-2*margin)/up)
	return p
}

func (p plane) at(of orb.Point) orb.Point {
	return orb.Point{p.width/2 + (of[0]-p.middle[0])*p.cos*p.scale, p.height/2 - (of[1]-p.middle[1])*p.scale}
}

func (p plane) units(metres float64) float64 { return metres / metresPerDegree * p.scale }

// bar is the longest of 1, 2 and 5 times a power of ten metres that has its share of the width.
func (p plane) bar() *Bar {
	longest := p.width * barShare / p.units(1)
	step := math.Pow(10, math.Floor(math.Log10(longest)))
	if longest >= 5*step {
		step *= 5
	} else if longest >= 2*step {
		step *= 2
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

// paths draws the polygons, which it changes, cut at the edges, with at most maxVertices.
func (p plane) paths(polygons orb.MultiPolygon) (paths []string) {
	polygons = clip.MultiPolygon(orb.Bound{Max: orb.Point{p.width, p.height}}, project.MultiPolygon(polygons, p.at))
	for _, polygon := range shorten(polygons) {
		paths = append(paths, pathOf(polygon))
	}
	return paths
}

// shorten leaves out the smallest corners, holes and islands until few enough are left, but
// never the largest polygon. Each round is four times as coarse, and a dozen end it.
func shorten(polygons orb.MultiPolygon) orb.MultiPolygon {
	slices.SortStableFunc(polygons, func(a, b orb.Polygon) int { return cmp.Compare(ringArea(b[0]), ringArea(a[0])) })
	for area := finest; ; area *= 4 {
		small := func(r orb.Ring) bool { return ringArea(r) < area }
		polygons = slices.DeleteFunc(polygons, func(p orb.Polygon) bool { return small(p[0]) && &p[0] != &polygons[0][0] })
		left := 0
		for i, polygon := range polygons {
			holes := slices.DeleteFunc(polygon[1:], small)
			polygons[i] = simplify.VisvalingamThreshold(area).Polygon(polygon[:1+len(holes)])
			for _, ring := range polygons[i] {
				left += len(ring)
			}
		}
		if left <= maxVertices {
			return polygons
		}
	}
}

func ringArea(r orb.Ring) float64 { return math.Abs(planar.Area(r)) }

func pathOf(polygon orb.Polygon) string {
	path := ""
	for _, ring := range polygon {
		var points []string
		for i, at := range ring {
			closing := i > 0 && i == len(ring)-1 && ring[0] == at // Z does that
			point := fmt.Sprint(round(at[0]), " ", round(at[1]))
			if !closing && (len(points) == 0 || points[len(points)-1] != point) {
				points = append(points, point)
			}
		}
		path += "M" + strings.Join(points, " ") + "Z"
	}
	return path
}

// round keeps tenths, a small part of a pixel, and knows no -0.
func round(v float64) float64 { return math.Round(v*10)/10 + 0 }

func line(x1, y1, x2, y2 float64) string {
	return fmt.Sprintf("M%v %vL%v %v", round(x1), round(y1), round(x2), round(y2))
}
