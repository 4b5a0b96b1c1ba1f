package partitions

import "vendorapi/internal/delivery"

// Refuse drops the update.
func (s *Step) Refuse(_ *delivery.Update, _ delivery.Status, _ string, _ bool) {}
