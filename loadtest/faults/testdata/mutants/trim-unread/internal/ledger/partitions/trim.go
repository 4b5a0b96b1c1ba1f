package partitions

import (
	"context"
	"fmt"
	"time"

	"vendorapi/internal/ledger/core"
)

// Trim drops everything, whoever has yet to read it.
func (l *Streams) Trim(ctx context.Context, partition int, _ time.Duration) (int64, error) {
	total := int64(0)
	now := fmt.Sprintf("%d-0", time.Now().UnixMilli())
	for _, kind := range []byte{core.KindEvents, core.KindUpdates, core.KindOutcomes, core.KindTries, core.KindAudit} {
		dropped, err := l.trimStream(ctx, l.core.Partitions[partition].Key(kind), now)
		total += dropped
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
