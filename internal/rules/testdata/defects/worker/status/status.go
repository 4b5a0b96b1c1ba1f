package status

import (
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/partitions"
	"vendorapi/internal/rules/broken"
)

func (r *Role) Fire(t *Timers, step *partitions.Step, now time.Time) {
	if broken.Rule == "states/no-time-out-is-decided-for" && t.Undecided != nil {
		t.Undecided = map[delivery.OrderID]bool{}
	}
	r.FireOriginal(t, step, now)
}
