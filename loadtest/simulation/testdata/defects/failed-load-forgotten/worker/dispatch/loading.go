package dispatch

import (
	"time"

	"vendorapi/internal/delivery"
)

// notLoaded forgets that a part of a schedule could not be read, so that nothing is read of that schedule any more.
func (s *scheduler) notLoaded(_ delivery.AccountID, _ int64, _ time.Duration) {}
