package svgmap

import (
	_ "embed"
	"fmt"
	"html/template"
)

// Map is a drawing for the template "map". All lengths are in units of the view
// box, which begins at 0,0.
type Map struct {
	Width, Height int
	// Title names the picture and Description says what it shows to those who
	// do not see it. Text.
	Title, Description string

	// Ashore says that all of the view is land: at a few kilometres there is no
	// shore that the country's outline knows.
	Ashore bool
	// Land and Coverage are filled, Grid and Way are lines: path data, each
	// path of its own.
	Land, Coverage, Grid, Way []string
	Marks                     []Mark
	Bar                       *Bar // nil: none
}

// Mark is something at one point.
type Mark struct {
	Kind   Kind
	X, Y   float64
	Radius float64 // of the circle around it, 0: none
}

// Kind is what a mark stands for; its class in the stylesheet is "map-" and the
// kind.
type Kind string

// The kinds of marks.
const (
	Store   Kind = "store"
	Dropoff Kind = "dropoff"
	Courier Kind = "courier"
	// Lost is a courier who has not been heard of for a while.
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
