package partitions

import (
	"context"
	"time"

	"vendorapi/internal/rules/broken"
)

func (l *Streams) Trim(ctx context.Context, partition int, keep time.Duration) (int64, error) {
	if broken.Rule == "fleets-and-operators/what-is-decided-is-trimmed" {
		return 0, nil
	}
	return l.TrimOriginal(ctx, partition, keep)
}

func (a *AttemptRecord) AppendLine(b []byte, kind byte) []byte {
	if broken.Rule == "webhooks/every-attempt-is-recorded-time" { // not how long it took
		record := *a
		record.Millis = 0
		a = &record
	}
	return a.AppendLineOriginal(b, kind)
}
