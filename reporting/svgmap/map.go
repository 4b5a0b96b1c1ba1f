// Package svgmap draws maps as SVG: where a fleet delivers, and where a store, a drop-off
// and a courier are. It uses no tiles, scripts or other hosts, so nobody else learns
// which order is looked at. Callers pass in places as coarse as they may be seen.
//
// The projection is the local equirectangular one: right to a thousandth within a city
// (20 km); over all of Turkey east-west distances at the edges are wrong by 4 %.
package svgmap

import (
	"cmp"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/clip"
	"github.com/paulmach/orb/geo"
	"github.com/paulmach/orb/planar"
	"github.com/paulmach/orb/project"
	"github.com/paulmach/orb/simplify"

	"vendorapi/internal/delivery"
)

// Map is a drawing for the template "map", in units of the view box, which begins at 0,0.
type Map struct {
	Width, Height             int
	Title, Description        string   // what names the picture, and what it shows
	Ashore                    bool     // all of the view is land, as at a few kilometres
	Land, Coverage, Grid, Way []string // path data: two are filled, two are lines
	Marks                     []Mark
	Bar                       *Bar

	plane plane
}

// Mark is something at one point.
type Mark struct {
	Kind   Kind
	X, Y   float64
	Radius float64 // of the circle around it, 0: none
}

// Kind is what a mark stands for; its class is "map-" and the kind.
type Kind string

// The kinds of marks: Lost is a courier whose position is old, Locator a ring around what is
// too small to be found.
const (
	Store   Kind = "store"
	Dropoff Kind = "dropoff"
	Courier Kind = "courier"
	Lost    Kind = "lost"
	Locator Kind = "locator"
)

// Bar is the scale: a line from X1 to X2, and how far that is.
type Bar struct {
	X1, X2, Y float64
	Label     string // "500 m", "20 km"
	Metres    float64
}

//go:embed map.html
var templateText string

// Stylesheet gives the maps' classes their colours, light and dark.
//
//go:embed map.css
var Stylesheet string

// Define adds the template "map", of a *Map that is not nil, to a set.
func Define(set *template.Template) *template.Template {
	template.Must(set.New("map").Parse(templateText))
	return set
}

// Sizes of the maps. That of an order's places is about as wide as a phone.
const (
	countryWidth, countryHeight = 800, 360
	closeWidth, closeHeight     = 640, 400
	placesWidth, placesHeight   = 400, 260
	coverageMargin              = 24
	placesMargin                = 34
	closeSpan, placesSpan       = 1000, 400 // the least that is shown, in metres
	tooSmall, locatorRadius     = 14, 16    // units: a coverage that needs a ring to be found
	leastBlur                   = 13        // units: a circle that a sign does not cover
)

// Country draws a coverage, which may be nil or lie elsewhere, on the outline of Turkey.
func Country(c *delivery.Coverage, title, description string) *Map {
	area := polygonsOf(c)
	part := area.Bound()
	m := country(part, coverageMargin/2, title, description)
	m.Coverage = m.plane.paths(area)
	m.markIfSmall(part)

	return m
}

// CloseUp draws a coverage as large as it fits; nil when there is nothing to show.
func CloseUp(c *delivery.Coverage, title, description string) *Map {
	area := polygonsOf(c)
	part := area.Bound()
	if part.IsEmpty() {
		return nil
	}

	m := closeUp(part, area, title, description)
	m.markIfSmall(part)
	return m
}

// Site draws a store within the coverage of its fleet or, without one, in Turkey.
func Site(c *delivery.Coverage, store delivery.Point, title, description string) *Map {
	area, around := polygonsOf(c), boundOf(&store)
	var m *Map
	if part := area.Bound(); part.IsEmpty() {
		m = country(around, placesMargin, title, description)
	} else {
		m = closeUp(part.Union(around), area, title, description)
	}

	m.mark(Store, &store, 0)
	return m
}

func newMap(of orb.Bound, width, height int, margin, minSpan float64, title, description string) *Map {
	p := fit(of, width, height, margin, minSpan)
	return &Map{Width: width, Height: height, Title: title, Description: description, Bar: p.bar(), plane: p}
}

func country(with orb.Bound, margin float64, title, description string) *Map {
	land := polygonsOf(delivery.Turkey())
	m := newMap(land.Bound().Union(with), countryWidth, countryHeight, margin, closeSpan, title, description)
	m.Land = m.plane.paths(land)
	return m
}

func closeUp(of orb.Bound, area orb.MultiPolygon, title, description string) *Map {
	m := newMap(of, closeWidth, closeHeight, coverageMargin, closeSpan, title, description)
	m.Land, m.Coverage, m.Grid = m.plane.paths(polygonsOf(delivery.Turkey())), m.plane.paths(area), m.plane.grid(m.Bar.Metres)
	return m
}

func (m *Map) markIfSmall(part orb.Bound) {
	if part.IsEmpty() {
		return
	}

	southWest, northEast := m.plane.at(part.Min), m.plane.at(part.Max)
	if northEast[0]-southWest[0] < tooSmall && southWest[1]-northEast[1] < tooSmall {
		middle := m.plane.at(part.Center())
		m.Marks = append(m.Marks, Mark{Kind: Locator, X: round(middle[0]), Y: round(middle[1]), Radius: locatorRadius})
	}
}

// Places are what the map of an order shows, but for nil and what is no position on earth.
type Places struct {
	Store, Dropoff, Courier *delivery.Point
	Blur                    float64 // how coarse the drop-off is, in metres; 0: exact
	Lost                    bool    // the courier's position is old
}

// Surroundings draws the places and the straight way from the store to the drop-off; nil
// when there is nothing to show.
func Surroundings(of Places, title, description string) *Map {
	b := boundOf(of.Store).Union(boundOf(of.Courier))
	if dropoff := boundOf(of.Dropoff); !dropoff.IsEmpty() {
		north := of.Blur / metresPerDegree
		east := north / cosine(of.Dropoff.Latitude)
		at := dropoff.Min
		b = b.Extend(orb.Point{at[0] - east, at[1] - north}).Extend(orb.Point{at[0] + east, at[1] + north})
	}

	if b.IsEmpty() {
		return nil
	}

	m := newMap(b, placesWidth, placesHeight, placesMargin, placesSpan, title, description)
	m.Ashore, m.Grid = true, m.plane.grid(m.Bar.Metres)
	around := 0.0
	if of.Blur > 0 {
		around = max(m.plane.units(of.Blur), leastBlur)
	}

	dropoff := m.mark(Dropoff, of.Dropoff, around)
	store := m.mark(Store, of.Store, 0)
	if store && dropoff {
		m.Way = []string{line(m.Marks[1].X, m.Marks[1].Y, m.Marks[0].X, m.Marks[0].Y)}
	}

	kind := Courier
	if of.Lost {
		kind = Lost
	}

	m.mark(kind, of.Courier, 0)

	return m
}

func (m *Map) mark(kind Kind, at *delivery.Point, radius float64) bool {
	b := boundOf(at)
	if b.IsEmpty() {
		return false
	}
	on := m.plane.at(b.Min)
	m.Marks = append(m.Marks, Mark{Kind: kind, X: round(on[0]), Y: round(on[1]), Radius: round(radius)})
	return true
}

// Distance is the metres between two points as the crow flies, on the sphere.
func Distance(a, b delivery.Point) float64 { return geo.DistanceHaversine(pointOf(a), pointOf(b)) }

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

// cosine of a latitude, never 0, so that a pole is drawn as well.
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

// bar is the longest 1, 2 or 5 times a power of ten metres within its share of the width.
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
			if i == 0 || i < len(ring)-1 || at != ring[0] { // Z leads back to the first
				points = append(points, fmt.Sprint(round(at[0]), " ", round(at[1])))
			}
		}
		path += "M" + strings.Join(slices.Compact(points), " ") + "Z"
	}

	return path
}

// round keeps tenths, a small part of a pixel, and knows no -0.
func round(v float64) float64 { return math.Round(v*10)/10 + 0 }

func line(x1, y1, x2, y2 float64) string {
	return fmt.Sprintf("M%v %vL%v %v", round(x1), round(y1), round(x2), round(y2))
}
