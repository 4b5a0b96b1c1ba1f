package svgmap

import (
	"github.com/paulmach/orb"

	"vendorapi/internal/delivery"
)

// Sizes of the maps of a coverage.
const (
	countryWidth, countryHeight = 800, 360
	closeWidth, closeHeight     = 640, 400
	coverageMargin              = 24
	// closeSpan is the least that a close-up shows, in metres.
	closeSpan = 1000
	// tooSmall is when a coverage needs a ring to be found, in units.
	tooSmall, locatorRadius = 14, 16
)

// Country draws a coverage on the outline of Turkey; nil is an empty one. What
// lies outside of Turkey is drawn too, at a smaller scale.
func Country(c *delivery.Coverage, title, description string) (*Map, error) {
	area, err := polygonsOf(c)
	if err != nil {
		return nil, err
	}
	land := turkey()
	part := boxOf(area)
	p := fit(boxOf(land).and(part), countryWidth, countryHeight, coverageMargin/2, closeSpan)
	m := &Map{Width: countryWidth, Height: countryHeight, Title: title, Description: description,
		Land: p.paths(land), Coverage: p.paths(area), Bar: p.bar()}
	if !part.empty() {
		m.markIfSmall(p, part)
	}
	return m, nil
}

// CloseUp draws a coverage as large as it fits, with a grid whose squares are
// as wide as the scale bar. nil when there is nothing to show.
func CloseUp(c *delivery.Coverage, title, description string) (*Map, error) {
	area, err := polygonsOf(c)
	if err != nil {
		return nil, err
	}
	part := boxOf(area)
	if part.empty() {
		return nil, nil
	}
	m, p := closeUp(part, area, title, description)
	m.markIfSmall(p, part)
	return m, nil
}

// Site draws a store within the coverage of its fleet, both as large as they
// fit. Without a coverage it shows where in Turkey the store is; a store that is
// no position on earth is not shown.
func Site(c *delivery.Coverage, store delivery.Point, title, description string) (*Map, error) {
	area, err := polygonsOf(c)
	if err != nil {
		return nil, err
	}
	around := nowhere()
	if onEarth(store) {
		around = around.with(store)
	}
	part := boxOf(area)
	var m *Map
	var p plane
	if part.empty() {
		land := turkey()
		p = fit(boxOf(land).and(around), countryWidth, countryHeight, placesMargin, closeSpan)
		m = &Map{Width: countryWidth, Height: countryHeight, Title: title, Description: description, Land: p.paths(land), Bar: p.bar()}
	} else {
		m, p = closeUp(part.and(around), area, title, description)
	}
	m.mark(p, Store, &store, 0)
	return m, nil
}

// closeUp draws the area on the outline of Turkey, on the plane that shows a
// box.
func closeUp(of box, area orb.MultiPolygon, title, description string) (*Map, plane) {
	p := fit(of, closeWidth, closeHeight, coverageMargin, closeSpan)
	m := &Map{Width: closeWidth, Height: closeHeight, Title: title, Description: description,
		Land: p.paths(turkey()), Coverage: p.paths(area), Bar: p.bar()}
	m.Grid = p.grid(m.Bar.Metres)
	return m, p
}

// markIfSmall rings what would be a speck.
func (m *Map) markIfSmall(p plane, part box) {
	west, south := p.at(part.southWest())
	east, north := p.at(part.northEast())
	if east-west < tooSmall && south-north < tooSmall {
		m.Marks = append(m.Marks, Mark{Kind: Locator, X: round((west + east) / 2), Y: round((south + north) / 2), Radius: locatorRadius})
	}
}

func (b box) southWest() delivery.Point {
	return delivery.Point{Latitude: b.south, Longitude: b.west}
}

func (b box) northEast() delivery.Point {
	return delivery.Point{Latitude: b.north, Longitude: b.east}
}

// and is the box that holds both.
func (b box) and(other box) box {
	if other.empty() {
		return b
	}
	return b.with(other.southWest()).with(other.northEast())
}
