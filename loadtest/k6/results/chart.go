package results

import (
	"fmt"
	"math"
	"slices"
	"strings"
)

// The coordinates of a chart's lines. page.html draws the chart 720 wide and 260 high, with the
// names of the axes around them, and scales it to the page's width.
const (
	plotLeft   = 96.0  // room for numbers with units
	plotRight  = 684.0 // room for half of the last time
	plotTop    = 16.0
	plotBottom = 220.0
)

// chart is a picture of some curves over the same time, ready to be drawn as SVG.
type chart struct {
	Title string
	XAxis string // what the horizontal axis shows
	YAxis string // what the vertical axis shows

	XTicks, YTicks []tick
	Lines          []chartLine
}

// tick is a mark on an axis.
type tick struct {
	At    float64 // coordinate
	Label string
}

// chartLine is one curve.
type chartLine struct {
	Class string // of CSS, which decides colour and dashes
	Name  string
	Path  string // of SVG; empty for a curve that is nowhere above zero
}

// chartsOf returns the two charts of a script: rates, and latencies. It returns nil without curves.
func chartsOf(c *Curves) []chart {
	if c == nil || len(c.Requests) == 0 {
		return nil
	}

	return []chart{ratesChart(c), latenciesChart(c)}
}

// ratesChart returns the chart of the rates, from 0 to a round number above the highest one.
func ratesChart(c *Curves) chart {
	curves := []struct {
		class, name string
		values      []float64
	}{
		{class: "line1", name: "requests", values: c.Requests},
		{class: "line2", name: "orders accepted", values: c.Accepted},
		{class: "line3", name: "answers 429", values: c.Refused},
		{class: "line4", name: "failed: unexpected 5xx or no answer", values: c.Failed},
		{class: "line5", name: "iterations dropped", values: c.Dropped},
	}

	most := 0.0
	for _, curve := range curves {
		for _, value := range curve.values {
			most = max(most, value)
		}
	}

	top := niceAbove(most)

	drawn := newChart(c, "Rates over time", "per second")
	for _, value := range []float64{0, top / 2, top} {
		drawn.YTicks = append(drawn.YTicks, tick{At: plotY(value / top), Label: formatTick(value) + "/s"})
	}

	for _, curve := range curves {
		line := chartLine{Class: curve.class, Name: curve.name}
		if slices.Max(curve.values) > 0 {
			line.Path = pathOf(linearHeights(curve.values, top))
		}
		drawn.Lines = append(drawn.Lines, line)
	}

	return drawn
}

// latenciesChart returns the chart of the latencies, between two powers of ten.
func latenciesChart(c *Curves) chart {
	curves := []struct {
		class, name string
		values      []*Latency
	}{
		{class: "line1", name: "p50 of POST /orders 201", values: c.P50},
		{class: "line2", name: "p99 of POST /orders 201", values: c.P99},
		{class: "line3", name: "p99 of the empty path", values: c.EmptyP99},
	}

	// The scale is logarithmic: a stall is a thousand times as long as an ordinary answer.
	least, most := math.Inf(1), 0.0
	for _, curve := range curves {
		for _, value := range curve.values {
			if value != nil && *value > 0 {
				least = min(least, float64(*value))
				most = max(most, float64(*value))
			}
		}
	}

	if most == 0 {
		least, most = 1, 10
	}

	bottom := math.Floor(math.Log10(least))
	top := max(bottom+1, math.Ceil(math.Log10(most)))

	drawn := newChart(c, "Latencies over time", "milliseconds, logarithmic")
	for power := bottom; power <= top; power++ {
		label := formatTick(math.Pow(10, power)) + " ms"
		drawn.YTicks = append(drawn.YTicks, tick{At: plotY((power - bottom) / (top - bottom)), Label: label})
	}

	for _, curve := range curves {
		path := pathOf(logarithmicHeights(curve.values, bottom, top))
		drawn.Lines = append(drawn.Lines, chartLine{Class: curve.class, Name: curve.name, Path: path})
	}

	return drawn
}

// linearHeights returns each value as a part of the height; top is the value at its upper end.
func linearHeights(values []float64, top float64) []float64 {
	heights := make([]float64, len(values))
	for i, value := range values {
		heights[i] = value / top
	}

	return heights
}

// logarithmicHeights returns each latency as a part of the height, whose ends are the powers bottom
// and top of ten. NaN stands where nothing was measured.
func logarithmicHeights(values []*Latency, bottom, top float64) []float64 {
	heights := make([]float64, len(values))
	for i, value := range values {
		heights[i] = math.NaN()
		if value != nil {
			power := math.Log10(float64(*value))
			heights[i] = (max(power, bottom) - bottom) / (top - bottom)
		}
	}

	return heights
}

// newChart returns a chart without lines.
func newChart(c *Curves, title, yAxis string) chart {
	return chart{
		Title:  title,
		XAxis:  "time since " + c.Began.UTC().Format("15:04:05") + " UTC",
		YAxis:  yAxis,
		XTicks: timeTicks(c),
	}
}

// tickSteps are the distances between two marks of time, in seconds.
var tickSteps = []int{1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 4 * 3600, 8 * 3600, 24 * 3600}

// timeTicks returns at most six marks of time.
func timeTicks(c *Curves) []tick {
	seconds := len(c.Requests) * c.BucketSeconds
	step := tickStep(seconds)

	var ticks []tick
	for at := 0; at <= seconds; at += step {
		ticks = append(ticks, tick{
			At:    plotX(float64(at) / float64(seconds)),
			Label: formatSeconds(at),
		})
	}

	return ticks
}

// tickStep returns the smallest distance between two marks that fits at most five times into the
// given time. Both are in seconds. Beyond the last of tickSteps the distance is doubled.
func tickStep(seconds int) int {
	for _, step := range tickSteps {
		if seconds <= 5*step {
			return step
		}
	}

	step := tickSteps[len(tickSteps)-1]
	for seconds > 5*step {
		step *= 2
	}

	return step
}

// formatSeconds returns a time in the largest unit that is not longer than it.
func formatSeconds(seconds int) string {
	switch {
	case seconds < 60:
		return fmt.Sprintf("%d s", seconds)
	case seconds < 3600:
		return fmt.Sprintf("%.3g min", float64(seconds)/60)
	default:
		return fmt.Sprintf("%.3g h", float64(seconds)/3600)
	}
}

// niceAbove returns the smallest of 1, 2, 5, 10, 20, … that is not below the value.
func niceAbove(value float64) float64 {
	if value <= 1 {
		return 1
	}

	power := math.Pow(10, math.Floor(math.Log10(value)))
	for _, factor := range []float64{1, 2, 5} {
		if value <= factor*power {
			return factor * power
		}
	}

	return 10 * power
}

// formatTick returns a number with at most four digits, with "k" for thousands from 10,000 on.
func formatTick(value float64) string {
	if value >= 10000 {
		return fmt.Sprintf("%.4gk", value/1000)
	}

	return fmt.Sprintf("%.4g", value)
}

// plotX returns the horizontal coordinate of a part of the width, from 0 to 1.
func plotX(part float64) float64 { return plotLeft + part*(plotRight-plotLeft) }

// plotY returns the vertical coordinate of a part of the height, from 0 to 1.
func plotY(part float64) float64 { return plotBottom - part*(plotBottom-plotTop) }

// pathOf returns the SVG path of a curve through the middles of its buckets. The heights are parts
// of the chart's height, from 0 to 1; NaN leaves a gap.
func pathOf(heights []float64) string {
	var path strings.Builder
	for i, height := range heights {
		if math.IsNaN(height) {
			continue
		}

		x := plotX((float64(i) + 0.5) / float64(len(heights)))
		y := plotY(height)
		isFirst := i == 0 || math.IsNaN(heights[i-1])
		isLast := i == len(heights)-1 || math.IsNaN(heights[i+1])
		switch {
		case isFirst && isLast:
			// A line of no length is not drawn. A very short one becomes a dot by its round ends.
			fmt.Fprintf(&path, "M%.1f %.1fh0.01", x, y)
		case isFirst:
			fmt.Fprintf(&path, "M%.1f %.1f", x, y)
		default:
			fmt.Fprintf(&path, "L%.1f %.1f", x, y)
		}
	}

	return path.String()
}
