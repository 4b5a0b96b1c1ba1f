package svgmap

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"html/template"
	"io"
	"math"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv/testserver"
)

func TestMain(m *testing.M) { testserver.Main(m) }

// maxBytes is what a map may weigh at most.
const maxBytes = 40_000

var set = Define(template.New("page"))

// failer is what checks need of a test, rapid's or the ordinary one.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// draw renders a map and checks what holds for every map: it is well formed and
// light, all its points lie within the view, and no figure is missing.
func draw(t failer, m *Map) string {
	t.Helper()
	var out bytes.Buffer
	if err := set.ExecuteTemplate(&out, "map", m); err != nil {
		t.Fatalf("%v", err)
	}

	svg := out.String()
	if len(svg) > maxBytes {
		t.Fatalf("%d bytes", len(svg))
	}

	decoder := xml.NewDecoder(strings.NewReader(svg))
	for {
		_, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in %.200s", err, svg)
		}
	}

	for _, wrong := range []string{"NaN", "Inf", "ZgotmplZ", "e+", "e-"} {
		if strings.Contains(regexp.MustCompile(`<(title|desc)>[^<]*`).ReplaceAllString(svg, ""), wrong) {
			t.Fatalf("%s in %.2000s", wrong, svg)
		}
	}

	for _, mark := range m.Marks {
		inView(t, m, mark.X, mark.Y)
	}

	for _, layer := range [][]string{m.Land, m.Coverage, m.Grid, m.Way} {
		for _, path := range layer {
			pathInView(t, m, path)
		}
	}

	if m.Bar != nil {
		inView(t, m, m.Bar.X1, m.Bar.Y)
		inView(t, m, m.Bar.X2, m.Bar.Y)
		if share := (m.Bar.X2 - m.Bar.X1) / float64(m.Width); share < 0.1 || share > barShare+0.01 {
			t.Fatalf("the scale bar takes %.2f of the width", share)
		}
	}

	return svg
}

func inView(t failer, m *Map, x, y float64) {
	t.Helper()
	if !(x >= 0 && x <= float64(m.Width) && y >= 0 && y <= float64(m.Height)) {
		t.Fatalf("%v %v lies outside of %d x %d", x, y, m.Width, m.Height)
	}
}

var (
	wholeForm = regexp.MustCompile(`^[MLZ0-9. -]*$`)
	letters   = regexp.MustCompile(`[MLZ]`)
)

func pathInView(t failer, m *Map, path string) {
	t.Helper()
	if !wholeForm.MatchString(path) || path[0] != 'M' {
		t.Fatalf("no path: %.100q", path)
	}

	numbers := strings.Fields(letters.ReplaceAllString(path, " "))
	if len(numbers)%2 != 0 || len(numbers) == 0 {
		t.Fatalf("%d figures in %.100q", len(numbers), path)
	}

	for i := 0; i < len(numbers); i += 2 {
		x, err1 := strconv.ParseFloat(numbers[i], 64)
		y, err2 := strconv.ParseFloat(numbers[i+1], 64)
		if err := errors.Join(err1, err2); err != nil {
			t.Fatalf("%v", err)
		}
		inView(t, m, x, y)
	}
}

// ring is a closed ring of n points around a place, each at its own distance
// between half of a radius and the radius, in degrees.
func ring(source *rand.Rand, n int, at delivery.Point, radius float64) [][2]float64 {
	points := make([][2]float64, 0, n+1)
	for i := range n {
		sin, cos := math.Sincos(2 * math.Pi * float64(i) / float64(n))
		far := radius * (1 + source.Float64()) / 2
		points = append(points, [2]float64{
			max(-180, min(180, at.Longitude+far*cos)), max(-90, min(90, at.Latitude+far*sin))})
	}
	return append(points, points[0])
}

func coverage(t failer, polygons ...[][][2]float64) *delivery.Coverage {
	t.Helper()
	text, err := json.Marshal(map[string]any{"type": "MultiPolygon", "coordinates": polygons})
	if err != nil {
		t.Fatalf("%v", err)
	}
	c, err := delivery.ParseCoverage(text)
	if err != nil {
		t.Fatalf("%v", err)
	}

	return c
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// both draws a coverage the two ways.
func both(t failer, c *delivery.Coverage) (country, closeUp *Map) {
	t.Helper()
	country = Country(c, "title", "description")
	draw(t, country)
	closeUp = CloseUp(c, "title", "description")
	if closeUp != nil {
		draw(t, closeUp)
	}
	return country, closeUp
}
