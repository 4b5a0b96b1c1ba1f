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

// Map is a drawing for the template "map". All lengths are in units of the view
// box, which begins at 0,0.
type Map struct {
	Width, Height int
	// Title names the picture, Description says what it shows.
	Title, Description string
	// Ashore: all of the view is land, as at a few kilometres.
	Ashore bool
	// Path data. Land and Coverage are filled, Grid and Way are lines.
	Land, Coverage, Grid, Way []string
	Marks                     []Mark
	Bar                       *Bar
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
	// Lost is a courier whose position is old.
	Lost Kind = "lost"
	// Locator is a ring around what is too small to be found.
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

// Stylesheet gives the maps' classes their colours, light and dark. A page
// serves it as, or within, a stylesheet of its own.
//
//go:embed map.css
var Stylesheet string

// Define adds the template "map" to a set, which can then say
// {{template "map" .SomeMap}} with a *Map that is not nil.
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
	// closeSpan and placesSpan are the least that is shown, in metres.
	closeSpan, placesSpan = 1000, 400
	// tooSmall is when a coverage needs a ring to be found, in units.
	tooSmall, locatorRadius = 14, 16
	leastBlur               = 13 // units: a circle that a sign does not cover
)

// Country draws a coverage on the outline of Turkey; nil is an empty one. What
// lies outside of Turkey is drawn too, at a smaller scale.
func Country(c *delivery.Coverage, title, description string) (*Map, error) {
	area, err := polygonsOf(c)
	if err != nil {
		return nil, err
	}
	part := area.Bound()
	m, p := country(part, coverageMargin/2, title, description)
	m.Coverage = p.paths(area)
	m.markIfSmall(p, part)
	return m, nil
}

// CloseUp draws a coverage as large as it fits; nil when there is nothing to show.
func CloseUp(c *delivery.Coverage, title, description string) (*Map, error) {
	area, err := polygonsOf(c)
	part := area.Bound()
	if err != nil || part.IsEmpty() {
		return nil, err
	}
	m, p := closeUp(part, area, title, description)
	m.markIfSmall(p, part)
	return m, nil
}

// Site draws a store within the coverage of its fleet, or, without one, in Turkey. A store
// that is no position on earth is not shown.
func Site(c *delivery.Coverage, store delivery.Point, title, description string) (*Map, error) {
	area, err := polygonsOf(c)
	if err != nil {
		return nil, err
	}
	around := nothing
	if onEarth(store) {
		around = around.Extend(pointOf(store))
	}
	var m *Map
	var p plane
	if part := area.Bound(); part.IsEmpty() {
		m, p = country(around, placesMargin, title, description)
	} else {
		m, p = closeUp(part.Union(around), area, title, description)
	}
	m.mark(p, Store, &store, 0)
	return m, nil
}

// country draws the outline of Turkey, on the plane that shows a bound as well.
func country(with orb.Bound, margin float64, title, description string) (*Map, plane) {
	land := turkey()
	p := fit(land.Bound().Union(with), countryWidth, countryHeight, margin, closeSpan)
	return &Map{Width: countryWidth, Height: countryHeight, Title: title, Description: description, Land: p.paths(land), Bar: p.bar()}, p
}

// closeUp draws the area on the outline of Turkey, on the plane that shows a bound.
func closeUp(of orb.Bound, area orb.MultiPolygon, title, description string) (*Map, plane) {
	p := fit(of, closeWidth, closeHeight, coverageMargin, closeSpan)
	m := &Map{Width: closeWidth, Height: closeHeight, Title: title, Description: description,
		Land: p.paths(turkey()), Coverage: p.paths(area), Bar: p.bar()}
	m.Grid = p.grid(m.Bar.Metres)
	return m, p
}

// markIfSmall rings what would be a speck.
func (m *Map) markIfSmall(p plane, part orb.Bound) {
	if part.IsEmpty() {
		return
	}
	west, south := p.at(part.Min)
	east, north := p.at(part.Max)
	if east-west < tooSmall && south-north < tooSmall {
		m.Marks = append(m.Marks, Mark{Kind: Locator, X: round((west + east) / 2), Y: round((south + north) / 2), Radius: locatorRadius})
	}
}

// Places are what the map of an order shows. What is nil, or no position on earth,
// is not shown.
type Places struct {
	Store, Dropoff, Courier *delivery.Point
	// Blur is how coarse the drop-off is, in metres; 0: exact.
	Blur float64
	// Lost says that the courier's position is old.
	Lost bool
}

// Surroundings draws the places so that all fit, with the straight way from the
// store to the drop-off. nil when there is nothing to show.
func Surroundings(of Places, title, description string) *Map {
	b := nothing
	for _, at := range []*delivery.Point{of.Store, of.Courier} {
		if at != nil && onEarth(*at) {
			b = b.Extend(pointOf(*at))
		}
	}
	if of.Dropoff != nil && onEarth(*of.Dropoff) {
		north := of.Blur / metresPerDegree
		east := north / cosine(of.Dropoff.Latitude)
		at := pointOf(*of.Dropoff)
		b = b.Extend(orb.Point{at[0] - east, at[1] - north}).Extend(orb.Point{at[0] + east, at[1] + north})
	}
	if b.IsEmpty() {
		return nil
	}
	p := fit(b, placesWidth, placesHeight, placesMargin, placesSpan)
	m := &Map{Width: placesWidth, Height: placesHeight, Title: title, Description: description, Ashore: true, Bar: p.bar()}
	m.Grid = p.grid(m.Bar.Metres)
	around := 0.0
	if of.Blur > 0 {
		around = max(p.units(of.Blur), leastBlur)
	}
	dropoff := m.mark(p, Dropoff, of.Dropoff, around)
	store := m.mark(p, Store, of.Store, 0)
	if store && dropoff {
		m.Way = []string{line(m.Marks[1].X, m.Marks[1].Y, m.Marks[0].X, m.Marks[0].Y)}
	}
	kind := Courier
	if of.Lost {
		kind = Lost
	}
	m.mark(p, kind, of.Courier, 0)
	return m
}

// mark adds a mark, and reports whether there is something to mark.
func (m *Map) mark(p plane, kind Kind, at *delivery.Point, radius float64) bool {
	if at == nil || !onEarth(*at) {
		return false
	}
	x, y := p.at(pointOf(*at))
	m.Marks = append(m.Marks, Mark{Kind: kind, X: round(x), Y: round(y), Radius: round(radius)})
	return true
}

// Distance is the metres between two points as the crow flies, on the sphere.
func Distance(a, b delivery.Point) float64 { return geo.DistanceHaversine(pointOf(a), pointOf(b)) }
