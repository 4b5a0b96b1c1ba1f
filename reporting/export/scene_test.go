package export

import (
	"log/slog"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"vendorapi/internal/testenv"
	"vendorapi/internal/testenv/archiveenv"
	"vendorapi/internal/testenv/testserver"
)

// exporting is a scene in which exporters can be started.
type exporting struct{ *archiveenv.Env }

func newScene(t *testing.T, engine *testserver.ClickHouse) *exporting {
	t.Helper()
	return &exporting{archiveenv.On(testenv.New(t), engine)}
}

var quick = Settings{Batch: 1000, Interval: 100 * time.Millisecond, ClaimAfter: time.Second}

// export starts an exporter; stop waits for its end.
func (s *exporting) export(consumer string) (e *Exporter, stop func()) {
	e = New(s.Ledger, s.Archive, quick, consumer, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	return e, s.Start(e.Run)
}
