package report

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// Moment is one piece of a run's time.
type Moment struct {
	From, Length           time.Duration
	Count, Refused, Failed int
	P50, P95               time.Duration
}

// The charts' measures in the units of their viewBox.
const (
	chartWidth, chartHeight = 760.0, 150.0
	left, right, top, foot  = 52.0, 16.0, 10.0, 22.0
)

// Chart is a time series as SVG can draw it.
type Chart struct {
	Title         string
	Width, Height float64
	Lines         []Line
	Ticks         []Tick // of the vertical axis, from the bottom up
	Times         []Tick // of the horizontal axis
	Bars          []Bar  // one for each moment, to point at
	Left, Right   float64
	Bottom        float64
}

// Line is one series.
type Line struct {
	Class, Name string
	Path        string // SVG path data
	Area        string // the same, closed down to the axis; empty for a bare line
}

// Tick is a mark on an axis.
type Tick struct {
	At    float64
	Label string
}

// Bar is a moment's place with what is to be said of it.
type Bar struct {
	X, Width float64
	Words    string
}

// charts are the rate and the latency over time; none for an empty run.
func charts(moments []Moment) []Chart {
	if len(moments) < 2 {
		return nil
	}
	perSecond := func(n int, m Moment) float64 { return float64(n) / m.Length.Seconds() }
	rate := frame("Requests per second", moments)
	rate.series(moments, "", []series{
		{"count", "answered", true, func(m Moment) float64 { return perSecond(m.Count, m) }},
		{"refused", "refused (429)", true, func(m Moment) float64 { return perSecond(m.Refused, m) }},
		{"failed", "failed", true, func(m Moment) float64 { return perSecond(m.Failed, m) }},
	})
	latency := frame("Time to answer", moments)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	latency.series(moments, " ms", []series{
		{"p95", "p95", false, func(m Moment) float64 { return ms(m.P95) }},
		{"p50", "median", false, func(m Moment) float64 { return ms(m.P50) }},
	})
	return []Chart{rate, latency}
}

type series struct {
	class, name string
	area        bool
	value       func(Moment) float64
}

// frame is a chart with its horizontal axis and a place to point at for every
// moment.
func frame(title string, moments []Moment) Chart {
	c := Chart{Title: title, Width: chartWidth, Height: chartHeight, Left: left, Right: chartWidth - right, Bottom: chartHeight - foot}
	step := (c.Right - c.Left) / float64(len(moments))
	for i, m := range moments {
		words := fmt.Sprintf("%s: %.0f/s, median %s, p95 %s", m.From, float64(m.Count)/m.Length.Seconds(), millis(m.P50), millis(m.P95))
		if m.Refused > 0 {
			words += fmt.Sprintf(", %d refused", m.Refused)
		}
		if m.Failed > 0 {
			words += fmt.Sprintf(", %d failed", m.Failed)
		}
		c.Bars = append(c.Bars, Bar{X: c.Left + float64(i)*step, Width: step, Words: words})
	}
	length := moments[0].Length
	total := length * time.Duration(len(moments))
	for mark := time.Duration(0); mark <= total; mark += timeStep(total) {
		at := c.Left + float64(mark)/float64(total)*(c.Right-c.Left)
		c.Times = append(c.Times, Tick{At: at, Label: shortTime(mark)})
	}
	return c
}

// timeStep gives five to ten marks.
func timeStep(total time.Duration) time.Duration {
	for _, step := range []time.Duration{1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200} {
		if total <= 10*step*time.Second {
			return step * time.Second
		}
	}
	return (total / 10).Round(time.Hour) + time.Hour
}

func shortTime(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0f s", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0f min", d.Minutes())
	}
	return fmt.Sprintf("%.1f h", d.Hours())
}

// series draws the lines over one vertical axis that begins at zero. A series
// without any value is left out.
func (c *Chart) series(moments []Moment, unit string, all []series) {
	highest := 0.0
	for _, s := range all {
		for _, m := range moments {
			highest = max(highest, s.value(m))
		}
	}
	step := niceStep(highest)
	ceiling := max(step, math.Ceil(highest/step)*step)
	height := func(v float64) float64 { return c.Bottom - v/ceiling*(c.Bottom-top) }
	for v := 0.0; v <= ceiling+step/2; v += step {
		c.Ticks = append(c.Ticks, Tick{At: height(v), Label: fmt.Sprintf("%g%s", v, unit)})
	}
	for _, s := range all {
		var path strings.Builder
		most, pen := 0.0, 'M'
		for i, m := range moments {
			if m.Count == 0 && !s.area { // no answer has no time
				pen = 'M'
				continue
			}
			v := s.value(m)
			most = max(most, v)
			fmt.Fprintf(&path, "%c%.1f %.1f", pen, c.Bars[i].X+c.Bars[i].Width/2, height(v))
			pen = 'L'
		}
		if most == 0 {
			continue
		}
		line := Line{Class: s.class, Name: s.name, Path: path.String()}
		if s.area {
			first, last := c.Bars[0], c.Bars[len(c.Bars)-1]
			line.Area = fmt.Sprintf("%sL%.1f %.1fL%.1f %.1fZ", line.Path, last.X+last.Width/2, c.Bottom, first.X+first.Width/2, c.Bottom)
		}
		c.Lines = append(c.Lines, line)
	}
}

// niceStep is 1, 2 or 5 times a power of ten, so that three to five steps reach
// the highest value.
func niceStep(highest float64) float64 {
	if highest <= 0 {
		return 1
	}
	rough := highest / 4
	power := math.Pow(10, math.Floor(math.Log10(rough)))
	for _, factor := range []float64{1, 2, 5} {
		if rough <= factor*power {
			return factor * power
		}
	}
	return 10 * power
}
