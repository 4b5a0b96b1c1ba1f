package ledger

import (
	"context"
	"fmt"
	"time"
)

// Trim drops everything, whoever has yet to read it.
func (l *Lifecycle) Trim(ctx context.Context, partition int, _ time.Duration) (int64, error) {
	total := int64(0)
	now := fmt.Sprintf("%d-0", time.Now().UnixMilli())
	for _, kind := range []byte{kindEvents, kindUpdates, kindOutcomes, kindTries, kindAudit} {
		dropped, err := l.trimStream(ctx, l.partitions[partition].key(kind), now)
		total += dropped
		if err != nil {
			return total, err
		}
	}
	return total, nil
}
