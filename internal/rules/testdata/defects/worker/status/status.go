package status

import (
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger"
	"vendorapi/internal/rules/broken"
)

func (r *Role) Fire(t *Timers, step *ledger.Step, now time.Time) {
	if broken.Rule == "states/no-time-out-is-decided-for" && t.Undecided != nil {
		t.Undecided = map[delivery.OrderID]bool{}
	}
	r.FireOriginal(t, step, now)
}
