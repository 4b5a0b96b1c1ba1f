package courier

import (
	"time"

	"vendorapi/internal/delivery"
	"vendorapi/internal/rules/broken"
)

func nextMove(o *delivery.Order, now time.Time, step time.Duration) (u delivery.Update, moves bool) {
	if broken.Rule == "what-the-service-does/a-courier-fleet-not-the" { // nobody carries anything
		return delivery.Update{}, false
	}
	return nextMoveOriginal(o, now, step)
}
