package dispatch

import "vendorapi/internal/delivery"

// NotLoaded forgets that a part of a schedule could not be read, so that nothing is read of that schedule any more.
func (s *Scheduler) NotLoaded(_ delivery.AccountID, _ int64) {}
