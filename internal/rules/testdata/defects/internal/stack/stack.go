package stack

import (
	"bytes"

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

func (s *Stack) shell() []byte {
	if broken.Rule == "make-run/when-all-is-ready-it" {
		return nil
	}
	return s.shellOriginal()
}
