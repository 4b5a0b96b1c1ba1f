//go:build long

package owner

import (
	"testing"
	"time"
)

// All the while its endpoint is probed, at least once a minute.
func TestOutage_IsProbedAllTheWhile(t *testing.T) {
	s := newOutage(t)
	s.outlive(s.nextLook)
	probes := 0
	for _, a := range s.attempts() {
		probes += a.Probes
	}

	if probes < 24*60 {
		t.Errorf("%d probes in a day", probes)
	}

	requests := s.received()
	for i := len(nominal) + 1; i < len(requests); i++ {
		if pause := requests[i].at.Sub(requests[i-1].at); pause > time.Minute {
			t.Errorf("not probed for %s", pause)
		}
	}
}
