package archive

import (
	"fmt"
	"strings"

	"vendorapi/internal/delivery"
)

// Difference is one thing in which ClickHouse is not what it should be.
type Difference struct {
	// What is the column, such as orders.status or order_events[3].at, or the
	// row, such as orders or order_events[3].
	What       string
	Want, Have string // values as ClickHouse writes them; for a row absentRow or presentRow
}

// What stands for a whole row.
const (
	absentRow  = "no row"
	presentRow = "a row"
)

func (d Difference) String() string {
	return fmt.Sprintf("%s is %q, should be %q", d.What, d.Have, d.Want)
}

// Differences compares what is stored with what should be: the row of an order,
// and of all its events. store_name and tax_number are left out: they are what
// the store was called when the order was exported. So is the epoch of the
// creation's event, which orders do not keep.
func (s *Stored) Differences(want *Order, events []Event) []Difference {
	var found []Difference
	if s.order == nil {
		found = append(found, Difference{What: orders.name, Want: presentRow, Have: absentRow})
	} else {
		found = orders.compare(found, orders.name, want, s.order, "")
	}
	stored := s.events
	for i := range events {
		e := &events[i]
		sequence := delivery.Sequence(e.Version)
		for len(stored) > 0 && stored[0].sequence < sequence {
			found, stored = append(found, surplus(stored[0])), stored[1:]
		}
		name := nameOfEvent(sequence)
		if len(stored) == 0 || stored[0].sequence != sequence {
			found = append(found, Difference{What: name, Want: presentRow, Have: absentRow})
			continue
		}
		besides := ""
		if sequence == 1 {
			besides = "version"
		}
		found = orderEvents.compare(found, name, e, stored[0].values, besides)
		stored = stored[1:]
	}
	for _, e := range stored {
		found = append(found, surplus(e))
	}
	return found
}

func nameOfEvent(sequence uint32) string { return fmt.Sprintf("%s[%d]", orderEvents.name, sequence) }

func surplus(e storedEvent) Difference {
	return Difference{What: nameOfEvent(e.sequence), Want: absentRow, Have: presentRow}
}

// compare appends the columns whose stored values are not those of the row.
func (t *table[R]) compare(found []Difference, name string, want *R, have []string, besides string) []Difference {
	for i, c := range t.columns {
		if c.unstable || c.name == besides {
			continue
		}
		if value := c.text(want); value != have[i] {
			found = append(found, Difference{What: name + "." + c.name, Want: value, Have: have[i]})
		}
	}
	return found
}

// Describe is the stored row of orders in words, for an order that should not be
// there.
func (s *Stored) Describe() string {
	if s.order == nil {
		return fmt.Sprintf("%d events without an order", len(s.events))
	}
	parts := make([]string, 0, len(s.order))
	for i, c := range orders.columns {
		if s.order[i] != "" {
			parts = append(parts, c.name+"="+s.order[i])
		}
	}
	return strings.Join(parts, " ")
}
