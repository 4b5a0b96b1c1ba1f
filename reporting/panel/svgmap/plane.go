package svgmap

import (
	"math"
	"strconv"

	"vendorapi/internal/delivery"
)

// metresPerDegree of latitude, on the sphere: right to half a per cent, which
// is less than the width of a scale bar's line.
const metresPerDegree = 111_195.0

// box is a part of the world in degrees.
type box struct{ west, south, east, north float64 }

// nowhere is the box that holds no point.
func nowhere() box {
	return box{west: math.Inf(1), south: math.Inf(1), east: math.Inf(-1), north: math.Inf(-1)}
}

func (b box) empty() bool { return b.west > b.east }

// with is the box grown to hold the point.
func (b box) with(p delivery.Point) box {
	return box{min(b.west, p.Longitude), min(b.south, p.Latitude), max(b.east, p.Longitude), max(b.north, p.Latitude)}
}

// around is the box grown to hold what is within metres of the point.
func (b box) around(p delivery.Point, metres float64) box {
	degrees := metres / metresPerDegree
	east := degrees / cosine(p.Latitude)
	return b.with(delivery.Point{Latitude: p.Latitude - degrees, Longitude: p.Longitude - east}).
		with(delivery.Point{Latitude: p.Latitude + degrees, Longitude: p.Longitude + east})
}

// cosine of a latitude, kept away from 0 so that a pole is drawn as well.
func cosine(latitude float64) float64 { return max(math.Cos(latitude*math.Pi/180), 0.05) }

// onEarth refuses what is no position: NaN, infinities, degrees that do not
// exist.
func onEarth(p delivery.Point) bool {
	return math.Abs(p.Latitude) <= 90 && math.Abs(p.Longitude) <= 180
}

// plane turns degrees into units of a view box; north is up.
type plane struct {
	width, height float64
	middle        delivery.Point
	cos           float64
	scale         float64 // units for a degree of latitude
}

// fit is the plane on which the box fills the view but for a margin. A box of
// less than minSpan metres is drawn as if it had as many, so that two points
// side by side are not torn apart.
func fit(b box, width, height int, margin, minSpan float64) plane {
	p := plane{width: float64(width), height: float64(height),
		middle: delivery.Point{Latitude: (b.south + b.north) / 2, Longitude: (b.west + b.east) / 2}}
	p.cos = cosine(p.middle.Latitude)
	least := minSpan / metresPerDegree
	across, up := max((b.east-b.west)*p.cos, least), max(b.north-b.south, least)
	p.scale = min((p.width-2*margin)/across, (p.height-2*margin)/up)
	return p
}

// at is where a point of the world is drawn.
func (p plane) at(of delivery.Point) (x, y float64) {
	return p.width/2 + (of.Longitude-p.middle.Longitude)*p.cos*p.scale,
		p.height/2 - (of.Latitude-p.middle.Latitude)*p.scale
}

// units is how long metres are drawn.
func (p plane) units(metres float64) float64 { return metres / metresPerDegree * p.scale }

// round keeps tenths, a small part of a pixel, and knows no -0.
func round(v float64) float64 { return math.Round(v*10)/10 + 0 }

// appendNumber writes a rounded figure as path data has it.
func appendNumber(b []byte, v float64) []byte { return strconv.AppendFloat(b, round(v), 'f', -1, 64) }

// barShare is the most of the width that a scale bar takes.
const barShare = 0.28

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

// line is a straight line's path data.
func line(x1, y1, x2, y2 float64) string {
	b := append(appendNumber([]byte("M"), x1), ' ')
	b = append(appendNumber(b, y1), 'L')
	b = append(appendNumber(b, x2), ' ')
	return string(appendNumber(b, y2))
}
