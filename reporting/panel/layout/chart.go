package layout

import "encoding/json"

// Chart is a picture of figures, which panel.js draws from its JSON, with a table of them
// below. Show it with {{template "chart" .C}}, where .C is a *Chart.
type Chart struct {
	ID      string   `json:"-"` // unique on the page
	Title   string   `json:"-"`
	Unit    string   `json:"unit"` // of the values, such as "orders" or "TRY"
	Stacked bool     `json:"stacked,omitempty"`
	Across  bool     `json:"across,omitempty"` // bars on their side, for long labels
	Labels  []string `json:"labels"`
	Series  []Series `json:"series"`
}

// Series is one colour of a chart, with a value and a text for every label.
type Series struct {
	Name   string    `json:"name"`
	Tone   string    `json:"tone,omitempty"` // accent, good, bad, warn, quiet, second; empty: one after the other
	Values []float64 `json:"values"`
	Texts  []string  `json:"-"` // the values as the table writes them
}

// Add adds a series of whole numbers, or of kuruş, drawn as lira, when the unit is TRY.
func (c *Chart) Add(name, tone string, values []int64) {
	s := Series{Name: name, Tone: tone}
	for _, n := range values {
		value, text := float64(n), Count(n)
		if c.Unit == "TRY" {
			value, text = float64(n)/100, Money(n)
		}
		s.Values, s.Texts = append(s.Values, value), append(s.Texts, text)
	}
	c.Series = append(c.Series, s)
}

func (c *Chart) json() (string, error) {
	b, err := json.Marshal(c)
	return string(b), err
}
