package export

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/reporting/testbed"
	"vendorapi/reporting/testbed/scene"
)

// exporting is a scene in which exporters can be started.
type exporting struct{ *scene.Scene }

func newScene(t *testing.T, engine *testbed.Engine) *exporting {
	t.Helper()
	return &exporting{scene.New(t, engine)}
}

var quick = Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Second}

// export starts an exporter; stop waits for its end.
func (s *exporting) export(consumer string) (e *Exporter, stop func()) {
	e = New(s.Ledger, s.Archive, quick, consumer, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return e, s.Start(e.Run)
}
