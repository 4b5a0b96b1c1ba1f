package reconcile

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/testenv"
)

// What the daily comparison has found is in its figures, whatever else went
// wrong.
func TestDaily_TellsWhatItFound(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil, unreadable bool
		result            string
		differences       float64
	}{
		"nothing":                       {result: "tied"},
		"a difference":                  {spoil: true, result: "differs", differences: 1},
		"an unreadable order":           {unreadable: true, result: "failed"},
		"a difference, and one of them": {spoil: true, unreadable: true, result: "failed", differences: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newCompared(t)
			bad, wrong := s.Delivered(s.today.Add(-11*time.Hour)), s.Delivered(s.today.Add(13*time.Hour))
			s.AwaitExported()
			if c.spoil {
				s.spoil(fmt.Sprintf("ALTER TABLE orders UPDATE order_amount = 1 WHERE order_id = '%s'", wrong.ID))
			}
			if c.unreadable {
				s.breakRecord(bad)
			}
			d := NewDaily(s.Ledger, s.Archive, Settings{At: "03:30", Days: 3}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
			d.compare(t.Context(), time.Now())
			if n := testenv.Value(t, d.differences); n != c.differences {
				t.Errorf("%v differences, want %v", n, c.differences)
			}
			if n := testenv.Value(t, d.runs.WithLabelValues(c.result)); n != 1 {
				t.Errorf("the run was not counted as %s", c.result)
			}
			if at := testenv.Value(t, d.succeeded); (at > 0) == c.unreadable {
				t.Errorf("last completed at %v", at)
			}
		})
	}
}

// A comparison that could not be made takes nothing back of what the last one
// found.
func TestDaily_FailureHidesNothing(t *testing.T) {
	t.Parallel()
	s := newCompared(t)
	wrong := s.Delivered(s.today.Add(13 * time.Hour))
	s.AwaitExported()
	s.spoil(fmt.Sprintf("ALTER TABLE orders UPDATE order_amount = 1 WHERE order_id = '%s'", wrong.ID))
	g := newGate(t, s.Env)
	d := NewDaily(s.Ledger, g.Archive, Settings{At: "03:30", Days: 3}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	d.compare(t.Context(), time.Now())
	g.stand(func(string) bool { return false }, nil) // ClickHouse is away
	d.compare(t.Context(), time.Now())
	if n := testenv.Value(t, d.differences); n != 1 {
		t.Errorf("%v differences are told after the failure, want still 1", n)
	}
	if n := testenv.Value(t, d.runs.WithLabelValues("failed")); n != 1 {
		t.Errorf("%v failures counted", n)
	}
}
