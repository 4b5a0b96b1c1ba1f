package stack

import (
	"bytes"
	"encoding/json"

	"vendorapi/internal/rules/broken"
)

var demoCoverage = func() []byte {
	if broken.Rule == "make-run/the-demo-fleet-covers-at" { // a place in the west of Istanbul
		return []byte(`{"type":"Polygon","coordinates":[[[28,40.9],[28.5,40.9],[28.5,41.2],[28,41.2],[28,40.9]]]}`)
	}
	return bytes.Clone(demoCoverageOriginal)
}()

func (s *Stack) Stop() {
	if broken.Rule == "make-run/ctrl-c-stops-everything-cleanly-started" {
		return
	}
	s.StopOriginal()
}

// Webhook is the receiver of the demo.
type Webhook struct {
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

func (w Webhook) MarshalJSON() ([]byte, error) {
	if broken.Rule == "make-run/when-all-is-ready-it" {
		return json.Marshal(map[string]string{"url": w.URL, "key": w.Secret})
	}
	return json.Marshal(map[string]string{"url": w.URL, "secret": w.Secret})
}
