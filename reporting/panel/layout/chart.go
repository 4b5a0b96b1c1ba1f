package layout

import "encoding/json"

// Chart is a picture of figures that also stand in a table below it, for those
// who cannot see it or have no scripts. Show it with {{template "chart" .C}},
// where .C is a *Chart. The JSON is what panel.js draws.
type Chart struct {
	// ID is unique on the page; a chart that refreshes itself keeps its canvas
	// by it.
	ID      string   `json:"-"`
	Title   string   `json:"-"`
	Unit    string   `json:"unit"` // of the values, such as "orders" or "TRY"
	Stacked bool     `json:"stacked,omitempty"`
	Across  bool     `json:"across,omitempty"` // bars on their side, for long labels
	Labels  []string `json:"labels"`
	Series  []Series `json:"series"`
}

// Series is one colour of a chart, with a value and a text for every label.
type Series struct {
	Name string `json:"name"`
	// Tone is what the colour means: accent, good, bad, warn, quiet, or second;
	// empty: one after the other.
	Tone   string    `json:"tone,omitempty"`
	Values []float64 `json:"values"`
	Texts  []string  `json:"-"` // the values as the table writes them
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

func (c *Chart) json() (string, error) {
	b, err := json.Marshal(c)
	return string(b), err
}
