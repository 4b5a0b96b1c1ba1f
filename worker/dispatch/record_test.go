package dispatch

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/ledger"
)

func resultOf(event string, until time.Time) result {
	return result{ledger.Result{Delivery: &ledger.Delivery{EventID: event, Attempt: 1}}, until}
}

func TestRecorder_GathersWhatHasEnded(t *testing.T) {
	c := &recorder{results: make(chan result, 2*recordBatch)}
	for range recordBatch + 10 {
		c.results <- resultOf("e", time.Now())
	}
	for i, want := range []int{recordBatch, 10} {
		if got := len(c.gather(<-c.results)); got != want {
			t.Errorf("batch %d has %d results, want %d", i, got, want)
		}
	}
	c.results <- resultOf("last", time.Now())
	close(c.results)
	if got := len(c.gather(<-c.results)); got != 1 {
		t.Errorf("%d results at the end, want 1", got)
	}
}

// While Redis is unavailable a result is kept as long as its lease, and no longer: then
// the event is somebody else's.
func TestRecorder_GivesUpWhatIsNoLongerItsOwn(t *testing.T) {
	var log bytes.Buffer
	c := &recorder{role: &Role{now: time.Now, log: slog.New(slog.NewTextHandler(&log, nil))}}
	kept := c.stillLeased([]result{
		resultOf("over", time.Now().Add(-time.Second)),
		resultOf("kept", time.Now().Add(time.Hour)),
	}, errors.New("redis is unavailable"))
	if len(kept) != 1 || kept[0].Delivery.EventID != "kept" {
		t.Errorf("kept %+v", kept)
	}
	if text := log.String(); !strings.Contains(text, "event=over") || strings.Contains(text, "event=kept") {
		t.Errorf("logged %q", text)
	}
}

// A shutdown that has run out of time leaves what is not recorded to the
// leases; nothing hangs.
func TestRecorder_EndsWithItsPatience(t *testing.T) {
	var log bytes.Buffer
	c := &recorder{role: &Role{now: time.Now, log: slog.New(slog.NewTextHandler(&log, nil)), metrics: newMetrics(prometheus.NewRegistry(), 1, nil, nil)}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c.record(ctx, []result{resultOf("e", time.Now().Add(time.Hour))}, 0) // without a ledger, which panics and is caught
	if !strings.Contains(log.String(), "event=e") {
		t.Errorf("logged %q", log.String())
	}
}
