// Package svgmap draws maps as SVG: where a fleet delivers, and where a store, a drop-off
// and a courier are. It uses no tiles, scripts or other hosts, so nobody else learns
// which order is looked at. Callers pass in places as coarse as they may be seen.
//
// The projection is the local equirectangular one: right to a thousandth within a city
// (20 km); over all of Turkey east-west distances at the edges are wrong by 4 %.
package svgmap

import (
	_ "embed"
	"fmt"
	"html/template"

	"github.com/paulmach/orb"
	"github.com/paulmach/orb/geo"

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

// The kinds of marks.
const (
	Store   Kind = "store"
	Dropoff Kind = "dropoff"
	Courier Kind = "courier"
	Lost    Kind = "lost"    // a courier whose position is old
	Locator Kind = "locator" // a ring around what is too small to be found
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
func Define(set *template.Template) (*template.Template, error) {
	if _, err := set.New("map").Parse(templateText); err != nil {
		return nil, fmt.Errorf("the template of maps: %w", err)
	}
	return set, nil
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

// country draws the outline of Turkey, and a bound besides.
func country(with orb.Bound, margin float64, title, description string) *Map {
	land := polygonsOf(delivery.Turkey())
	m := newMap(land.Bound().Union(with), countryWidth, countryHeight, margin, closeSpan, title, description)
	m.Land = m.plane.paths(land)
	return m
}

// closeUp draws the area on the outline of Turkey, as far as the bound goes.
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
