package status

import (
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
)

// NewBatch lets each report be decided by itself, as if no other one of its order had come.
func NewBatch(in *partitions.Inbox) *Batch {
	b := NewBatchOriginal(in)
	merged := b.groups
	b.groups, b.Reported = nil, nil
	for _, g := range merged {
		for _, update := range g.updates {
			b.groups = append(b.groups, reports{order: g.order, updates: []*delivery.Update{update}})
			b.Reported = append(b.Reported, g.order)
		}
	}
	return b
}
