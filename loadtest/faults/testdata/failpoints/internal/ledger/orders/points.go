package orders

import (
	"context"
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/internal/ledger/limits"
	"vendorapi/loadtest/faults/failpoint/point"
)

// Calls of scripts carry the marks of failpoints, and no script notices: an argument behind the last
// one is not read, and a command of a step may read a key that never exists.

func (l *Orders) PrepareCreation(r core.Partition, c *Creation) {
	l.PrepareCreationOriginal(r, c)
	c.Call.Value(append(c.Call.Buf, point.CreateOrder.Mark()...))
}

func (l *Orders) CancelWithNonce(ctx context.Context, r core.Partition, account delivery.AccountID, id delivery.OrderID, change *delivery.Change, nonce uint64) (limits.CountingReply, error) {
	return l.CancelWithNonceOriginal(point.In(ctx, point.CancelOrder), r, account, id, change, nonce)
}

func (l *Orders) Report(ctx context.Context, u delivery.Update, now time.Time) (delivery.Status, error) {
	return l.ReportOriginal(point.In(ctx, point.Report), u, now)
}
