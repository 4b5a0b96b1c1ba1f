package layout

import (
	"encoding/json"
	"fmt"
)

// Chart is a picture of figures that also stand in a table below it, for those
// who cannot see it or have no scripts. Show it with {{template "chart" .C}},
// where .C is a *Chart.
type Chart struct {
	// ID is unique on the page; a chart that refreshes itself keeps its canvas
	// by it.
	ID    string
	Title string
	// Unit of the values, such as "orders" or "TRY".
	Unit    string
	Stacked bool
	// Across lays bars on their side, for long labels.
	Across bool
	Labels []string
	Series []Series
}

// Series is one colour of a chart, with a value for every label.
type Series struct {
	Name string
	// Tone is what the colour means: accent, good, bad, warn, quiet, or second;
	// empty: one after the other.
	Tone   string
	Values []float64
	// Texts are the values as the table writes them; nil: as they are.
	Texts []string
}

// Counts is a series of whole numbers.
func Counts(name, tone string, counts []int64) Series {
	s := Series{Name: name, Tone: tone}
	for _, n := range counts {
		s.Values, s.Texts = append(s.Values, float64(n)), append(s.Texts, Count(n))
	}
	return s
}

// Amounts is a series of kuruş, drawn as lira. The texts are exact; the floats
// are for drawing alone.
func Amounts(name, tone string, kurus []int64) Series {
	s := Series{Name: name, Tone: tone}
	for _, n := range kurus {
		s.Values, s.Texts = append(s.Values, float64(n)/100), append(s.Texts, Money(n))
	}
	return s
}

// Text is a value as the table below the chart writes it.
func (s Series) Text(i int) string {
	if i < len(s.Texts) {
		return s.Texts[i]
	}
	if i < len(s.Values) {
		return fmt.Sprint(s.Values[i])
	}
	return ""
}

// json is what panel.js draws. The texts stand in the table only.
func (c *Chart) json() (string, error) {
	type series struct {
		Name   string    `json:"name"`
		Tone   string    `json:"tone,omitempty"`
		Values []float64 `json:"values"`
	}
	drawn := struct {
		Unit    string   `json:"unit"`
		Stacked bool     `json:"stacked,omitempty"`
		Across  bool     `json:"across,omitempty"`
		Labels  []string `json:"labels"`
		Series  []series `json:"series"`
	}{Unit: c.Unit, Stacked: c.Stacked, Across: c.Across, Labels: c.Labels}
	for _, s := range c.Series {
		drawn.Series = append(drawn.Series, series{s.Name, s.Tone, s.Values})
	}
	b, err := json.Marshal(drawn)
	return string(b), err
}
