package reconcile

import (
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/delivery"
	"vendorapi/internal/testenv"
)

// The next comparison is at the settings' local time, today or tomorrow, and never at once.
func TestSettings_NextIsTheLocalTime(t *testing.T) {
	t.Parallel()

	for _, c := range []struct{ at, now, want string }{
		{"03:30", "2026-11-03T03:29:59+03:00", "2026-11-03T03:30:00+03:00"},
		{"03:30", "2026-11-03T03:30:00+03:00", "2026-11-04T03:30:00+03:00"},
		{"03:30", "2026-11-03T03:30:01+03:00", "2026-11-04T03:30:00+03:00"},
		{"03:30", "2026-11-30T22:00:00Z", "2026-12-01T03:30:00+03:00"},
		{"00:00", "2026-12-31T23:59:59+03:00", "2027-01-01T00:00:00+03:00"},
		{"23:59", "2026-11-03T20:58:00Z", "2026-11-03T23:59:00+03:00"},
	} {
		now, err := time.Parse(time.RFC3339, c.now)
		testenv.Must(t, err)
		settings := Settings{At: c.at, Days: 3}

		if got := settings.next(now).Format(time.RFC3339); got != c.want {
			t.Errorf("%s after %s is %s, want %s", c.at, c.now, got, c.want)
		}
	}
}

// What the daily comparison has found is in its figures, whatever else went wrong.
func TestDaily_TellsWhatItFound(t *testing.T) {
	t.Parallel()

	s := newEnv(t)
	bad, wrong := s.Delivered(s.today.Add(-11*time.Hour)), s.Delivered(s.today.Add(13*time.Hour))
	s.AwaitExported()
	p := s.NewProxy("")
	spoil := func() {
		s.spoil(fmt.Sprintf("ALTER TABLE orders UPDATE order_amount = 1 WHERE order_id = '%s'", wrong.ID))
	}
	var d *Daily
	for _, step := range []struct {
		what        string
		do          func()
		same        bool // the process that made the last comparison
		result      string
		differences float64
	}{
		{what: "nothing", do: func() {}, result: "tied"},
		{what: "a difference", do: spoil, result: "differs", differences: 1},
		// A comparison that could not be made takes nothing back.
		{what: "no ClickHouse", do: func() { p.Guard(func(string) bool { return false }, nil) }, same: true, result: "failed", differences: 1},
		{what: "an unreadable order", do: func() {
			p.Guard(nil, nil)
			s.compare(Scope{Fix: true})
			s.Record("o", bad.ID.Digest(), "redis.call('SET', k, string.sub(redis.call('GET', k), 1, 150))")
		}, result: "failed"},
		{what: "an unreadable order and a difference", do: spoil, result: "failed", differences: 1},
	} {
		step.do()
		if !step.same {
			d = NewDaily(s.Ledger, p.Archive, Settings{At: "03:30", Days: 3}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
		}

		d.compare(t.Context(), time.Now())
		if n := testenv.Value(t, d.differences); n != step.differences {
			t.Errorf("%s: %v differences, want %v", step.what, n, step.differences)
		}
		if n := testenv.Value(t, d.runs.WithLabelValues(step.result)); n != 1 {
			t.Errorf("%s: the run was not counted as %s", step.what, step.result)
		}

		if step.result != "failed" { // the panel tells of it, too
			last, err := s.Archive.LastReconciliation(t.Context())
			if err != nil || last == nil || last.Differences != int(step.differences) || last.Orders == 0 || time.Since(last.At) > time.Hour ||
				!last.From.AddDate(0, 0, 2).Equal(last.To) {
				t.Errorf("%s: %+v was noted, %v", step.what, last, err)
			}
		}

		if at := testenv.Value(t, d.succeeded); (at > 0) == (step.result == "failed" && !step.same) {
			t.Errorf("%s: last completed at %v", step.what, at)
		}
	}

	// The unreadable order is reported and hides nothing else.
	var found []Difference
	err := s.reconciler.Run(t.Context(), Scope{From: s.today.AddDate(0, 0, -1), To: s.today, Timeout: timeout}, func(d *Day) {
		found = append(found, d.Differences...)
		if len(d.Totals) > 0 {
			t.Errorf("%s: %q", d.Day.Format(time.DateOnly), d.Totals)
		}
	})
	if err == nil || errors.Is(err, delivery.ErrUnavailable) || len(found) != 1 || found[0].Order != wrong.ID {
		t.Errorf("%v, found %+v", err, found)
	}
}
