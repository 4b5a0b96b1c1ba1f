package svgmap

import (
	"github.com/paulmach/orb"
	"github.com/paulmach/orb/geo"

	"vendorapi/internal/delivery"
)

// Sizes of the map of an order's places. The view box is about as wide as a
// phone, so that its signs are as large there as they are meant.
const (
	placesWidth, placesHeight = 400, 260
	placesMargin              = 34
	// placesSpan is the least that the map shows, in metres.
	placesSpan = 400
	leastBlur  = 13 // units: a circle that a sign does not cover
)

// Places are what the map of an order shows; nil is not shown, and neither is
// what is no position on earth.
type Places struct {
	Store, Dropoff, Courier *delivery.Point
	// Blur is how coarse the drop-off is, in metres: a circle of that radius is
	// drawn around it. 0: exact.
	Blur float64
	// Lost says that the courier's position is old.
	Lost bool
}

// Surroundings draws the places so that all fit, with the straight way from the
// store to the drop-off. nil when there is nothing to show.
func Surroundings(of Places, title, description string) *Map {
	b := nowhere()
	for _, at := range []*delivery.Point{of.Store, of.Courier} {
		if at != nil && onEarth(*at) {
			b = b.with(*at)
		}
	}
	if of.Dropoff != nil && onEarth(*of.Dropoff) {
		b = b.around(*of.Dropoff, of.Blur)
	}
	if b.empty() {
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
	x, y := p.at(*at)
	m.Marks = append(m.Marks, Mark{Kind: kind, X: round(x), Y: round(y), Radius: round(radius)})
	return true
}

// Distance is the metres between two points as the crow flies, on the sphere.
func Distance(a, b delivery.Point) float64 {
	return geo.DistanceHaversine(orb.Point{a.Longitude, a.Latitude}, orb.Point{b.Longitude, b.Latitude})
}
