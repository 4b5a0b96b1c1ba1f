package partitions

import (
	"slices"

	"vendorapi/internal/delivery"
)

// Change leaves out the events of all changes but the last.
func (s *Step) Change(o *delivery.Order, changes []delivery.Change) {
	first := len(s.events)
	s.ChangeOriginal(o, changes)
	s.events = slices.Delete(s.events, first, len(s.events)-OrderEventSize)
}
