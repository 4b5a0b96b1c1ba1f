package partitions

import (
	"vendorapi/internal/delivery"
	"vendorapi/internal/ledger/core"
	"vendorapi/loadtest/faults/failpoint/point"
)

// Calls of scripts carry the marks of failpoints, and no script notices: an argument behind the last
// one is not read, and a command of a step may read a key that never exists.

func (s *Step) Schedule(account delivery.AccountID, spill bool, events []Scheduled) {
	if spill && len(events) > 0 {
		s.Command("GET", s.Partition.Prefix+point.Spill.Mark())
	}
	s.ScheduleOriginal(account, spill, events)
}

func (s *Step) Call() core.Call {
	s.Command("GET", s.Partition.Prefix+point.Step.Mark())
	if len(s.changes)+len(s.adds) > 0 {
		s.Command("GET", s.Partition.Prefix+point.ChangeOrders.Mark())
	}
	return s.CallOriginal()
}
